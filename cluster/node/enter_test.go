package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A joining node whose connection is cut says what may be wrong with its ticket or its secret, and nothing that
// cannot be. The member that cuts it does not say why.
func TestAJoinerSaysWhatToLookAt(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) state.Millis { return state.MillisOf(now.Add(d)) }
	for _, tc := range []struct {
		name    string
		targets []target
		says    []string
		not     string
		expired int // lines at once
	}{
		{"a secret", []target{{addr: "a", secret: []byte{1}}}, []string{"secret", "cluster.secret"}, "ticket", 0},
		{"a ticket that does not tell", []target{{ticket: true}}, []string{"used", "expired", "another cluster", "holdfast token"}, "secret", 0},
		{"a ticket that is good", []target{{ticket: true, expires: at(time.Hour)}}, []string{"may have been used"}, "has expired", 0},
		{"one that ended while clocks may differ", []target{{ticket: true, expires: at(-time.Second)}}, []string{"has expired at 2026-05-04T11:59:59Z"}, "used", 0},
		{"one that ended long ago, two addresses", []target{{ticket: true, expires: at(-time.Hour)}, {ticket: true, expires: at(-time.Hour)}}, []string{"has expired at 2026-05-04T11:00:00Z"}, "used", 1},
		{"both ways", []target{{ticket: true}, {addr: "a", secret: []byte{1}}}, []string{"ticket", "secret"}, "has expired", 0},
		{"a ticket, and an address that is only asked", []target{{ticket: true}, {addr: "a"}}, []string{"ticket"}, "secret", 0},
	} {
		var log bytes.Buffer
		n := &Node{opts: Options{Now: func() time.Time { return now }}, logger: slog.New(slog.NewTextHandler(&log, nil))}
		got := n.whyCut(tc.targets)
		for _, part := range tc.says {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q does not say %q", tc.name, got, part)
			}
		}
		if strings.Contains(got, tc.not) {
			t.Errorf("%s: %q says %q", tc.name, got, tc.not)
		}
		n.tellExpired(t.Context(), tc.targets)
		if lines := strings.Count(log.String(), "the ticket has expired"); lines != tc.expired {
			t.Errorf("%s: told %d times that the ticket has expired: %s", tc.name, lines, log.String())
		}
	}
}
