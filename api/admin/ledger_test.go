package admin

import (
	"context"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// fakeLedger is the ledger of a fake.
type fakeLedger struct{ *fake }

func (f fakeLedger) Post(_ context.Context, who string, r credits.Request) (state.Posting, error) {
	f.called("post %s %+v", who, r)
	return state.Posting{ID: "g", Kind: r.Kind, Credits: 7, Takes: r.Credits < 0, Corrects: r.Corrects, Note: r.Note, Made: 8, Seq: 1, Balance: 9}, f.err
}

func (f fakeLedger) ContentEnds(state.AccountID) (time.Time, bool, error) {
	return time.Time{}, false, f.err
}

func (f fakeLedger) List(_ context.Context, who string, before uint64, limit int) (credits.Page, error) {
	f.called("ledger %s %d %d", who, before, limit)
	return credits.Page{Balance: 5, Next: 7, Rows: []state.Posting{
		{ID: "c", Kind: state.Correction, Credits: 1, Takes: true, Corrects: "g", Note: "n", Made: 9, Seq: 8, Balance: 5, By: state.Actor{Kind: state.ActorOperator}},
		{ID: "g", Kind: state.Grant, Credits: 6, Made: 8, Seq: 7, Balance: 6, By: state.Actor{Kind: state.ActorSession, Account: "a1", Email: "alice@example.org"}},
	}}, f.err
}
