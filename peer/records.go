package peer

import (
	"context"
	"errors"
	"sync"

	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/query"
	dssync "github.com/ipfs/go-datastore/sync"
)

// Bounds of what this node keeps for others as a part of the DHT.
const (
	maxRecords     = 100_000
	maxRecordBytes = 16 << 10 // of one; an IPNS record has 10 KiB at most
	maxRecordsSize = 64 << 20 // of all, keys and values

	// recordLevels is how many parts a key has at the most: those of the providers of
	// a hash are /providers/HASH/PEER.
	recordLevels = 3
)

var (
	errRecordsFull = errors.New("as many records of the DHT as this node keeps")
	errRecordKey   = errors.New("a key that no record of the DHT has")
)

// records is the datastore of the DHT, in memory. Whoever knows the protocol
// may write to it, so it takes no more than its bounds.
type records struct {
	datastore.Batching

	// mu guards what follows.
	mu    sync.Mutex
	sizes map[datastore.Key]map[datastore.Key]int // of records, by what their keys lie under
	count int
	bytes int
}

func newRecords() *records {
	return &records{
		Batching: dssync.MutexWrap(datastore.NewMapDatastore()),
		sizes:    make(map[datastore.Key]map[datastore.Key]int),
	}
}

// Put implements datastore.Write.
func (r *records) Put(ctx context.Context, key datastore.Key, value []byte) error {
	size, at := len(key.String())+len(value), key.Parent()
	if len(key.List()) > recordLevels {
		return errRecordKey
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.sizes[at][key]
	if len(value) > maxRecordBytes || (!known && r.count >= maxRecords) || r.bytes-old+size > maxRecordsSize {
		return errRecordsFull
	}
	if err := r.Batching.Put(ctx, key, value); err != nil {
		return err
	}
	if r.sizes[at] == nil {
		r.sizes[at] = make(map[datastore.Key]int)
	}
	if !known {
		r.count++
	}
	r.bytes += size - old
	r.sizes[at][key] = size
	return nil
}

// Delete implements datastore.Write.
func (r *records) Delete(ctx context.Context, key datastore.Key) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := key.Parent()
	if size, known := r.sizes[at][key]; known {
		r.count--
		r.bytes -= size
		if delete(r.sizes[at], key); len(r.sizes[at]) == 0 {
			delete(r.sizes, at)
		}
	}
	return r.Batching.Delete(ctx, key)
}

// Query implements datastore.Read. Unknown peers ask for the providers of any hash they like,
// most of which has none: that looks at those of this hash, where the map below would be
// gone through, and copied, with every question.
func (r *records) Query(ctx context.Context, q query.Query) (query.Results, error) {
	at := datastore.NewKey(q.Prefix)
	if len(at.List()) != recordLevels-1 {
		return r.Batching.Query(ctx, q)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []query.Entry
	for key := range r.sizes[at] {
		value, err := r.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		found = append(found, query.Entry{Key: key.String(), Value: value, Size: len(value)})
	}
	return query.NaiveQueryApply(q, query.ResultsWithEntries(q, found)), nil
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
