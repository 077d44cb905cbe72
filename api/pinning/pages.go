package pinning

import (
	"sync"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxPageBytes is what the pages of one account may take that are on their way at the
// same time, in bytes as state.ListBytes counts them: whoever asks for lists and does
// not read the answers fills no more memory than that.
const maxPageBytes = 16 * state.MaxListBytes

// pages are the lists on their way to clients.
type pages struct {
	mu    sync.Mutex
	bytes map[state.AccountID]int
}

// begin takes the room of a page, or returns state.ErrLimited; done gives it back.
func (p *pages) begin(account state.AccountID, rows []pins.Record) (done func(), err error) {
	n := 0
	for i := range rows {
		n += state.ListBytes(&rows[i].Pin)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes[account]+n > maxPageBytes {
		return nil, state.Errorf(state.CodeLimited, "answers to lists of this account wait to be read")
	}
	if p.bytes == nil {
		p.bytes = map[state.AccountID]int{}
	}
	p.bytes[account] += n
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.bytes[account] -= n; p.bytes[account] == 0 {
			delete(p.bytes, account)
		}
	}, nil
}
