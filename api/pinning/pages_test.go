package pinning

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/pinbody"
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

// An account whose clients do not read their lists or pins gets 429 when the answers hold 64 MiB of memory, and
// is served again after they are read.
func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	row := pins.Record{Pin: state.Pin{ID: "r", CID: cidOne, Status: state.Pinned, Name: strings.Repeat("n", 1<<20)}}
	large := pins.Record{Pin: state.Pin{
		ID: "r", CID: cidOne, Status: state.Pinned, Given: state.GivenMeta, Meta: map[string]string{"": strings.Repeat("<", state.MaxMetaBytes)},
	}}
	f := &fake{rows: []pins.Record{row, row, row}, record: large}
	one, err := json.Marshal(pinbody.Of(&large))
	if err != nil {
		t.Fatal(err)
	}
	for path, size := range map[string]int{"/pins": len(f.rows) * state.ListBytes(&row.Pin), "/pins/r": len(one)} {
		h := f.limited(t, web.NewLimits(web.Rate{}, web.Rate{}, nil, nil))
		get := func() *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }
		writes, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		most := (64 << 20) / size // of memory that an account may hold
		for range most {
			go func() {
				h.ServeHTTP(stuck{httptest.NewRecorder(), writes, release}, get())
				ended <- struct{}{}
			}()
			<-writes
		}
		rec := httptest.NewRecorder()
		if h.ServeHTTP(rec, get()); rec.Code != http.StatusTooManyRequests {
			t.Errorf("%s beside %d that nobody reads: %d", path, most, rec.Code)
		}
		go func() { // what each of them writes after its first piece
			for range writes { //nolint:revive // taken, and nothing else
			}
		}()
		close(release)
		for range most {
			<-ended
		}
		rec = httptest.NewRecorder()
		if h.ServeHTTP(rec, get()); rec.Code != http.StatusOK {
			t.Errorf("%s after the others were read: %d", path, rec.Code)
		}
		close(writes)
	}
}

// An account whose clients do not read the answers to new pins gets 429 before the answers hold more than 64
// MiB. Such an answer repeats the metadata of the request.
func TestAnswersToPinsThatNobodyReadsAreBounded(t *testing.T) {
	meta := map[string]string{"": strings.Repeat("<", state.MaxMetaBytes)}
	f := &fake{record: pins.Record{Pin: state.Pin{ID: "r", CID: cidOne, Status: state.Queued, Given: state.GivenMeta, Meta: meta}}}
	answer, err := json.Marshal(pinbody.Of(&f.record))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"cid":"` + cidOne + `","meta":{"":"` + meta[""] + `"}}`
	for _, path := range []string{"/pins", "/pins/r"} {
		h := f.limited(t, web.NewLimits(web.Rate{}, web.Rate{}, nil, nil))
		writes, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		for n, code := 0, 0; code != http.StatusTooManyRequests; n++ {
			if n*len(answer) > 64<<20 {
				t.Errorf("%s: %d answers of %d bytes that nobody reads", path, n, len(answer))
				break
			}
			rec := httptest.NewRecorder()
			go func() {
				h.ServeHTTP(stuck{rec, writes, release}, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
				ended <- struct{}{}
			}()
			<-writes
			code = rec.Code
			defer func() { <-ended }()
		}
		close(release)
	}
}
