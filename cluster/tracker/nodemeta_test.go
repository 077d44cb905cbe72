package tracker

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A record of attempts has the recorded bytes and is read from them; any cut, longer or unknown form is rejected.
// Records are on disks, so later releases can read them.
func TestAttemptsKeepTheirForm(t *testing.T) {
	n := attempts{born: 300, attempts: 2, due: time.UnixMilli(1_700_000_000_123), waited: 90 * time.Second, reached: 7, holder: true, seen: 4000}
	const golden = "02ac0202fbd095ffbc3190bf050701a01f"
	if got := hex.EncodeToString(n.encode()); got != golden {
		t.Fatalf("%s, want %s", got, golden)
	}
	b, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := decodeAttempts(b); !ok || got != n {
		t.Fatalf("%+v, %t", got, ok)
	}
	for cut := range len(b) {
		if _, ok := decodeAttempts(b[:cut]); ok {
			t.Fatalf("%d of its bytes are taken for a record", cut)
		}
	}
	for _, bad := range [][]byte{append(b, 0), append([]byte{1}, b[1:]...)} {
		if _, ok := decodeAttempts(bad); ok {
			t.Fatalf("%x is taken for a record", bad)
		}
	}
}

func FuzzAttempts(f *testing.F) {
	f.Add(attempts{born: 1, attempts: 1, due: time.UnixMilli(1)}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		n, ok := decodeAttempts(b)
		if !ok {
			return
		}
		if again, ok := decodeAttempts(n.encode()); !ok || again != n {
			t.Fatalf("%+v became %+v", n, again)
		}
	})
}

// Attempts and pauses of a root go on after restarts, and a pin after the failure has attempts of its own.
func TestAttemptsGoOnAfterARestart(t *testing.T) {
	bubble(t, Limits{Backoff: time.Minute, MaxBackoff: time.Hour, Attempts: 4}, func(w *world) {
		w.net.set(key(1), vanishes(2))
		id := w.pin(1)
		w.start()
		tries := func() int { return len(w.net.fetched(key(1))) }
		restart := func() {
			w.stop()
			w.start()
			w.pass(moment)
		}
		w.pass(moment)
		for _, want := range []int{1, 2, 3} { // pauses of 1, 2 and 4 minutes, or half of it
			restart()
			restart()
			if got := tries(); got != want {
				t.Fatalf("%d attempts, want %d: the pause did not outlive the process", got, want)
			}
			w.pass(time.Minute << (want - 1))
		}
		if s, _ := w.status(id); s != state.Failed || tries() != 4 {
			t.Fatalf("status %s after %d attempts", s, tries())
		}
		w.wantNothingHere(1)
		if n := len(w.nodeMeta.kept); n != 0 {
			t.Fatalf("%d records of attempts are left", n)
		}
		defer w.stop()
		w.net.set(key(1), absent)
		w.pin(1) // another incarnation has its own attempts
		w.pass(10 * time.Minute)
		if got := tries(); got != 8 {
			t.Fatalf("%d attempts in all, want 8", got)
		}
	})
}

// The time without a block adds up over restarts, so that content of which nothing comes fails.
func TestPatienceGoesOnAfterARestart(t *testing.T) {
	limits := Limits{Moving: 2, Waiting: 2, Attempts: 1, Patience: 2 * time.Minute}
	bubble(t, limits, func(w *world) {
		w.net.rest = silent
		for n := range 8 {
			w.pin(n)
		}
		for range 40 { // each too short for anybody's patience
			w.start()
			w.pass(time.Minute)
			w.stop()
		}
		if failed := w.totals()[state.Failed]; failed < 6 {
			t.Fatalf("%d of 8 failed", failed)
		}
	})
}

// The record of attempts of a pin that is deleted while the node is down is deleted at its start.
func TestMetadataOfUnwantedRootsIsDeleted(t *testing.T) {
	bubble(t, Limits{Audit: time.Minute}, func(w *world) {
		w.net.set(key(1), absent)
		id := w.pin(1)
		w.start()
		w.pass(moment)
		w.stop()
		if len(w.nodeMeta.kept) != 1 {
			t.Fatalf("%d records, want 1", len(w.nodeMeta.kept))
		}
		w.unpin(id)
		w.start()
		defer w.stop()
		w.pass(moment)
		if len(w.nodeMeta.kept) != 0 {
			t.Fatal("a record is left of what was deleted while the node was down")
		}
	})
}

// A record of an attempt in 30 years delays the fetch by DefaultMaxBackoff at most. The clock was wrong when the
// record was made.
func TestAPauseIsNeverLongerThanTheLongest(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.pin(1)
		w.nodeMeta.Set(string(key(1)), attempts{born: w.root(1).Born, seen: w.root(1).Born, attempts: 1, due: time.Now().AddDate(30, 0, 0)}.encode())
		w.start()
		defer w.stop()
		w.pass(moment)
		if len(w.net.fetched(key(1))) != 0 {
			t.Fatal("no pause at all")
		}
		w.pass(DefaultMaxBackoff)
		w.wantPhase(1, state.Held)
	})
}

// After a start, no record of attempts is left for a root whose content is complete on this node. Such a record remains
// if the process ended after it had sealed the content and before it had reported that, or while it repaired content
// that the state records as held.
func TestHeldRootsHaveNoMetadata(t *testing.T) {
	for name, phase := range map[string]state.Phase{"not reported yet": state.Assigned, "held": state.Held} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Limits{}, func(w *world) {
				w.pin(1)
				if phase == state.Held {
					w.says(self, 1, phase)
				}
				w.store.put(Reference(key(1)), owned{sealed: true, bytes: 100, blocks: 10})
				w.nodeMeta.Set(string(key(1)), attempts{born: w.root(1).Born, attempts: 3, due: time.Now()}.encode())
				w.start()
				defer w.stop()
				w.pass(moment)
				w.wantPhase(1, state.Held)
				if n := len(w.nodeMeta.kept); n != 0 {
					t.Errorf("%d records of attempts are left", n)
				}
			})
		})
	}
}
