package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/holdfast-ipfs/holdfast/cluster/bao"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// maxReread is the largest number of bytes of parts that the node reads again to compute the
// BLAKE3 hash when an upload is completed. A part is read again if its tree was computed for a
// wrong offset. This concerns mostly the last part: it is shorter than the others, so its offset
// was guessed wrong if it arrived before them.
const maxReread = 64 << 20

// partAt returns the probable offset in bytes of a part in its object. It assumes that all
// earlier parts are as long as the first stored part, or else as this one. size is the size of
// this part, or -1 if unknown. partAt returns unplaced if the offset cannot be guessed.
func (o *Objects) partAt(b *state.Bucket, u *state.Upload, number int, size int64) uint64 {
	if number == 1 {
		return 0
	}
	view, release := o.opts.State.LocalView()
	first, _, err := view.Parts(b, u.ID, 0, 1)
	release()
	each := uint64(max(size, 0))
	if err == nil && len(first) == 1 && int(first[0].Number) < number {
		each = first[0].Size
	}
	if each == 0 || each > state.MaxContentBytes/uint64(number) {
		return unplaced
	}
	return uint64(number-1) * each
}

// blake3 returns the BLAKE3 hash of the concatenated parts, computed from the trees that were
// stored with the parts. It returns nil if that would require to read more than maxReread bytes,
// or if a part does not begin at a multiple of bao.Chunk.
func (o *Objects) blake3(ctx context.Context, a state.AccountID, parts []state.Part) []byte {
	var full []*state.Part
	for i := range parts {
		if parts[i].Size > 0 || len(parts) == 1 {
			full = append(full, &parts[i])
		}
	}
	if len(full) == 1 && full[0].Blake3 != nil {
		return full[0].Blake3
	}
	pieces := make([]bao.Piece, len(full))
	var end, reread uint64
	for i, p := range full {
		if end%bao.Chunk != 0 {
			return nil
		}
		pieces[i] = bao.Piece{At: end, Size: p.Size, Trees: p.Trees}
		if p.At != end || len(p.Trees) == 0 || len(full) == 1 {
			pieces[i].Trees = nil
			reread += p.Size
		}
		end += p.Size
	}
	if reread > maxReread {
		return nil
	}
	for i, p := range full {
		if pieces[i].Trees != nil {
			continue
		}
		h, err := o.hash(ctx, a, p, pieces[i].At)
		if err != nil {
			o.opts.Logger.DebugContext(ctx, "cannot compute the hash of an object", "root", p.Root, "err", err)
			return nil
		}
		if len(full) == 1 {
			sum := h.Sum()
			return sum[:]
		}
		pieces[i].Trees = h.Trees()
	}
	sum, ok := bao.Join(pieces)
	if !ok {
		return nil
	}
	return sum[:]
}

// hash reads a part and returns its hasher. at is the offset in bytes of the part in its object.
func (o *Objects) hash(ctx context.Context, a state.AccountID, p *state.Part, at uint64) (h *bao.Hasher, err error) {
	f, err := o.Open(ctx, a, &state.Object{Root: p.Root, Size: p.Size})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h = bao.NewHasher(at)
	if _, err := io.CopyN(h, f, int64(p.Size)); err != nil {
		return nil, fmt.Errorf("read part: %w", err)
	}
	return h, nil
}

// Slice is a byte range of an object, for a client that verifies it with the BLAKE3 hash of the
// whole object. Count is greater than 0 and Start is within the object, unless the object is
// empty.
type Slice struct{ Start, Count uint64 }

// Encoding is a Bao encoding of an object: its content, or a part of it, with the tree of hashes
// that verifies it. The caller must close it.
type Encoding struct {
	*bao.Encoding // provides Size, and WriteTo, which reads the content
	Blake3        [bao.HashSize]byte
	content       io.Closer
}

// NewEncoding returns the Bao encoding of the range s of content. If s is nil, it returns the
// outboard encoding, which is the tree of hashes without the content. x is the index of the
// content.
func NewEncoding(x *bao.Index, content io.ReadSeekCloser, s *Slice) *Encoding {
	e := &Encoding{Blake3: x.Sum(), content: content}
	if s == nil {
		e.Encoding = x.Outboard(content)
	} else {
		e.Encoding = x.Slice(content, s.Start, s.Count)
	}
	return e
}

// Close closes the content that the encoding reads.
func (e *Encoding) Close() error { return e.content.Close() }

// BaoMemory returns about how many bytes of memory the Encoding of Bao for obj and s needs until
// it is closed. The memory for reading the object is not included.
func BaoMemory(obj *state.Object, s *Slice) int64 { return bao.Memory(obj.Size, s != nil) }

// Bao returns the Bao encoding of the range s of an object. If s is nil, it returns the outboard
// encoding, which is the tree of hashes without the content. Bao reads the whole object first to
// compute the tree, unless the tree is cached. It returns the errors of Open, and an error if the
// hash of the content differs from the one in obj.
func (o *Objects) Bao(ctx context.Context, a state.AccountID, obj *state.Object, s *Slice) (*Encoding, error) {
	x, err := o.trees.get(ctx, obj.Root, func() (*bao.Index, error) { return o.index(ctx, a, obj) })
	if err != nil {
		return nil, err
	}
	if sum := x.Sum(); obj.Blake3 != nil && !bytes.Equal(obj.Blake3, sum[:]) {
		return nil, fmt.Errorf("objects: the BLAKE3 hash of %s is %x, its object says %x", obj.Root, sum, obj.Blake3)
	}
	f, err := o.Open(ctx, a, obj)
	if err != nil {
		return nil, err
	}
	return NewEncoding(x, f, s), nil
}

// index reads a whole object and returns its Bao index.
func (o *Objects) index(ctx context.Context, a state.AccountID, obj *state.Object) (x *bao.Index, err error) {
	f, err := o.Open(ctx, a, obj)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return bao.NewIndex(f, obj.Size)
}

// maxTrees is the largest number of bytes of cached indexes. This is enough for the indexes of
// 256 GiB of content.
const maxTrees = 8 << 20

// trees caches the Bao indexes of content that was used last. The content of a root never
// changes, so entries never become outdated.
type trees struct {
	mu sync.Mutex
	by *cache.Cache[state.RootKey, *bao.Index] // cached indexes; limited by their bytes
	// coming contains the roots whose index is being computed. The channel is closed when the
	// computation has ended.
	coming map[state.RootKey]chan struct{}
}

func newTrees(most int) *trees {
	return &trees{
		by:     cache.Weighted(most, func(_ state.RootKey, x *bao.Index) int { return x.Weight() }, nil),
		coming: map[state.RootKey]chan struct{}{},
	}
}

// get returns the index of a root. If it is not cached, get calls read to compute it. Concurrent
// callers for one root wait for one call of read. If that call fails, a waiting caller calls read
// itself.
func (t *trees) get(ctx context.Context, root state.RootKey, read func() (*bao.Index, error)) (*bao.Index, error) {
	for {
		x, coming := t.look(root)
		if x != nil {
			return x, nil
		}
		if coming == nil {
			break
		}
		select {
		case <-coming: // and if it has failed, it is for us to try
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return t.keep(root, read)
}

// keep calls read, caches its result and wakes the callers that wait for the root.
func (t *trees) keep(root state.RootKey, read func() (*bao.Index, error)) (x *bao.Index, err error) {
	defer func() { // also after a panic
		t.mu.Lock()
		defer t.mu.Unlock()
		close(t.coming[root])
		delete(t.coming, root)
		if x != nil {
			t.by.Put(root, x)
		}
	}()
	if x, err = read(); err != nil {
		return nil, err
	}
	return x, nil
}

// look returns the cached index of a root. If another goroutine computes the index now, look
// returns a channel that is closed when it has ended. If both results are nil, the caller must
// compute the index with keep.
func (t *trees) look(root state.RootKey) (*bao.Index, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x, ok := t.by.Get(root); ok {
		return x, nil
	}
	if coming := t.coming[root]; coming != nil {
		return nil, coming
	}
	t.coming[root] = make(chan struct{})
	return nil, nil
}
