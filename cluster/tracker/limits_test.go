package tracker

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Pauses double from DefaultBackoff up to DefaultMaxBackoff, less up to one half that differs between nodes.
func TestBackoffDoublesWithinItsBounds(t *testing.T) {
	l := Limits{}.withDefaults()
	for attempts, want := range map[int]time.Duration{
		1: DefaultBackoff, 2: 2 * DefaultBackoff, 3: 4 * DefaultBackoff, 5: DefaultMaxBackoff, 1000: DefaultMaxBackoff,
	} {
		got := l.backoff(self, key(1), attempts)
		if got < want/2 || got > want {
			t.Errorf("attempt %d: pause %s, want within %s and %s", attempts, got, want/2, want)
		}
	}
	if l.backoff(self, key(1), 1) == l.backoff(other, key(1), 1) {
		t.Error("two nodes pause for the same time")
	}
}

// A reason is cut at a whole character to state.MaxReasonLen bytes, and loses invalid UTF-8.
func TestReasonsFitTheState(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"short", "short"},
		{strings.Repeat("x", 2000), strings.Repeat("x", state.MaxReasonLen)},
		{strings.Repeat("x", state.MaxReasonLen-1) + "é", strings.Repeat("x", state.MaxReasonLen-1)},
		{"bad \xff byte", "bad  byte"},
	} {
		if got := clip(tc.in); got != tc.want {
			t.Errorf("%.20q...: %d bytes, want %d", tc.in, len(got), len(tc.want))
		}
	}
}
