package node

import (
	"context"
	"sync"
)

// fences is the epoch of this node.
type fences struct {
	mu    sync.Mutex
	epoch uint64
}

// Epoch implements ingest.Fences.
func (f *fences) Epoch(context.Context) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, nil
}

// Raise implements ingest.Fences.
func (f *fences) Raise(_ context.Context, epoch uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch = epoch
	return nil
}
