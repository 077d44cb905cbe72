// Package activity keeps the newest log records of a process in memory, so that a page can show
// what the node has seen lately.
//
// Imports: std.
// Never:   the network, files.
package activity

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
)

// Bounds of a Log. Together they are less than 8 MiB.
const (
	maxRecords = 500 // of all kinds
	maxOfKind  = 100 // of each kind, also if newer records of other kinds are many
	maxAttrs   = 16
	maxText    = 400 // bytes of a message, and of a value
)

// Record is one log record.
type Record struct {
	Time    time.Time
	Level   slog.Level
	Message string
	Kind    Kind
	Attrs   []Attr

	number uint64 // greater than that of each older record
}

// Attr is an attribute of a record as text.
type Attr struct{ Key, Value string }

// Log keeps the newest records of level Info and above, and the newest of each kind.
type Log struct {
	mu     sync.Mutex // guards what follows
	number uint64     // of the newest record
	all    ring
	kinds  map[Kind]*ring
}

// ring has the newest records of one kind or of all kinds.
type ring struct {
	records []Record
	next    int // index of the oldest record, which the next one replaces
}

func (r *ring) add(one Record, most int) {
	if len(r.records) < most {
		r.records = append(r.records, one)
		return
	}
	r.records[r.next] = one
	r.next = (r.next + 1) % most
}

// Newest returns the records of some kinds, or without a kind those of all subjects. The newest is
// the first. A nil Log has none.
func (l *Log) Newest(kinds ...Kind) []Record {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(kinds) == 0 {
		all := slices.Concat(l.all.records[l.all.next:], l.all.records[:l.all.next])
		slices.Reverse(all)
		return all
	}
	var some []Record
	for kind, of := range l.kinds {
		if slices.Contains(kinds, kind) {
			some = append(some, of.records...)
		}
	}
	slices.SortFunc(some, func(a, b Record) int { return cmp.Compare(b.number, a.number) })
	return some
}

func (l *Log) add(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	r.number = l.number
	l.all.add(r, maxRecords)
	if r.Kind == "" {
		return
	}
	if l.kinds == nil {
		l.kinds = map[Kind]*ring{}
	}
	if l.kinds[r.Kind] == nil {
		l.kinds[r.Kind] = &ring{}
	}
	l.kinds[r.Kind].add(r, maxOfKind)
}

// Handler returns a handler that passes records on to h, as far as h is enabled for them, and
// keeps those of level Info and above.
func (l *Log) Handler(h slog.Handler) slog.Handler { return &handler{next: h, log: l} }

type handler struct {
	next   slog.Handler
	log    *Log
	attrs  []Attr
	prefix string // of the groups that are open, with a dot behind each
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		kept := Record{Time: r.Time, Level: r.Level, Message: cut(r.Message), Kind: kindOf(r.Message), Attrs: slices.Clone(h.attrs)}
		r.Attrs(func(a slog.Attr) bool {
			kept.Attrs = appendAttr(kept.Attrs, h.prefix, a)
			return len(kept.Attrs) < maxAttrs
		})
		h.log.add(kept)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.next, with.attrs = h.next.WithAttrs(attrs), slices.Clone(h.attrs)
	for _, a := range attrs {
		with.attrs = appendAttr(with.attrs, h.prefix, a)
	}
	return &with
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.next, with.prefix = h.next.WithGroup(name), h.prefix+name+"."
	return &with
}

// appendAttr appends an attribute, or those of a group.
func appendAttr(attrs []Attr, prefix string, a slog.Attr) []Attr {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, of := range value.Group() {
			attrs = appendAttr(attrs, prefix, of)
		}
		return attrs
	}
	if a.Equal(slog.Attr{}) || len(attrs) >= maxAttrs {
		return attrs
	}
	return append(attrs, Attr{prefix + a.Key, cut(value.String())})
}

// cut bounds a text.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	at := maxText
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return text[:at] + "…"
}
