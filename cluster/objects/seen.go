package objects

import "context"

// seenKey is the key of a context's value that Seen puts there.
type seenKey struct{}

// Seen returns a context for the reads of a request that has already learned,
// since it began, that everything up to index was committed. Then a node that
// has applied as much need not ask the cluster once more: what it holds misses
// nothing that was acknowledged before the request. Index 0 says nothing.
func Seen(ctx context.Context, index uint64) context.Context {
	return context.WithValue(ctx, seenKey{}, index)
}

// SeenIndex returns what Seen was told, or 0.
func SeenIndex(ctx context.Context) uint64 {
	index, _ := ctx.Value(seenKey{}).(uint64)
	return index
}
