package node

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// written is a log in memory: what was left out is written by another goroutine.
type written struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

func (w *written) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Reset()
}

// Of a log line that repeats, foldBurst lines are written, then one line per window with the number of the others.
// Another level and a line that was not there for long are written at once.
func TestLinesThatRepeatAreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out written
		log := foldLines(slog.New(slog.NewTextHandler(&out, nil)))
		count := func(text string) int { return strings.Count(out.String(), text) }
		for i := range 1325 { // as many as one dead node made in 14 s
			log.With("part", "put").Info("content is not on all its nodes yet", "root", i, "err", errors.New("refused"))
			pass(10 * time.Millisecond)
		}
		log.Warn("another line")
		log.Warn("content is not on all its nodes yet") // of another level
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
			log.Info("content is not on all its nodes yet")
			pass(foldWindow / 100)
		}
		if got := count("level=INFO"); got > foldBurst+4 {
			t.Errorf("%d lines", got)
		}
		pass(2 * foldWindow)
		out.Reset()
		log.Info("content is not on all its nodes yet")
		if count("level=INFO") != 1 {
			t.Error("a line is left out that has not been there for long")
		}
		pass(foldWindow)
	})
}

// Each of many members that die together is named in the log, and lines that were left out are written when the node
// ends.
func TestFoldedLinesNameEveryMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out written
		log := foldLines(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 2 * foldBurst {
			log.Warn("member does not answer", "node", fmt.Sprint("node-", i))
		}
		if n := strings.Count(out.String(), "\n"); n != 2*foldBurst {
			t.Errorf("%d members are named, of %d", n, 2*foldBurst)
		}
		for i := range 2 * foldBurst {
			log.Error("the disk fails", "block", i)
		}
		flush(log)
		flush(log)
		if want := fmt.Sprintf("block=%d repeated=%d\n", 2*foldBurst-1, foldBurst); strings.Count(out.String(), want) != 1 {
			t.Errorf("no %q once in\n%s", want, out.String())
		}
		pass(2 * foldWindow)
		synctest.Wait()
	})
}

// A node remembers at most foldKinds kinds of lines, writes all others, and forgets those that it has not seen for
// long.
func TestFoldedLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out written
		log := foldLines(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 2 * foldKinds {
			log.Info(fmt.Sprint("kind ", i))
		}
		if n := remembered(log); n != foldKinds || strings.Count(out.String(), "\n") != 2*foldKinds {
			t.Errorf("%d kinds are remembered, and %d of %d lines written", n, strings.Count(out.String(), "\n"), 2*foldKinds)
		}
		pass(2 * foldWindow)
		synctest.Wait()
		if n := remembered(log); n != 0 {
			t.Errorf("%d kinds are remembered that were not seen for long", n)
		}
	})
}

// With the level debug no log line is left out.
func TestNothingIsFoldedForWhoDebugs(t *testing.T) {
	log := slog.New(slog.NewTextHandler(new(bytes.Buffer), &slog.HandlerOptions{Level: slog.LevelDebug}))
	if foldLines(log) != log {
		t.Error("lines are left out")
	}
}

// remembered returns how many kinds of lines are told apart now.
func remembered(log *slog.Logger) int {
	l := log.Handler().(*folding).lines
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }
