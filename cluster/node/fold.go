package node

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Limits for repeated log lines. Without them, a member that is down causes a line for every put,
// and a damaged disk a line for every block.
const (
	// foldBurst is how many lines of one kind (level, message and member) are written in a
	// window.
	foldBurst = 5
	// foldWindow is the length of a window. At its end one more line contains the number of lines
	// that were left out.
	foldWindow = 30 * time.Second
	// foldKinds is the largest number of kinds that are counted at a time. All lines of further
	// kinds are written.
	foldKinds = 256
)

// foldLines returns a logger that leaves out repeated lines. Lines with the same level, message
// and member are of one kind. In each window, the logger writes only the first lines of a kind.
// At the end of the window it writes the newest of the other lines, with their number in the
// attribute "repeated". If log writes debug lines, foldLines returns log itself.
func foldLines(log *slog.Logger) *slog.Logger {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		return log
	}
	return slog.New(&folding{log.Handler(), &lines{seen: map[line]*repeats{}}})
}

// folding is a log handler that leaves out repeated lines. The handlers that WithAttrs and
// WithGroup return share the field lines.
type folding struct {
	slog.Handler
	lines *lines
}

// lines counts the lines of each kind in its current window.
type lines struct {
	// mu guards seen and its values. It is not held during calls of other code.
	mu   sync.Mutex
	seen map[line]*repeats
}

type line struct {
	level   slog.Level
	message string
	node    string // member that the line is about, because each member is counted separately
}

// lineOf returns the kind of a record.
func lineOf(r *slog.Record) line {
	kind := line{level: r.Level, message: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "node" {
			kind.node = a.Value.String()
		}
		return kind.node == ""
	})
	return kind
}

type repeats struct {
	written int
	left    int         // number of lines left out since the window began
	newest  slog.Record // newest of these lines
	to      slog.Handler
}

// Handle implements slog.Handler.
func (f *folding) Handle(ctx context.Context, r slog.Record) error {
	if f.lines.leaveOut(f.Handler, &r) {
		return nil
	}
	return f.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (f *folding) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &folding{f.Handler.WithAttrs(attrs), f.lines}
}

// WithGroup implements slog.Handler.
func (f *folding) WithGroup(name string) slog.Handler {
	return &folding{f.Handler.WithGroup(name), f.lines}
}

// leaveOut counts a line and returns whether to leave it out. to is the handler that writes the
// summary at the end of the window.
func (l *lines) leaveOut(to slog.Handler, r *slog.Record) bool {
	kind := lineOf(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen[kind]
	if seen == nil {
		if len(l.seen) < foldKinds {
			l.seen[kind] = &repeats{written: 1}
			time.AfterFunc(foldWindow, func() { l.close(kind) })
		}
		return false
	}
	if seen.written < foldBurst {
		seen.written++
		return false
	}
	seen.left++
	seen.newest, seen.to = r.Clone(), to
	return true
}

// close ends the window of a kind. If lines were left out, it logs their number and another
// window begins, in which no line of this kind is written until the summary at its end.
func (l *lines) close(kind line) {
	l.mu.Lock()
	seen := l.seen[kind]
	if seen.left == 0 {
		delete(l.seen, kind)
		l.mu.Unlock()
		return
	}
	summary := seen.summary()
	time.AfterFunc(foldWindow, func() { l.close(kind) })
	l.mu.Unlock()
	summary()
}

// summary resets the count of lines that were left out, and returns a function that logs it. The
// caller must hold lines.mu during summary, but not while it calls the function.
func (r *repeats) summary() (write func()) {
	newest, to, left := r.newest, r.to, r.left
	r.left, r.to, r.newest = 0, nil, slog.Record{}
	return func() {
		newest.Time = time.Now() // lines are in the order of their times
		newest.AddAttrs(slog.Int("repeated", left))
		_ = to.Handle(context.Background(), newest) // as loggers do
	}
}

// flush logs at once the summaries of the lines that a logger of foldLines has left out. A node
// calls it when it closes, because nobody waits for the end of the window.
func flush(log *slog.Logger) {
	f, ok := log.Handler().(*folding)
	if !ok {
		return
	}
	var all []func()
	f.lines.mu.Lock()
	for _, seen := range f.lines.seen {
		if seen.left > 0 {
			all = append(all, seen.summary())
		}
	}
	f.lines.mu.Unlock()
	for _, write := range all {
		write()
	}
}
