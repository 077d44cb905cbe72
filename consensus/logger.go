package consensus

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Bounds of Raft's own log lines. It says the same of a member that is down
// several times a second.
const (
	// logQuiet is how long a line is not said again.
	logQuiet = 30 * time.Second
	// logKinds is how many different lines are told apart.
	logKinds = 256
)

// raftLogger hands Raft's log lines to a slog.Logger. What Raft finds worth
// telling about itself is debug here: who leads, and who is a member, this
// package says itself.
func raftLogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(&slogSink{log: log, said: map[string]*said{}})
	return l
}

type slogSink struct {
	log *slog.Logger

	// mu guards said: what was said lately, by message and member.
	mu   sync.Mutex
	said map[string]*said
}

type said struct {
	at    time.Time
	since int // how often it was not said since
}

// Accept implements hclog.SinkAdapter.
func (s *slogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Error:
		to = slog.LevelError
		if ofAnother(msg, args) {
			to = slog.LevelWarn
		}
	case hclog.Warn:
		to = slog.LevelWarn
	}
	ctx := context.Background()
	if !s.log.Enabled(ctx, to) {
		return
	}
	repeated := 0
	if to > slog.LevelDebug {
		var quiet bool
		if repeated, quiet = s.quiet(msg, args, time.Now()); quiet {
			return
		}
	}
	attrs := make([]slog.Attr, 0, 2+len(args)/2)
	if name != "" {
		attrs = append(attrs, slog.String("part", name))
	}
	for i := 0; i+1 < len(args); i += 2 {
		attrs = append(attrs, slog.Any(fmt.Sprint(args[i]), plain(args[i+1])))
	}
	if repeated > 0 {
		attrs = append(attrs, slog.Int("repeated", repeated))
	}
	s.log.LogAttrs(ctx, to, "raft: "+msg, attrs...)
}

// ofAnother tells errors of a connection to another member, as when that one is started
// again: nothing is wrong with this node.
func ofAnother(msg string, args []any) bool {
	switch msg {
	case "failed to decode incoming command", "failed to flush response": // which name nobody
		return true
	}
	for i := range args {
		if namesMember(args, i) {
			return true
		}
	}
	return false
}

// namesMember tells whether the argument at i is the key of a member.
func namesMember(args []any, i int) bool {
	return i%2 == 0 && i+1 < len(args) && (args[i] == "peer" || args[i] == "target")
}

// quiet tells whether a line was said lately, and how often it was kept quiet
// since it was said last.
func (s *slogSink) quiet(msg string, args []any, now time.Time) (repeated int, quiet bool) {
	kind := msg
	for i := range args {
		if namesMember(args, i) {
			kind += " " + fmt.Sprint(args[i+1])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.said[kind]
	if last != nil && now.Sub(last.at) < logQuiet {
		last.since++
		return 0, true
	}
	if last != nil {
		repeated = last.since
	} else if len(s.said) >= logKinds {
		clear(s.said)
	}
	s.said[kind] = &said{at: now}
	return repeated, false
}

// plain turns what only hclog can print into text.
func plain(v any) any {
	if f, ok := v.(hclog.Format); ok && len(f) > 0 {
		return fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
	}
	return v
}
