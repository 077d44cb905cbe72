package peer

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Who is refused at the cluster port is told of, a line every refusedEvery at the
// most, and not while it is not known why.
func TestRefusalsAreToldAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		why := ""
		p := &Peer{log: slog.New(slog.NewTextHandler(&log, nil)), opts: Options{Refused: func(id string) string { return why }}}
		lines := func() []string {
			text := strings.TrimSpace(log.String())
			log.Reset()
			return strings.Split(text, "\n")
		}
		p.tellRefused("x", "/ip4/192.0.2.1/tcp/1")
		if got := lines(); got[0] != "" {
			t.Errorf("told of without a reason: %q", got)
		}
		why = "a used ticket"
		for range 1000 {
			p.tellRefused("x", "/ip4/192.0.2.1/tcp/1")
		}
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "level=WARN") || !strings.Contains(got[0], "/ip4/192.0.2.1/tcp/1") ||
			!strings.Contains(got[0], "a used ticket") || !strings.Contains(got[0], "untold=0") {
			t.Errorf("of a thousand: %q", got)
		}
		for _, untold := range []string{"untold=999", "untold=0"} {
			<-time.After(refusedEvery)
			p.tellRefused("x", "/ip4/192.0.2.1/tcp/1")
			if got := lines(); len(got) != 1 || !strings.Contains(got[0], untold) {
				t.Errorf("%v later: %q, want %s", refusedEvery, got, untold)
			}
		}
	})
}
