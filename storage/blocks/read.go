package blocks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/ipfs/boxo/blockstore"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// readAttempts is how often Get looks up a block again if Compact moves the block at the same
// moment.
const readAttempts = 4

// readable returns an error if c is no CID or ctx has ended.
func readable(ctx context.Context, c cid.Cid) error {
	if !c.Defined() {
		return fmt.Errorf("%w: no CID", ErrBadBlock)
	}
	return ctx.Err()
}

func (s *Store) readError(err error) error {
	if errors.Is(err, kv.ErrClosed) {
		return ErrClosed
	}
	return s.distrustIndex(err)
}

// Get returns a block after it has verified its hash, or recognized its bytes as verified
// since Open. It returns ipld.ErrNotFound if the store does not have the block. It never
// returns bad bytes: the first reader gets ErrCorrupt, and from then on the block is
// missing until a Put stores it again.
func (s *Store) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	data, err := s.bytes(ctx, c, true, fresh)
	if err != nil {
		return nil, err
	}
	return blocks.NewBlockWithCid(data, c)
}

// Read does the same as Get and returns only the bytes of the block. It calls lend for memory
// of slightly more bytes than the block has, and uses only the memory of the last call.
func (s *Store) Read(ctx context.Context, c cid.Cid, lend func(bytes int) []byte) ([]byte, error) {
	return s.bytes(ctx, c, true, lend)
}

// fresh allocates memory for a block.
func fresh(bytes int) []byte { return make([]byte, bytes) }

// bytes reads a block in the same way as Read. If hashed is false, it verifies only the checksum of
// the record and not the hash of the block.
func (s *Store) bytes(ctx context.Context, c cid.Cid, hashed bool, lend func(int) []byte) ([]byte, error) {
	if err := readable(ctx, c); err != nil {
		return nil, err
	}
	hash := c.Hash()
	if isIdentity(c) {
		b, err := identityBlock(c)
		if err != nil {
			return nil, err
		}
		return b.RawData(), nil
	}
	var last blockEntry
	for attempt := range readAttempts {
		e, ok, err := getBlock(s.index, hash)
		if err != nil {
			return nil, fmt.Errorf("blocks: get %s: %w", c, s.readError(err))
		}
		if !ok || e.segment == 0 {
			return nil, ipld.ErrNotFound{Cid: c}
		}
		data, err := s.read(e, hash, hashed, lend)
		if err == nil {
			return data, nil
		}
		bad := errors.Is(err, ErrCorrupt) || errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrNotExist)
		if !bad {
			return nil, fmt.Errorf("blocks: get %s: %w", c, err)
		}
		// One failure may come from a move by Compact at the same moment, or from the bus.
		// A second one at the same location comes from the disk.
		if attempt > 0 && e.segment == last.segment && e.off == last.off {
			return nil, s.lost(ctx, c, e, err)
		}
		last = e
	}
	return nil, fmt.Errorf("blocks: get %s: %w", c, ErrCorrupt)
}

// lost marks the bytes of a block as damaged, and returns the error for the caller.
func (s *Store) lost(ctx context.Context, c cid.Cid, e blockEntry, cause error) error {
	s.corrupt.Add(1)
	s.log.ErrorContext(ctx, "stored block is damaged", "cid", c, "segment", e.segment, "offset", e.off, "err", cause)
	err := s.do(context.WithoutCancel(ctx), recordSlack, func(b *batch) error {
		return b.lose(c.Hash(), e.segment, e.off)
	})
	s.notifyLost()
	if !errors.Is(cause, ErrCorrupt) {
		cause = fmt.Errorf("%w: %w", ErrCorrupt, cause)
	}
	return errors.Join(fmt.Errorf("blocks: get %s: %w", c, cause), err)
}

// read returns the bytes of a block from its location.
func (s *Store) read(e blockEntry, hash multihash.Multihash, hashed bool, lend func(int) []byte) ([]byte, error) {
	h, err := s.files.acquire(e.segment)
	if err != nil {
		return nil, err
	}
	defer s.files.release(h)
	buf := lend(int(blockRecordBytes(hash, e.size)))
	off := int64(e.off)
	if _, err := h.f.ReadAt(buf, off); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: segment ends too early", ErrCorrupt)
		}
		return nil, err
	}
	kind, length, sum, ok := parseHead(buf, h.seed, off)
	payload := buf[recordHeadBytes:]
	if !ok || kind != kindBlock || length != int64(len(payload)) {
		return nil, fmt.Errorf("%w: head of the record", ErrCorrupt)
	}
	// The payload is covered by the block's hash, or compared with it, or recognized, so a
	// caller that verifies the hash needs no checksum.
	if !hashed && recordSum(h.seed, off, payload) != sum {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	names, data := payload[1:1+len(hash)], payload[1+len(hash):]
	good := int(payload[0]) == len(hash) && bytes.Equal(names, hash)
	if good && hashed {
		good = s.known.check(payload, hash, func() bool { return hasHash(data, hash) })
	}
	if !good {
		return nil, fmt.Errorf("%w: hash", ErrCorrupt)
	}
	return data, nil
}

func identityBlock(c cid.Cid) (blocks.Block, error) {
	decoded, err := multihash.Decode(c.Hash())
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBadBlock, c, err)
	}
	return blocks.NewBlockWithCid(decoded.Digest, c)
}

// Has returns whether the store has the block, from the index alone.
func (s *Store) Has(ctx context.Context, c cid.Cid) (bool, error) {
	_, err := s.GetSize(ctx, c)
	if ipld.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// GetSize returns the size of a block in bytes, from the index alone, or ipld.ErrNotFound.
func (s *Store) GetSize(ctx context.Context, c cid.Cid) (int, error) {
	if err := readable(ctx, c); err != nil {
		return 0, err
	}
	if isIdentity(c) {
		b, err := identityBlock(c)
		if err != nil {
			return 0, err
		}
		return len(b.RawData()), nil
	}
	e, ok, err := getBlock(s.index, c.Hash())
	if err != nil {
		return 0, fmt.Errorf("blocks: size of %s: %w", c, s.readError(err))
	}
	if !ok || e.segment == 0 {
		return 0, ipld.ErrNotFound{Cid: c}
	}
	return int(e.size), nil
}

// Reference describes a reference. The second result is false if the reference does not exist.
func (s *Store) Reference(ctx context.Context, reference string) (ReferenceInfo, bool, error) {
	if err := errors.Join(checkReference(reference), ctx.Err()); err != nil {
		return ReferenceInfo{}, false, err
	}
	e, ok, err := getReference(s.index, reference)
	if err != nil {
		return ReferenceInfo{}, false, fmt.Errorf("blocks: reference: %w", s.readError(err))
	}
	if !ok {
		return ReferenceInfo{}, false, nil
	}
	return e.info(reference), true, nil
}

// References calls fn for each reference whose name begins with prefix, in the order of names,
// until fn returns false or an error. All calls see the state of one moment.
func (s *Store) References(ctx context.Context, prefix string, fn func(ReferenceInfo) (more bool, err error)) error {
	v := s.index.View()
	defer v.Close()
	lower := referenceKey(prefix)
	err := v.Scan(lower, after(lower), false, func(key, value []byte) (bool, error) {
		e, err := decodeReferenceEntry(key, value)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return false, err
		}
		return fn(e.info(string(key[1:])))
	})
	if err != nil {
		return fmt.Errorf("blocks: references: %w", s.readError(err))
	}
	return nil
}

// Blocks calls fn for each block of a reference, whether the block is stored or missing, until
// fn returns false or an error. All calls see the state of one moment. fn may keep the
// multihash.
func (s *Store) Blocks(ctx context.Context, reference string, fn func(hash multihash.Multihash) (more bool, err error)) error {
	if err := checkReference(reference); err != nil {
		return err
	}
	v := s.index.View()
	defer v.Close()
	o, ok, err := getReference(v, reference)
	if err == nil && ok {
		prefix := blockRefPrefix(o.inc)
		err = v.Scan(prefix, after(prefix), false, func(key, _ []byte) (bool, error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			return fn(append(multihash.Multihash(nil), key[len(prefix):]...))
		})
	}
	if err != nil {
		return fmt.Errorf("blocks: blocks of reference: %w", s.readError(err))
	}
	return nil
}

// Visible returns whether a block belongs to a reference that is sealed and not hidden, which means
// to complete and public content. Blocks of unfinished fetches and imports, of references that are
// being dropped, and of references that a Seal is just making visible are not visible. It reads
// only the index. Its cost grows with the number of references that are not sealed.
func (s *Store) Visible(ctx context.Context, c cid.Cid) (bool, error) {
	if err := readable(ctx, c); err != nil {
		return false, err
	}
	hash := c.Hash()
	v := s.index.View()
	defer v.Close()
	e, ok, err := getBlock(v, hash)
	shown := e.refs - e.hidden
	if err == nil && ok && e.segment != 0 && shown > 0 {
		prefix := []byte{keyOpen}
		err = v.Scan(prefix, after(prefix), false, func(key, _ []byte) (bool, error) {
			if len(key) != len(prefix)+8 {
				return false, badEntry(key)
			}
			ref := blockRefKey(binary.BigEndian.Uint64(key[len(prefix):]), hash)
			raw, has, err := v.Get(ref)
			if err != nil || !has {
				return err == nil, errors.Join(err, ctx.Err())
			}
			at, err := decodeBlockRefEntry(ref, raw)
			if err == nil && !at.hidden { // the hidden ones were subtracted already
				shown--
			}
			return shown > 0, errors.Join(err, ctx.Err())
		})
	}
	if err != nil {
		return false, fmt.Errorf("blocks: references of %s: %w", c, s.readError(err))
	}
	return ok && e.segment != 0 && shown > 0, nil
}

// Blockstore returns the store for boxo: reads are verified, and writes fail with
// ErrNoReference.
func (s *Store) Blockstore() blockstore.Blockstore { return face{s} }

type face struct{ s *Store }

func (f face) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) { return f.s.Get(ctx, c) }

// ReadChecksummed is Store.Read for a caller that sends the bytes to a receiver which
// verifies the hash, as members do. It verifies only the checksum of the record, because
// hashing takes as long as sending.
func (f face) ReadChecksummed(ctx context.Context, c cid.Cid, lend func(bytes int) []byte) ([]byte, error) {
	return f.s.bytes(ctx, c, false, lend)
}

func (f face) Has(ctx context.Context, c cid.Cid) (bool, error)    { return f.s.Has(ctx, c) }
func (f face) GetSize(ctx context.Context, c cid.Cid) (int, error) { return f.s.GetSize(ctx, c) }
func (f face) Put(context.Context, blocks.Block) error             { return ErrNoReference }
func (f face) PutMany(context.Context, []blocks.Block) error       { return ErrNoReference }
func (f face) DeleteBlock(context.Context, cid.Cid) error          { return ErrNoReference }

// AllKeysChan sends the CID (raw, version 1) of every readable block, in the state of one
// moment, until ctx ends or the store closes.
func (f face) AllKeysChan(ctx context.Context) (<-chan cid.Cid, error) {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.walks.Add(1) // Close waits for it
	out := make(chan cid.Cid)
	go func() {
		defer s.walks.Done()
		defer close(out)
		v := s.index.View()
		defer v.Close()
		err := v.Scan([]byte{keyBlock}, []byte{keyBlock + 1}, false, func(key, value []byte) (bool, error) {
			e, err := decodeBlockEntry(key, value)
			if err != nil || e.segment == 0 {
				return err == nil, err
			}
			select {
			case out <- cid.NewCidV1(cid.Raw, append(multihash.Multihash(nil), key[1:]...)):
				return true, nil
			case <-ctx.Done():
			case <-s.closing:
			}
			return false, nil
		})
		if err != nil {
			s.log.ErrorContext(ctx, "list of blocks ended early", "err", s.readError(err))
		}
	}()
	return out, nil
}
