package peer

import (
	"context"
	"errors"
	"sync"

	"github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
)

// Bounds of what this node keeps for others as a part of the DHT.
const (
	maxRecords     = 100_000
	maxRecordBytes = 16 << 10 // of one; an IPNS record has 10 KiB at most
	maxRecordsSize = 64 << 20 // of all, keys and values
)

var errRecordsFull = errors.New("as many records of the DHT as this node keeps")

// records is the datastore of the DHT, in memory. Whoever knows the protocol
// may write to it, so it takes no more than its bounds.
type records struct {
	datastore.Batching

	// mu guards what follows.
	mu    sync.Mutex
	sizes map[datastore.Key]int
	bytes int
}

func newRecords() *records {
	return &records{
		Batching: dssync.MutexWrap(datastore.NewMapDatastore()),
		sizes:    make(map[datastore.Key]int),
	}
}

// Put implements datastore.Write.
func (r *records) Put(ctx context.Context, key datastore.Key, value []byte) error {
	size := len(key.String()) + len(value)
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.sizes[key]
	if len(value) > maxRecordBytes || (!known && len(r.sizes) >= maxRecords) || r.bytes-old+size > maxRecordsSize {
		return errRecordsFull
	}
	if err := r.Batching.Put(ctx, key, value); err != nil {
		return err
	}
	r.bytes += size - old
	r.sizes[key] = size
	return nil
}

// Delete implements datastore.Write.
func (r *records) Delete(ctx context.Context, key datastore.Key) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes -= r.sizes[key]
	delete(r.sizes, key)
	return r.Batching.Delete(ctx, key)
}

// Batch implements datastore.Batching. What finds no room is left out, so that
// the rest is kept.
func (r *records) Batch(context.Context) (datastore.Batch, error) {
	return &recordsBatch{records: r, puts: make(map[datastore.Key][]byte)}, nil
}

// recordsBatch gathers writes until Commit.
type recordsBatch struct {
	records *records
	puts    map[datastore.Key][]byte // nil deletes
}

// Put implements datastore.Write.
func (b *recordsBatch) Put(_ context.Context, key datastore.Key, value []byte) error {
	b.puts[key] = append([]byte{}, value...)
	return nil
}

// Delete implements datastore.Write.
func (b *recordsBatch) Delete(_ context.Context, key datastore.Key) error {
	b.puts[key] = nil
	return nil
}

// Commit implements datastore.Batch.
func (b *recordsBatch) Commit(ctx context.Context) error {
	for key, value := range b.puts {
		var err error
		if value == nil {
			err = b.records.Delete(ctx, key)
		} else {
			err = b.records.Put(ctx, key, value)
		}
		if err != nil && !errors.Is(err, errRecordsFull) {
			return err
		}
	}
	clear(b.puts)
	return nil
}
