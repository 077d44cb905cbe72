package tracker

import (
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

func report(n int, p state.Phase) state.CopyReport { return state.CopyReport{Root: key(n), Phase: p} }

// The outbox keeps the newest report of each root, also when older reports are given back.
func TestOutboxKeepsTheNewestReportOfARoot(t *testing.T) {
	o := newOutbox(0)
	o.put(report(1, state.Assigned))
	o.put(report(2, state.Assigned))
	newest := o.put(report(1, state.Held))
	sent := o.take()
	if len(sent) != 2 || sent[0].report.Phase != state.Held || sent[0].ticket != newest || sent[1].report.Root != key(2) {
		t.Fatalf("took %+v, want root 1 held, then root 2", sent)
	}
	// While those are on their way, one root moves on; then the way is barred.
	newest = o.put(report(2, state.Held))
	o.put(report(3, state.GaveUp))
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

// The report that a fetch has begun waits, and is not sent if the root is reported as held meanwhile.
func TestOutboxLetsTheBeginOfAFetchWait(t *testing.T) {
	const linger = time.Minute
	o := newOutbox(linger)
	begin := time.Now()
	o.put(report(1, state.Fetching))
	o.put(report(2, state.Fetching))
	o.put(report(3, state.Fetching))
	if len(o.begun) != 1 || len(o.some) != 0 {
		t.Fatal("the first that waits is not announced, or as if it could not wait")
	}
	o.put(report(2, state.Held))
	if got := o.take(); len(got) != 1 || got[0].report.Phase != state.Held {
		t.Fatalf("took %+v, want that root 2 is held alone", got)
	}
	if next, ok := o.ripen(begin); !ok || next < linger || len(o.take()) != 0 {
		t.Fatalf("ripe before its time; the next one in %s, %t", next, ok)
	}
	if next, ok := o.ripen(time.Now().Add(linger)); ok {
		t.Errorf("one more in %s, want none", next)
	}
	if len(o.some) == 0 {
		t.Error("what is ripe is not announced")
	}
	if got := o.take(); len(got) != 2 || got[0].report.Root != key(1) || got[1].report.Root != key(3) {
		t.Errorf("took %+v, want that roots 1 and 3 are fetched", got)
	}
}

// The report that a copy is lost is sent at once, although the copy is fetched again already.
func TestOutboxDoesNotLetALossWait(t *testing.T) {
	o := newOutbox(time.Hour)
	o.put(report(1, state.Assigned))
	o.put(report(1, state.Fetching))
	o.put(report(2, state.Assigned))
	sent := o.take()
	if len(sent) != 2 || sent[0].report.Phase != state.Fetching {
		t.Fatalf("took %+v, want the newest of roots 1 and 2", sent)
	}
	newest := o.put(report(2, state.Fetching)) // while the loss is on its way
	if got := o.take(); len(got) != 0 {
		t.Fatalf("took %+v, which can wait", got)
	}
	o.giveBack(sent)
	again := o.take()
	if len(again) != 2 || again[1].ticket != newest {
		t.Fatalf("took %+v, want the newest of root 2 at once, as its loss was not committed", again)
	}
	if next, ok := o.ripen(time.Now()); ok {
		t.Errorf("one more in %s, want none", next)
	}
}

// A command takes at most state.MaxReports reports, and the outbox announces the rest.
func TestOutboxFillsOneCommandAtATime(t *testing.T) {
	o := newOutbox(0)
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
