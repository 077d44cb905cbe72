package peer

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	golog "github.com/ipfs/go-log/v2"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/gologshim"
	"go.uber.org/zap/zapcore"
)

// LibraryLogs sends the errors that libp2p, the DHT and boxo log to h. Otherwise these
// libraries write to standard error in their own format. It changes the whole process: call
// it once, before a Peer is opened. Open sets the logger of gossip.
func LibraryLogs(h slog.Handler) {
	gologshim.SetDefaultHandler(errorsOnly{h})
	golog.SetPrimaryCore(zapErrors{h: h})
}

// errorsOnly passes only errors on, whatever the level of the log: lower levels of these
// libraries describe their internals.
type errorsOnly struct{ slog.Handler }

func (e errorsOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && e.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler. It drops the line about a closed listener: the swarm logs
// it as an error because libp2p's upgrader returns an error of its own for it.
func (e errorsOnly) Handle(ctx context.Context, r slog.Record) error {
	closed := false
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		closed = closed || ok && err.Error() == transport.ErrListenerClosed.Error()
		return !closed
	})
	if closed {
		return nil
	}
	return e.Handler.Handle(ctx, r)
}

func (e errorsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorsOnly{e.Handler.WithAttrs(attrs)}
}

func (e errorsOnly) WithGroup(name string) slog.Handler { return errorsOnly{e.Handler.WithGroup(name)} }

// zapErrors does the work of errorsOnly for libraries that log with zap.
type zapErrors struct {
	h      slog.Handler
	fields []zapcore.Field
}

func (z zapErrors) Enabled(level zapcore.Level) bool { return level >= zapcore.ErrorLevel }

func (z zapErrors) With(fields []zapcore.Field) zapcore.Core {
	return zapErrors{h: z.h, fields: slices.Concat(z.fields, fields)}
}

func (z zapErrors) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if z.Enabled(e.Level) && z.h.Enabled(context.Background(), slog.LevelError) {
		return ce.AddCore(e, z)
	}
	return ce
}

func (z zapErrors) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(z.fields, fields) {
		f.AddTo(values)
	}
	r := slog.NewRecord(e.Time, slog.LevelError, e.Message, 0)
	r.AddAttrs(slog.String("logger", e.LoggerName))
	for _, name := range slices.Sorted(maps.Keys(values.Fields)) {
		r.AddAttrs(slog.Any(name, values.Fields[name]))
	}
	return z.h.Handle(context.Background(), r)
}

func (z zapErrors) Sync() error { return nil }
