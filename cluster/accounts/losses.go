package accounts

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// Losses tells of keys and sessions that go from the state of this node.
type Losses struct {
	sub *state.Subscription // nil: nothing is told
}

// Losses begins to tell. Close ends it.
func (a *Accounts) Losses() *Losses {
	if a.watch == nil {
		return &Losses{}
	}
	return &Losses{a.watch.Subscribe("")}
}

// C returns a token when something may be told.
func (l *Losses) C() <-chan struct{} {
	if l.sub == nil {
		return nil
	}
	return l.sub.C
}

// Take tells whether keys or sessions have gone since the last call.
func (l *Losses) Take() bool {
	if l.sub == nil {
		return false
	}
	c := l.sub.Take()
	return c.All || c.Keys
}

// Close ends it.
func (l *Losses) Close() {
	if l.sub != nil {
		l.sub.Close()
	}
}
