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

// A line of Raft about a snapshot that another member does not take is a warning, and one about this node an error.
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

// Lines of Raft that every start and stop has are for debugging, and those of a disk that fails are warnings and
// errors. The first ones are what Raft says at WARN and ERROR while a healthy member starts, joins and stops.
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

// Each line of Raft about a member names that member, and no line is left out. The logger of the node folds lines
// that repeat, of each member apart.
func TestRaftsLinesNameTheMember(t *testing.T) {
	var out bytes.Buffer
	l := raftLogger(slog.New(slog.NewTextHandler(&out, nil)))
	for range 100 {
		l.Error("failed to install snapshot", "peer", raft.ServerID("b"))
		l.Error("failed to send snapshot to", "peer", raft.Server{ID: "c", Address: "c", Suffrage: raft.Voter})
		l.Error("failed to take snapshot", "error", "peer")
		l.Info("entering follower state")
	}
	for line, want := range map[string]int{
		`msg="raft: failed to install snapshot" node=b` + "\n": 100, `msg="raft: failed to send snapshot to" node=c` + "\n": 100,
		`msg="raft: failed to take snapshot" error=peer` + "\n": 100, "\n": 300,
	} {
		if got := strings.Count(out.String(), line); got != want {
			t.Errorf("%d lines with %q, want %d; the first are\n%.500s", got, line, want, out.String())
		}
	}
}
