package node

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLinesThatRepeatAreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := foldLines(slog.New(slog.NewTextHandler(&out, nil)))
		count := func(text string) int { return strings.Count(out.String(), text) }
		for i := range 1325 { // as many as one dead node made in 14 s
			log.With("part", "put").Info("content not on all nodes yet", "root", i, "err", errors.New("refused"))
			pass(10 * time.Millisecond)
		}
		log.Warn("another line")
		log.Warn("content not on all nodes yet") // of another level
		if got := count("level=INFO"); got != foldBurst || count("level=WARN") != 2 {
			t.Errorf("%d lines of %d, %d warnings", got, foldBurst, count("level=WARN"))
		}
		pass(foldWindow)
		synctest.Wait()
		if want := fmt.Sprintf("root=1324 err=refused repeated=%d\n", 1325-foldBurst); count(want) != 1 || count("part=put") != foldBurst+1 {
			t.Errorf("no summary %q in\n%s", want, out.String())
		}
		// The storm goes on: one line for a window. When it has ended the line is as new.
		for range 300 {
			log.Info("content not on all nodes yet")
			pass(foldWindow / 100)
		}
		if got := count("level=INFO"); got > foldBurst+4 {
			t.Errorf("%d lines", got)
		}
		pass(2 * foldWindow)
		out.Reset()
		log.Info("content not on all nodes yet")
		if count("level=INFO") != 1 {
			t.Error("a line is left out that has not been there for long")
		}
		pass(foldWindow)
	})
}

func TestFoldedLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := foldLines(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 2 * foldKinds {
			log.Info(fmt.Sprint("kind ", i))
		}
		if n := len(log.Handler().(*folding).lines.seen); n != foldKinds || strings.Count(out.String(), "\n") != 2*foldKinds {
			t.Errorf("%d kinds are remembered, and %d of %d lines written", n, strings.Count(out.String(), "\n"), 2*foldKinds)
		}
		pass(2 * foldWindow)
		synctest.Wait()
		if n := len(log.Handler().(*folding).lines.seen); n != 0 {
			t.Errorf("%d kinds are remembered that were not seen for long", n)
		}
	})
}

func TestNothingIsFoldedForWhoDebugs(t *testing.T) {
	log := slog.New(slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: slog.LevelDebug}))
	if foldLines(log) != log {
		t.Error("lines are left out")
	}
}

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }
