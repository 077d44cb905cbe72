package objects

import "context"

// seenKey is the context key under which Seen stores the index.
type seenKey struct{}

// Seen returns a context for the reads of a request. The caller has learned since the request
// began that all log entries up to index were committed. A node that has applied index can then
// read its local state without asking the cluster: that state includes everything that was
// acknowledged before the request. Index 0 has no effect.
func Seen(ctx context.Context, index uint64) context.Context {
	return context.WithValue(ctx, seenKey{}, index)
}

// SeenIndex returns the index that Seen has stored in ctx, or 0 without one.
func SeenIndex(ctx context.Context) uint64 {
	index, _ := ctx.Value(seenKey{}).(uint64)
	return index
}
