package tracker

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

func TestOutboxKeepsTheNewestReportOfARoot(t *testing.T) {
	report := func(n int, p state.Phase) state.CopyReport { return state.CopyReport{Root: key(n), Phase: p} }
	o := newOutbox()
	o.put(report(1, state.Fetching))
	o.put(report(2, state.Fetching))
	newest := o.put(report(1, state.Held))
	sent := o.take()
	if len(sent) != 2 || sent[0].report.Phase != state.Held || sent[0].ticket != newest || sent[1].report.Root != key(2) {
		t.Fatalf("took %+v, want root 1 held, then root 2", sent)
	}
	// While those are on their way, one root moves on; then the way is barred.
	newest = o.put(report(2, state.Held))
	o.put(report(3, state.Fetching))
	o.giveBack(sent)
	again := o.take()
	if len(again) != 3 || again[0].report != sent[0].report {
		t.Fatalf("took %+v, want what came back first", again)
	}
	for _, a := range again {
		if a.report.Root == key(2) && (a.report.Phase != state.Held || a.ticket != newest) {
			t.Fatalf("older news of root 2 took the place of newer: %+v", a)
		}
	}
	if rest := o.take(); len(rest) != 0 {
		t.Fatalf("%+v was left", rest)
	}
}

func TestOutboxFillsOneCommandAtATime(t *testing.T) {
	o := newOutbox()
	for n := range state.MaxReports + 1 {
		o.put(state.CopyReport{Root: key(n), Phase: state.Held})
	}
	if len(o.full) == 0 {
		t.Error("a full command is not announced")
	}
	if n := len(o.take()); n != state.MaxReports {
		t.Errorf("%d reports in a command", n)
	}
	if len(o.some) == 0 {
		t.Error("the rest is not announced")
	}
	if n := len(o.take()); n != 1 {
		t.Errorf("%d reports were left", n)
	}
}
