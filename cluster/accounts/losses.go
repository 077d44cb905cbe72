package accounts

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// Losses notifies its user when API keys or sessions may have been removed from the state of this
// node.
type Losses struct {
	sub *state.Subscription // nil means that nothing is reported
}

// Losses returns a Losses that reports removals from now on. The caller must call Close.
func (a *Accounts) Losses() *Losses {
	if a.watch == nil {
		return &Losses{}
	}
	return &Losses{a.watch.Subscribe("")}
}

// C returns a channel that receives a value when keys or sessions may have been removed. The
// caller must then call Take. The channel may be nil.
func (l *Losses) C() <-chan struct{} {
	if l.sub == nil {
		return nil
	}
	return l.sub.C
}

// Take returns whether keys or sessions may have been removed since the last call.
func (l *Losses) Take() bool {
	if l.sub == nil {
		return false
	}
	c := l.sub.Take()
	return c.All || c.Keys
}

// Close ends the subscription. C receives no values after it.
func (l *Losses) Close() {
	if l.sub != nil {
		l.sub.Close()
	}
}
