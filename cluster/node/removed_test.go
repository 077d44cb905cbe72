package node

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The answer of the one live member is found within twice removalDial, although its address comes last, after many
// that do not answer and one of another cluster.
func TestWhoAnswersIsNotWaitedForBehindWhoDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var addrs []string
		for i := range 2 * removalAskers {
			addrs = append(addrs, fmt.Sprintf("dead %d", i))
		}
		addrs = append(addrs, "other", "alive")
		began := time.Now()
		ask := func(ctx context.Context, addr string) (string, bool) {
			switch addr {
			case "alive":
				return "yes", true
			case "other":
				return "of another cluster", false
			}
			ctx, cancel := context.WithTimeout(ctx, removalDial)
			defer cancel()
			<-ctx.Done()
			return "", false
		}
		if at, answer := firstAnswer(t.Context(), addrs, ask); at != "alive" || answer != "yes" {
			t.Errorf("%q from %q", answer, at)
		}
		if took := time.Since(began); took > 2*removalDial {
			t.Errorf("it took %s", took)
		}
		if at, _ := firstAnswer(t.Context(), addrs[:len(addrs)-1], ask); at != "" {
			t.Errorf("answered from %q", at)
		}
	})
}
