package accounts

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// Losses reports to a caller that keys and sessions have disappeared from the state of this node.
type Losses struct {
	sub *state.Subscription // nil means that nothing is reported
}

// Losses starts to report that keys or sessions may have disappeared from the state of this node. The caller
// ends the reports by Close.
func (a *Accounts) Losses() *Losses {
	if a.watch == nil {
		return &Losses{}
	}
	return &Losses{a.watch.Subscribe("")}
}

// C returns a channel that receives a value when keys or sessions may have disappeared. Call Take then.
func (l *Losses) C() <-chan struct{} {
	if l.sub == nil {
		return nil
	}
	return l.sub.C
}

// Take returns whether keys or sessions have disappeared since the last call.
func (l *Losses) Take() bool {
	if l.sub == nil {
		return false
	}
	c := l.sub.Take()
	return c.All || c.Keys
}

// Close ends the reports.
func (l *Losses) Close() {
	if l.sub != nil {
		l.sub.Close()
	}
}
