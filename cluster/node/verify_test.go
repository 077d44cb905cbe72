package node

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// onDisk is the part of consensus that reads of the audit log use, over a store on disk.
type onDisk struct {
	audit.State
	*log
}

func (o onDisk) View(context.Context) (state.View, func(), error) {
	view := o.store.View()
	return state.NewView(view, o.index), view.Close, nil
}

// BenchmarkVerifyAudit is what one verification of the longest audit log costs a node.
func BenchmarkVerifyAudit(b *testing.B) {
	s := openState(b)
	l := &log{b: b, store: ordered{s}}
	l.found()
	l.entry(&state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	by := state.Actor{Kind: state.ActorSession, Account: "operator", Email: "somebody@example.org", Session: "0123456789abcdef", Addr: "192.0.2.7"}
	changes := make([]state.Command, 64)
	for row := 0; row <= state.MaxAuditRows; row += len(changes) {
		for i := range changes {
			changes[i] = &state.Audited{By: by, At: state.Millis(1_800_000_000_000 + row), Change: &state.SetQuota{Account: "operator", Allowance: uint64(row+i) + 1<<30}}
		}
		l.entry(changes...)
	}
	verifier := audit.New(audit.Options{State: onDisk{log: l}, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	b.ResetTimer()
	for range b.N {
		if v, err := verifier.Verify(b.Context()); err != nil || v.Broken != 0 || v.Count != state.MaxAuditRows {
			b.Fatalf("%+v, %v", v, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/verification")
}
