package consensus

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestWhatAnotherMemberDoesIsNoErrorHere(t *testing.T) {
	var out bytes.Buffer
	l := raftLogger(slog.New(slog.NewTextHandler(&out, nil)))
	l.Error("failed to heartbeat to", "backoff time", time.Second, "peer", "b")
	l.Error("failed to make requestVote RPC", "target", "b")
	l.Error("failed to decode incoming command", "error", "stream reset")
	if got := strings.Count(out.String(), "level=WARN"); got != 3 || strings.Contains(out.String(), "level=ERROR") {
		t.Errorf("%d warnings in\n%s", got, out.String())
	}
	l.Error("failed to commit logs", "error", "peer")
	if got := strings.Count(out.String(), "level=ERROR"); got != 1 {
		t.Errorf("%d errors of its own in\n%s", got, out.String())
	}
}

func TestRaftSaysTheSameOnlyNowAndThen(t *testing.T) {
	var out bytes.Buffer
	l := raftLogger(slog.New(slog.NewTextHandler(&out, nil)))
	for range 100 {
		l.Error("failed to heartbeat to", "peer", "b")
		l.Error("failed to heartbeat to", "peer", "c")
		l.Info("entering follower state")
	}
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Errorf("%d lines, want one for each member:\n%s", got, out.String())
	}

	s := &slogSink{said: map[string]*said{}}
	begin := time.Unix(1, 0)
	for _, tc := range []struct {
		after    time.Duration
		repeated int
		quiet    bool
	}{{0, 0, false}, {time.Second, 0, true}, {logQuiet - 1, 0, true}, {logQuiet, 2, false}, {2 * logQuiet, 0, false}} {
		repeated, quiet := s.quiet("m", nil, begin.Add(tc.after))
		if repeated != tc.repeated || quiet != tc.quiet {
			t.Errorf("after %v: repeated %d, quiet %t; want %d, %t", tc.after, repeated, quiet, tc.repeated, tc.quiet)
		}
	}
	for i := range 2 * logKinds {
		s.quiet(strings.Repeat("x", i), nil, begin)
	}
	if len(s.said) > logKinds {
		t.Errorf("%d lines are remembered", len(s.said))
	}
}
