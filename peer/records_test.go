package peer

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ipfs/go-datastore"
)

func TestRecordsOfTheDHTAreBounded(t *testing.T) {
	ctx := t.Context()
	r := newRecords()
	key := func(i int) datastore.Key { return datastore.NewKey(fmt.Sprintf("/%08d", i)) }
	if err := r.Put(ctx, key(0), make([]byte, maxRecordBytes+1)); !errors.Is(err, errRecordsFull) {
		t.Errorf("a record of %d bytes: %v", maxRecordBytes+1, err)
	}
	large := 0
	for ; r.Put(ctx, key(large), make([]byte, maxRecordBytes)) == nil; large++ {
	}
	if got := large * (maxRecordBytes + 9); got > maxRecordsSize || got < maxRecordsSize-2*maxRecordBytes {
		t.Errorf("%d large records are kept", large)
	}
	if err := r.Put(ctx, key(1), []byte("smaller")); err != nil {
		t.Error("a record cannot be replaced:", err)
	}
	for i := range large {
		if err := r.Delete(ctx, key(i)); err != nil {
			t.Fatal(err)
		}
	}
	if r.bytes != 0 || len(r.sizes) != 0 {
		t.Errorf("%d bytes of %d records are left", r.bytes, len(r.sizes))
	}
	batch, err := r.Batch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxRecords + 10 {
		if err := batch.Put(ctx, key(i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Commit(ctx); err != nil || len(r.sizes) != maxRecords {
		t.Errorf("%d small records are kept, want %d: %v", len(r.sizes), maxRecords, err)
	}
	for at := range r.sizes {
		if v, err := r.Get(ctx, at); err != nil || string(v) != "x" {
			t.Fatal(string(v), err)
		}
		break
	}
}
