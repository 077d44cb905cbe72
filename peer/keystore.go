package peer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-libdht/kad/key/bitstr"
	provided "github.com/libp2p/go-libp2p-kad-dht/provider/keystore"
	mh "github.com/multiformats/go-multihash"
)

// Settings of a keystore.
const (
	// keystoreName begins the names of its datastores. There is one, and a second one while
	// a reset fills it.
	keystoreName = "keys-"
	// keystoreBits of a key are its path. With 10,000,000 keys a path of so many bits has
	// one or two, so that finding one hash reads no others.
	keystoreBits = 24
	// keystoreBatch is how many keys are written at once.
	keystoreBatch = 1 << 12
	// keystoreBuffer bounds the keys put during a reset that wait in memory, some 40 bytes
	// each.
	keystoreBuffer = 1 << 16
	// maxDeleted bounds the keys deleted during a scan of all roots that are remembered until
	// its end, some 100 bytes each. A scan with more of them is given up.
	maxDeleted = 1 << 18
)

var errManyDeleted = errors.New("more roots were withdrawn during a scan of all roots than are remembered")

// keystore holds the multihashes of the announced roots on disk, by their keys in the DHT,
// for the provider that sweeps over them. It is a copy of what the state says: reconcile
// makes it equal to that again.
type keystore struct {
	*provided.ResettableKeystore

	// order is held over each change, so that a scan does not put back a key which is
	// deleted at the same time.
	order sync.Mutex

	// mu guards what follows. It is never held while calling out.
	mu      sync.Mutex
	deleted map[string]struct{} // since the scan began, and not put again; nil: no scan
	added   int                 // since the scan began, by others
	failed  bool                // a change failed since the last reset
}

// newKeystore opens the keystore. What it remembers of itself is in meta.
func newKeystore(all Datastores, meta datastore.Batching) (*keystore, error) {
	lib, err := provided.NewResettableKeystore(meta,
		provided.KeystoreOption(provided.WithPrefixBits(keystoreBits), provided.WithBatchSize(keystoreBatch)),
		provided.WithResetBufferCapacity(keystoreBuffer),
		provided.WithDatastoreFactory(
			func(suffix string) (datastore.Batching, error) { return all.Open(keystoreName + suffix) },
			func(suffix string) error { return all.Remove(keystoreName + suffix) },
		))
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	return &keystore{ResettableKeystore: lib}, nil
}

// unique returns the hashes without repetitions, which the library would count twice.
func unique(hashes []mh.Multihash) []mh.Multihash {
	seen := make(map[string]struct{}, len(hashes))
	return slices.DeleteFunc(slices.Clone(hashes), func(h mh.Multihash) bool {
		_, again := seen[string(h)]
		seen[string(h)] = struct{}{}
		return again
	})
}

// Put implements the provider's keystore.
func (k *keystore) Put(ctx context.Context, hashes ...mh.Multihash) ([]mh.Multihash, error) {
	k.order.Lock()
	defer k.order.Unlock()
	fresh, err := k.ResettableKeystore.Put(ctx, unique(hashes)...)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = k.failed || err != nil
	k.added += len(fresh)
	for _, h := range hashes {
		delete(k.deleted, string(h))
	}
	return fresh, err
}

// Delete implements the provider's keystore.
func (k *keystore) Delete(ctx context.Context, hashes ...mh.Multihash) error {
	k.order.Lock()
	defer k.order.Unlock()
	k.mu.Lock()
	if k.deleted != nil {
		for _, h := range hashes {
			k.deleted[string(h)] = struct{}{}
		}
	}
	k.mu.Unlock()
	err := k.ResettableKeystore.Delete(ctx, unique(hashes)...)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = k.failed || err != nil
	return err
}

// Get implements the provider's keystore. Until a reset has ended, a key that was deleted
// meanwhile may be there.
func (k *keystore) Get(ctx context.Context, prefix bitstr.Key) ([]mh.Multihash, error) {
	found, err := k.ResettableKeystore.Get(ctx, prefix)
	return k.notDeleted(found), err
}

// notDeleted returns those of the hashes that were not deleted since the scan began.
func (k *keystore) notDeleted(hashes []mh.Multihash) []mh.Multihash {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.deleted) == 0 {
		return hashes
	}
	return slices.DeleteFunc(hashes, func(h mh.Multihash) bool { _, gone := k.deleted[string(h)]; return gone })
}

// only returns those of the hashes that are there.
func (k *keystore) only(ctx context.Context, hashes []mh.Multihash) (there []mh.Multihash, err error) {
	for _, h := range hashes {
		has, err := k.ContainsPrefix(ctx, bitsOf(h))
		if err != nil {
			return nil, err
		}
		if has {
			there = append(there, h)
		}
	}
	return k.notDeleted(there), nil
}

// bitsOf returns all bits but the last of the key of a hash in the DHT: asked for a whole
// key, the provider's keystore finds none.
func bitsOf(hash mh.Multihash) bitstr.Key {
	key := dhtKey(string(hash))
	bits := make([]byte, 8*len(key)-1)
	for i := range bits {
		bits[i] = '0' + key[i/8]>>(7-i%8)&1
	}
	return bitstr.Key(bits)
}

func dhtKey(hash string) [sha256.Size]byte { return sha256.Sum256([]byte(hash)) }

// reconcile makes the keys those of the roots that each calls fn with, and returns at most
// limit of those that were missing. It holds a batch of them in memory at a time. Missing
// keys are added; all keys are written anew if anew is set, if an earlier change failed, or
// if there are more keys than roots. It returns an error when ctx or each ends first; then
// keys may be missing or left over, until the next call.
func (k *keystore) reconcile(ctx context.Context, each func(fn func(cid.Cid) bool) error, anew bool, limit int) (fresh []mh.Multihash, err error) {
	k.mu.Lock()
	k.deleted, k.added = map[string]struct{}{}, 0
	anew = anew || k.failed
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.deleted = nil
	}()
	if !anew {
		var left bool
		if fresh, left, err = k.addMissing(ctx, each, limit); err == nil && !left {
			return fresh, nil
		}
		if ctx.Err() != nil || errors.Is(err, errManyDeleted) {
			return fresh, err
		}
	}
	return fresh, k.reset(ctx, each)
}

// addMissing adds the roots that have no key, and reports whether there are more keys than
// roots. Two roots with one multihash count as two, and changes during the scan are not
// counted exactly, but never so that it reports too many.
func (k *keystore) addMissing(ctx context.Context, each func(fn func(cid.Cid) bool) error, limit int) (fresh []mh.Multihash, left bool, err error) {
	seen := 0
	batch := make([]mh.Multihash, 0, keystoreBatch)
	flush := func() error {
		added, n, err := k.addScanned(ctx, batch)
		seen += n
		fresh = append(fresh, added[:min(len(added), limit-len(fresh))]...)
		batch = batch[:0]
		return err
	}
	var failed error
	err = each(func(c cid.Cid) bool {
		if batch = append(batch, c.Hash()); len(batch) == cap(batch) {
			failed = flush()
		}
		return failed == nil && ctx.Err() == nil
	})
	if err = errors.Join(err, failed, ctx.Err()); err == nil {
		err = flush()
	}
	if err != nil {
		return fresh, false, err
	}
	k.order.Lock()
	defer k.order.Unlock()
	size, err := k.Size(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	return fresh, size > seen+k.added, err
}

// addScanned adds what a scan came to, unless it was deleted since, and returns what was
// missing and how many were not deleted.
func (k *keystore) addScanned(ctx context.Context, hashes []mh.Multihash) (added []mh.Multihash, n int, err error) {
	k.order.Lock()
	defer k.order.Unlock()
	if k.hasManyDeleted() {
		return nil, 0, errManyDeleted
	}
	hashes = k.notDeleted(unique(hashes))
	added, err = k.ResettableKeystore.Put(ctx, hashes...)
	return added, len(hashes), err
}

func (k *keystore) hasManyDeleted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.deleted) > maxDeleted
}

// reset writes all keys anew.
func (k *keystore) reset(ctx context.Context, each func(fn func(cid.Cid) bool) error) error {
	k.mu.Lock()
	k.failed = false
	k.mu.Unlock()
	// A library reset that is cancelled before it takes its first root blocks the keystore
	// for ever (go-libp2p-kad-dht v0.42.2), so it has a context of its own.
	reset, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	roots := make(chan cid.Cid) // without a buffer: what was sent was taken
	var scanErr error
	var scan sync.WaitGroup
	scan.Go(func() {
		taken := false
		send := func(c cid.Cid) bool {
			select {
			case roots <- c:
				taken = true
				return ctx.Err() == nil && !k.hasManyDeleted()
			case <-reset.Done():
				return false
			}
		}
		scanErr = errors.Join(each(send), ctx.Err())
		if k.hasManyDeleted() {
			scanErr = errors.Join(scanErr, errManyDeleted)
		}
		if scanErr == nil {
			close(roots) // all of them were sent
			return
		}
		if !taken {
			send(cid.NewCidV1(cid.Raw, mh.Multihash{mh.IDENTITY, 0}))
		}
		cancel()
	})
	err := k.ResetCids(reset, roots)
	cancel()
	scan.Wait()
	if err = errors.Join(err, scanErr, k.deleteAgain(ctx)); err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.failed = true
		return fmt.Errorf("keystore: %w", err)
	}
	return nil
}

// deleteAgain deletes what was deleted during a reset: the reset may have put it back.
func (k *keystore) deleteAgain(ctx context.Context) error {
	k.order.Lock()
	defer k.order.Unlock()
	k.mu.Lock()
	hashes := make([]mh.Multihash, 0, len(k.deleted))
	for h := range k.deleted {
		hashes = append(hashes, mh.Multihash(h))
	}
	k.mu.Unlock()
	return k.ResettableKeystore.Delete(ctx, hashes...)
}
