package objects

import "context"

// seenKey is the context key of the value that Seen stores.
type seenKey struct{}

// Seen returns a context for the reads of a request that has learned, since it began, that
// everything up to index was committed. A node that has applied index then need not ask the
// cluster again: its state includes everything acknowledged before the request. Index 0 has
// no effect.
func Seen(ctx context.Context, index uint64) context.Context {
	return context.WithValue(ctx, seenKey{}, index)
}

// SeenIndex returns the index of Seen, or 0.
func SeenIndex(ctx context.Context) uint64 {
	index, _ := ctx.Value(seenKey{}).(uint64)
	return index
}
