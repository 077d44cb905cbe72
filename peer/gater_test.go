package peer

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The node logs a peer that its cluster port refuses for a known reason, at most once every refusedEvery. The line
// counts the suppressed ones. A refusal without a known reason, and one of a peer that is a member by then, is not
// logged.
func TestRefusalsAreToldAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		why := ""
		var member atomic.Bool
		told := 0
		p := &Peer{ctx: t.Context(), log: slog.New(slog.NewTextHandler(&log, nil)), opts: Options{
			Refused: func(id string) string { return why }, Members: func(string) bool { return member.Load() },
			Told: func(addr, why string, refused int) {
				if told += refused; addr != "192.0.2.1" || why != "a used ticket" {
					t.Errorf("told of %q at %q", why, addr)
				}
			},
		}}
		lines := func() []string {
			<-time.After(refusedGrace)
			synctest.Wait()
			text := strings.TrimSpace(log.String())
			log.Reset()
			return strings.Split(text, "\n")
		}
		p.reportRefused("x", "/ip4/192.0.2.1/tcp/1")
		if got := lines(); got[0] != "" {
			t.Errorf("told of without a reason: %q", got)
		}
		why = "a used ticket"
		for range 1000 {
			p.reportRefused("x", "/ip4/192.0.2.1/tcp/1")
		}
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "level=WARN") || !strings.Contains(got[0], "/ip4/192.0.2.1/tcp/1") ||
			!strings.Contains(got[0], "a used ticket") || !strings.Contains(got[0], "suppressed=0") {
			t.Errorf("of a thousand: %q", got)
		}
		<-time.After(refusedEvery)
		p.reportRefused("x", "/ip4/192.0.2.1/tcp/1")
		member.Store(true)
		if got := lines(); got[0] != "" {
			t.Errorf("told of a member: %q", got)
		}
		member.Store(false)
		for _, suppressed := range []string{"suppressed=999", "suppressed=0"} { // at once: the member had no line
			p.reportRefused("x", "/ip4/192.0.2.1/tcp/1")
			if got := lines(); len(got) != 1 || !strings.Contains(got[0], suppressed) {
				t.Errorf("%v later: %q, want %s", refusedEvery, got, suppressed)
			}
			<-time.After(refusedEvery)
		}
		if told != 1002 { // without the member
			t.Errorf("told of %d", told)
		}
	})
}
