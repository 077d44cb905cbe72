package consensus

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger hands Raft's log lines to a slog.Logger.
func raftLogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(slogSink{log: log})
	return l
}

type slogSink struct{ log *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s slogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Error:
		to = slog.LevelError
	case hclog.Warn:
		to = slog.LevelWarn
	case hclog.Info:
		to = slog.LevelInfo
	}
	ctx := context.Background()
	if !s.log.Enabled(ctx, to) {
		return
	}
	attrs := make([]slog.Attr, 0, 1+len(args)/2)
	if name != "" {
		attrs = append(attrs, slog.String("part", name))
	}
	for i := 0; i+1 < len(args); i += 2 {
		attrs = append(attrs, slog.Any(fmt.Sprint(args[i]), plain(args[i+1])))
	}
	s.log.LogAttrs(ctx, to, "raft: "+msg, attrs...)
}

// plain turns what only hclog can print into text.
func plain(v any) any {
	if f, ok := v.(hclog.Format); ok && len(f) > 0 {
		return fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
	}
	return v
}
