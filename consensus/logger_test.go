package consensus

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestWhatAnotherMemberDoesIsNoErrorHere(t *testing.T) {
	var out bytes.Buffer
	l := raftLogger(slog.New(slog.NewTextHandler(&out, nil)))
	l.Error("failed to install snapshot", "peer", "b", "error", "stream reset")
	if got := strings.Count(out.String(), "level=WARN"); got != 1 || strings.Contains(out.String(), "level=ERROR") {
		t.Errorf("%d warnings in\n%s", got, out.String())
	}
	l.Error("failed to commit logs", "error", "peer")
	if got := strings.Count(out.String(), "level=ERROR"); got != 1 {
		t.Errorf("%d errors of its own in\n%s", got, out.String())
	}
}

// TestWhatEveryStartAndStopHasIsNoWarning has Raft say what it says at WARN and ERROR while a
// healthy member starts, joins and stops, and the same of a disk that fails.
func TestWhatEveryStartAndStopHasIsNoWarning(t *testing.T) {
	var out bytes.Buffer
	l := raftLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	l.Warn("heartbeat timeout reached, starting election", "last-leader-addr", "", "last-leader-id", "")
	l.Warn("Election timeout reached, restarting election")
	l.Warn("failed to get previous log", "previous-index", 8, "last-index", 0, "error", raft.ErrLogNotFound)
	l.Warn("appendEntries rejected, sending older logs", "peer", "b", "next", 1)
	l.Warn("rejecting pre-vote request since we have a leader", "from", "b", "leader", "a")
	l.Warn("failed to contact", "server-id", "b", "time", time.Second)
	l.Error("failed to appendEntries to", "peer", "b", "error", "connection refused")
	l.Error("failed to heartbeat to", "peer", "b", "backoff time", time.Second)
	l.Error("failed to pipeline appendEntries", "peer", "b", "error", "EOF")
	l.Error("failed to make requestVote RPC", "target", "b", "error", "connection refused")
	l.Error("failed to decode incoming command", "error", "stream reset")
	l.Error("failed to flush response", "error", "stream reset")
	if all, loud := strings.Count(out.String(), "\n"), strings.Count(out.String(), "level=DEBUG"); all != 12 || loud != 12 {
		t.Errorf("%d of %d lines are for debugging:\n%s", loud, all, out.String())
	}
	out.Reset()
	l.Warn("failed to get previous log", "previous-index", 8, "last-index", 9, "error", errors.New("input/output error"))
	l.Error("failed to get log", "index", 8, "error", errors.New("input/output error"))
	l.Warn("a line that no release had")
	if warnings, failures := strings.Count(out.String(), "level=WARN"), strings.Count(out.String(), "level=ERROR"); warnings != 2 || failures != 1 {
		t.Errorf("%d warnings and %d errors in\n%s", warnings, failures, out.String())
	}
}

func TestRaftSaysTheSameOnlyNowAndThen(t *testing.T) {
	var out bytes.Buffer
	l := raftLogger(slog.New(slog.NewTextHandler(&out, nil)))
	for range 100 {
		l.Error("failed to install snapshot", "peer", "b")
		l.Error("failed to install snapshot", "peer", "c")
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
