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

// Bounds of a keystore.
const (
	// keystoreName is the prefix of the names of the keystore's datastores. There is one
	// datastore, and a second one during a reset.
	keystoreName = "keys-"
	// keystoreBits is the number of bits of a key that are part of its path in the datastore. With
	// 10,000,000 keys, one or two keys have the same path, so looking up one hash reads almost no
	// other keys.
	keystoreBits = 24
	// keystoreBatch is how many keys are written at a time.
	keystoreBatch = 1 << 12
	// keystoreBuffer is the largest number of keys that are put during a reset and wait in memory,
	// about 40 bytes each.
	keystoreBuffer = 1 << 16
	// maxDeleted is the largest number of keys that are remembered as deleted during a scan of all
	// roots, about 100 bytes each. If more keys are deleted during a scan, the scan is abandoned.
	maxDeleted = 1 << 18
)

// errReset is the error of a scan whose reset did not begin.
var errReset = errors.New("the keystore cannot be reset")

var errManyDeleted = errors.New("more roots were withdrawn during a scan of all roots than are remembered")

// keystore stores the multihashes of the announced roots on disk, ordered by their DHT keys, for
// the sweeping provider. Its content should equal the roots in the replicated state; reconcile
// makes it equal again.
type keystore struct {
	*provided.ResettableKeystore

	// order is held during each change, so that a scan does not restore a key that is
	// deleted at the same time.
	order sync.Mutex

	// mu guards the fields below. It is never held while calling out.
	mu      sync.Mutex
	deleted map[string]struct{} // keys deleted since the scan began and not put again; nil if no scan is running
	added   int                 // keys that other callers added since the scan began
	failed  bool                // a change has failed since the last reset
	// opened is closed when a reset opens the datastore that it fills. It is nil if no caller waits
	// for that.
	opened chan struct{}
}

// newKeystore opens the keystore. It stores its own state in meta.
func newKeystore(all Datastores, meta datastore.Batching) (*keystore, error) {
	k := new(keystore)
	lib, err := provided.NewResettableKeystore(meta,
		provided.KeystoreOption(provided.WithPrefixBits(keystoreBits), provided.WithBatchSize(keystoreBatch)),
		provided.WithResetBufferCapacity(keystoreBuffer),
		provided.WithDatastoreFactory(
			func(suffix string) (datastore.Batching, error) {
				defer k.hasOpened()
				return all.Open(keystoreName + suffix)
			},
			func(suffix string) error { return all.Remove(keystoreName + suffix) },
		))
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	k.ResettableKeystore = lib
	return k, nil
}

// hasOpened records that a datastore was opened.
func (k *keystore) hasOpened() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opened != nil {
		close(k.opened)
		k.opened = nil
	}
}

// unique returns the hashes without repetitions, because the library would count them
// twice.
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

// Get implements the provider's keystore. During a reset it may return keys that were
// deleted meanwhile.
func (k *keystore) Get(ctx context.Context, prefix bitstr.Key) ([]mh.Multihash, error) {
	found, err := k.ResettableKeystore.Get(ctx, prefix)
	return k.notDeleted(found), err
}

// notDeleted returns the hashes that were not deleted since the scan began.
func (k *keystore) notDeleted(hashes []mh.Multihash) []mh.Multihash {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.deleted) == 0 {
		return hashes
	}
	return slices.DeleteFunc(hashes, func(h mh.Multihash) bool { _, gone := k.deleted[string(h)]; return gone })
}

// only returns those of the hashes that are in the keystore.
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

// bitsOf returns all bits of the DHT key of a hash except the last, because the provider's
// keystore finds nothing for a complete key.
func bitsOf(hash mh.Multihash) bitstr.Key {
	key := dhtKey(string(hash))
	bits := make([]byte, 8*len(key)-1)
	for i := range bits {
		bits[i] = '0' + key[i/8]>>(7-i%8)&1
	}
	return bitstr.Key(bits)
}

func dhtKey(hash string) [sha256.Size]byte { return sha256.Sum256([]byte(hash)) }

// reconcile makes the keystore equal to the roots that each passes to fn, and returns at
// most limit roots that were missing. It holds one batch in memory at a time. It adds
// missing keys. It writes all keys again if anew is set, if an earlier change failed, or if
// there are more keys than roots. If ctx or each ends early, it returns an error, and keys
// may be missing or left over until the next call.
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

// addMissing adds the roots that have no key and returns whether there are more keys than
// roots. Two roots with one multihash count as two, and changes during the scan are not
// counted exactly. Both can hide surplus keys but never report them wrongly.
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

// addScanned adds scanned roots unless they were deleted since. It returns those that were
// missing, and how many were not deleted.
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

// reset writes all keys again.
func (k *keystore) reset(ctx context.Context, each func(fn func(cid.Cid) bool) error) error {
	opened := make(chan struct{})
	k.mu.Lock()
	k.failed, k.opened = false, opened
	k.mu.Unlock()
	// If a reset of the library is cancelled before it takes its first root, it blocks the
	// keystore for ever (go-libp2p-kad-dht v0.42.2). So it gets a context of its own.
	reset, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	roots := make(chan cid.Cid) // unbuffered: a root that was sent was also received
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
		// Only then does the library keep the keys that others put during the scan, which the
		// scan does not see: it opens the datastore in the goroutine that also puts keys.
		select {
		case <-opened:
		case <-reset.Done():
			scanErr = errReset
			return
		}
		scanErr = errors.Join(each(send), ctx.Err())
		if k.hasManyDeleted() {
			scanErr = errors.Join(scanErr, errManyDeleted)
		}
		if scanErr == nil {
			close(roots) // all roots were sent
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

// deleteAgain deletes the keys that were deleted during a reset, because the reset may have
// restored them.
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
