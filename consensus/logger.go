package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// raftLogger returns a logger for Raft that writes to log. It lowers Raft's lines about its own
// role and members to level debug, because this package logs these events itself. The node's
// logger folds repeated lines, such as those about a member that is down.
func raftLogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(slogSink{log})
	return l
}

type slogSink struct{ log *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s slogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch {
	case level < hclog.Warn || ordinary(msg, args):
	case level == hclog.Warn || ofAnother(args):
		to = slog.LevelWarn
	default:
		to = slog.LevelError
	}
	ctx := context.Background()
	if !s.log.Enabled(ctx, to) {
		return
	}
	attrs := make([]slog.Attr, 0, 2+len(args)/2)
	if name != "" {
		attrs = append(attrs, slog.String("part", name))
	}
	for i := 0; i+1 < len(args); i += 2 {
		if namesMember(args, i) {
			attrs = append(attrs, slog.Any("node", memberOf(args[i+1])))
			continue
		}
		attrs = append(attrs, slog.Any(fmt.Sprint(args[i]), plain(args[i+1])))
	}
	s.log.LogAttrs(ctx, to, "raft: "+msg, attrs...)
}

// ordinary returns whether Raft logs the line as a warning or an error although it describes
// normal operation: starts, joins, elections and stops of members, such as matching logs,
// candidates, votes and ended streams. An operator cannot act on such a line. Members that stay
// down and a missing majority are logged by cluster/members.
func ordinary(msg string, args []any) bool {
	switch msg {
	case "heartbeat timeout reached, starting election",
		"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election",
		"Election timeout reached, restarting election",
		"no known peers, aborting election",
		"not part of stable configuration, aborting election",
		"new leader elected, stepping down",
		"duplicate requestVote from",
		"failed to make requestVote RPC",
		"peer has newer term, stopping replication":
		return true // elections
	case "appendEntries rejected, sending older logs", "previous log term mis-match", "clearing log suffix":
		return true // a follower's log is made to match
	case "failed to get previous log", "failed to get log": // about a follower without the entry, or one that gets a snapshot
		return slices.ContainsFunc(args, func(v any) bool {
			err, is := v.(error)
			return is && errors.Is(err, raft.ErrLogNotFound)
		})
	case "failed to contact", "failed to contact quorum of nodes, stepping down",
		"failed to appendEntries to", "failed to heartbeat to", "failed to pipeline appendEntries", "failed to start pipeline replication to",
		"failed to decode incoming command", "failed to flush response":
		return true // a member that ends, or is not there
	}
	return strings.HasPrefix(msg, "rejecting vote request") || strings.HasPrefix(msg, "rejecting pre-vote request")
}

// ofAnother returns whether the arguments of an error line name another member, for example the
// target of a snapshot. Such an error does not mean that this node has a fault.
func ofAnother(args []any) bool {
	for i := range args {
		if namesMember(args, i) {
			return true
		}
	}
	return false
}

// namesMember returns whether args[i] is a key whose value names a member.
func namesMember(args []any, i int) bool {
	return i%2 == 0 && i+1 < len(args) && (args[i] == "peer" || args[i] == "target")
}

// memberOf returns the id of the member in a value of a log line, which Raft logs in one of
// several types.
func memberOf(v any) any {
	if server, ok := v.(raft.Server); ok {
		return string(server.ID)
	}
	return plain(v)
}

// plain converts values of types that only hclog can print to text, and returns other values
// unchanged.
func plain(v any) any {
	if f, ok := v.(hclog.Format); ok && len(f) > 0 {
		return fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
	}
	return v
}
