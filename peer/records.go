package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/query"
)

// Bounds of the DHT records that this node stores for other peers.
const (
	maxRecords     = 100_000
	maxRecordBytes = 16 << 10 // bytes of one record; an IPNS record has at most 10 KiB
	maxRecordsSize = 64 << 20 // bytes of all records, keys and values together

	// recordLevels is the maximum number of parts of a key: a provider record is
	// /providers/HASH/PEER.
	recordLevels = 3
)

var (
	errRecordsFull = errors.New("as many records of the DHT as this node keeps")
	errRecordKey   = errors.New("a key that no record of the DHT has")
)

// records is the part of the main datastore for the DHT. Any peer can write to it, so it
// enforces the bounds above.
type records struct {
	datastore.Batching

	// mu guards the fields below and is held during each change.
	mu    sync.Mutex
	count int
	bytes int // size of all keys and values
}

// newRecords counts the records that store already has.
func newRecords(ctx context.Context, store datastore.Batching) (*records, error) {
	r := &records{Batching: store}
	for e, err := range datastore.QueryIter(ctx, store, query.Query{KeysOnly: true, ReturnsSizes: true}) {
		if err != nil {
			return nil, fmt.Errorf("records of the DHT: %w", err)
		}
		r.count++
		r.bytes += len(e.Key) + e.Size
	}
	return r, nil
}

// size returns the size of a record in bytes, 0 if there is none. A record is never empty,
// because it has a key.
func (r *records) size(ctx context.Context, key datastore.Key) (int, error) {
	n, err := r.GetSize(ctx, key)
	if errors.Is(err, datastore.ErrNotFound) {
		return 0, nil
	}
	return len(key.String()) + n, err
}

// Put implements datastore.Write.
func (r *records) Put(ctx context.Context, key datastore.Key, value []byte) error {
	if len(key.List()) > recordLevels {
		return errRecordKey
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old, err := r.size(ctx, key)
	if err != nil {
		return err
	}
	size, count := r.bytes-old+len(key.String())+len(value), r.count
	if old == 0 {
		count++
	}
	if len(value) > maxRecordBytes || count > maxRecords || size > maxRecordsSize {
		return errRecordsFull
	}
	if err := r.Batching.Put(ctx, key, value); err != nil {
		return err
	}
	r.count, r.bytes = count, size
	return nil
}

// Delete implements datastore.Write.
func (r *records) Delete(ctx context.Context, key datastore.Key) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, err := r.size(ctx, key)
	if err != nil {
		return err
	}
	if err := r.Batching.Delete(ctx, key); err != nil {
		return err
	}
	if old > 0 {
		r.count--
		r.bytes -= old
	}
	return nil
}

// Batch implements datastore.Batching. The batch leaves out records that do not fit, so
// that the others are stored.
func (r *records) Batch(context.Context) (datastore.Batch, error) {
	return &recordsBatch{records: r, puts: make(map[datastore.Key][]byte)}, nil
}

// recordsBatch collects writes until Commit.
type recordsBatch struct {
	records *records
	puts    map[datastore.Key][]byte // values by key; a nil value deletes the key
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
