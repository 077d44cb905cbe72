package admin

import (
	"context"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// fakeLog is an audit log that has one row for each query, which says what was asked for.
type fakeLog struct {
	err    error
	broken uint64
}

func (l *fakeLog) List(_ context.Context, q audit.Query) (audit.Page, error) {
	if l.err != nil {
		return audit.Page{}, l.err
	}
	return audit.Page{Next: 7, Rows: []state.AuditEntry{{
		Hash: state.AuditHash{1},
		AuditRow: state.AuditRow{
			Seq: 8, At: 1_700_000_000_123, Action: state.ActionSessionCreate, Target: "t", Detail: fmt.Sprintf("%+v", q), Refused: true, Count: 9,
			Actor: state.Actor{Kind: state.ActorKey, Account: "a1", Email: "ann@example.org", Key: "k1", Session: "s1", Addr: "192.0.2.7"},
		},
	}}}, nil
}

func (l *fakeLog) Verify(context.Context) (audit.Verification, error) {
	v := audit.Verification{First: 3, Last: 8, Count: 6, Head: state.AuditHash{2}}
	if l.broken > 0 {
		v.Broken, v.Count, v.Reason = l.broken, 4, "its hash does not follow from the row before"
	}
	return v, l.err
}
