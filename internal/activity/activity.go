// Package activity keeps the newest log records of a process in memory, so that a page can show
// what the node has seen lately.
//
// Imports: std.
// Never:   the network, files.
package activity

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
)

// Bounds of a Log. Together they are less than 4 MiB.
const (
	maxRecords = 500
	maxAttrs   = 16
	maxText    = 400 // bytes of a message, and of a value
)

// Record is one log record.
type Record struct {
	Time    time.Time
	Level   slog.Level
	Message string
	Attrs   []Attr
}

// Attr is an attribute of a record as text.
type Attr struct{ Key, Value string }

// Log keeps the newest records of level Info and above.
type Log struct {
	mu      sync.Mutex // guards what follows
	records []Record   // a ring of maxRecords
	next    int        // index of the oldest record, which the next one replaces
}

// Newest returns the records, the newest first. A nil Log has none.
func (l *Log) Newest() []Record {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Concat(l.records[l.next:], l.records[:l.next])
	slices.Reverse(all)
	return all
}

func (l *Log) add(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.records) < maxRecords {
		l.records = append(l.records, r)
		return
	}
	l.records[l.next] = r
	l.next = (l.next + 1) % maxRecords
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
		kept := Record{Time: r.Time, Level: r.Level, Message: cut(r.Message), Attrs: slices.Clone(h.attrs)}
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
