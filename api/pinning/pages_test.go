package pinning

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// stuck is a client that does not read.
type stuck struct {
	*httptest.ResponseRecorder
	writes  chan<- struct{}
	release <-chan struct{}
}

func (s stuck) Write(b []byte) (int, error) {
	s.writes <- struct{}{}
	<-s.release
	return len(b), nil
}

// Who asks for lists and does not read them fills no more memory than there is room
// for the pages of an account.
func TestPagesThatNobodyReadsAreBounded(t *testing.T) {
	row := pins.Record{Pin: state.Pin{ID: "r", CID: cidOne, Status: state.Pinned, Name: strings.Repeat("n", 1<<20)}}
	f := &fake{rows: []pins.Record{row, row, row}}
	h := f.limited(t, web.NewLimits(web.Rate{}, web.Rate{}, nil, nil))
	list := func() *http.Request { return httptest.NewRequest(http.MethodGet, "/pins", nil) }
	size := len(f.rows) * state.ListBytes(&row.Pin)
	writes, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	pages := (64 << 20) / size // of memory that an account may hold
	for range pages {
		go func() {
			h.ServeHTTP(stuck{httptest.NewRecorder(), writes, release}, list())
			ended <- struct{}{}
		}()
		<-writes
	}
	rec := httptest.NewRecorder()
	if h.ServeHTTP(rec, list()); rec.Code != http.StatusTooManyRequests {
		t.Errorf("a page beside %d that nobody reads: %d", pages, rec.Code)
	}
	go func() { // what each of them writes after its first piece
		for range writes { //nolint:revive // taken, and nothing else
		}
	}()
	close(release)
	for range pages {
		<-ended
	}
	rec = httptest.NewRecorder()
	if h.ServeHTTP(rec, list()); rec.Code != http.StatusOK {
		t.Errorf("a page after the others were read: %d", rec.Code)
	}
	close(writes)
}
