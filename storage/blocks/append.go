package blocks

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

const (
	// cacheBehind is the number of bytes of the newest data that stay in the system's page cache,
	// because members soon fetch new content. Older data is dropped from the cache in steps of
	// cacheStep bytes. If a node stores more than its memory, block data would otherwise displace
	// the pages of the indexes from the cache. The system would also have to free memory for every
	// block, which costs more than the copy.
	cacheBehind = 64 << 20
	cacheStep   = 8 << 20

	// directBytes is the minimum size of a batch that bypasses the page cache. A write through the
	// cache needs a copy and pages of the cache. A direct write waits for the disk, but the flush
	// waits for the disk anyway. In batches of directBytes, a MiB takes 0.54 ms of processor time
	// through the cache and 0.38 ms directly. In batches of 64 KiB both take 1.3 ms.
	directBytes = 192 << 10
	directAlign = durable.DirectAlign
)

// active is the segment to which the store appends.
type active struct {
	number uint32
	f      *os.File
	direct *os.File // the same file, opened to bypass the page cache; nil if it is not opened yet
	seed   uint32
	size   int64
	letGo  int64       // offset up to which trimCache has dropped the data from the page cache
	file   os.FileInfo // identity of the open file f; nil if it was not read yet
}

func (a *active) close() error {
	err := a.f.Close()
	if a.direct != nil {
		err = errors.Join(err, a.direct.Close())
	}
	return err
}

// linked reports whether the path of the segment still leads to the open file. If not, the next
// start will not find what is written to the file.
func (a *active) linked() bool {
	if a.file == nil {
		file, err := a.f.Stat()
		if err != nil {
			return true
		}
		a.file = file
	}
	return durable.Linked(a.f.Name(), a.file)
}

// trimCache drops data from the page cache that was written a while ago.
func (a *active) trimCache() {
	if n := a.size - cacheBehind - a.letGo; n >= cacheStep {
		durable.DropCache(a.f, a.letGo, n)
		a.letGo += n
	}
}

// ready empties the memory for a batch. If the batch is to bypass the page cache, ready places it
// in memory so that its position within a page is the same as in the segment.
func (s *Store) ready(ops []*op) {
	cold, bytes := int64(0), int64(recordSlack)
	for _, o := range ops {
		bytes += o.bytes
		if o.cold {
			cold += o.bytes
		}
	}
	if !s.direct || cold < s.opts.directBytes || cold < bytes/2 {
		s.buf = s.memory[:0]
		return
	}
	if need := int(bytes) + directAlign; len(s.memory) < need {
		s.memory = make([]byte, max(need, min(2*len(s.memory), maxBatchBytes+directAlign)))
	}
	at := int(uint64(s.active.size)-place(s.memory)) & (directAlign - 1)
	s.buf = s.memory[at:at]
}

// place returns the address of b in memory, modulo directAlign.
func place(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) % directAlign
}

// append writes the batch to the active segment and flushes it to the disk.
func (s *Store) append() error {
	if cap(s.buf) > len(s.memory) { // it was reallocated
		s.memory = s.buf[:cap(s.buf)]
	}
	a := s.active
	if err := s.write(a, s.buf); err != nil {
		// None of these bytes was acknowledged. If they can be cut off, the store is as
		// before: a full disk must not break it.
		if terr := a.f.Truncate(a.size); terr != nil {
			return s.breakdown(errors.Join(err, terr))
		}
		return fmt.Errorf("blocks: write segment: %w", noSpace(err))
	}
	if err := durable.Datasync(a.f); err != nil {
		return s.breakdown(err)
	}
	a.size += int64(len(s.buf))
	a.trimCache()
	return nil
}

// write writes b at the end of the segment. If the batch was prepared for direct writes, whole
// pages bypass the page cache, and the incomplete pages at both ends go through it. The pages
// are written in order, so a process that is killed leaves a prefix of b.
func (s *Store) write(a *active, b []byte) error {
	first := int(-a.size & (directAlign - 1)) // bytes up to the next page
	pages := (len(b) - first) &^ (directAlign - 1)
	if !s.direct || int64(pages) < s.opts.directBytes || place(b[first:]) != 0 {
		_, err := a.f.WriteAt(b, a.size)
		return err
	}
	if a.direct == nil {
		f, err := s.opts.openDirect(a.f.Name())
		if err != nil {
			return s.throughCache(a, b, err)
		}
		a.direct = f
	}
	if _, err := a.f.WriteAt(b[:first], a.size); err != nil {
		return err
	}
	if _, err := a.direct.WriteAt(b[first:first+pages], a.size+int64(first)); errors.Is(err, syscall.EINVAL) {
		return s.throughCache(a, b, err)
	} else if err != nil {
		return err
	}
	_, err := a.f.WriteAt(b[first+pages:], a.size+int64(first+pages))
	return err
}

// throughCache writes b through the page cache. It also makes all later batches use the page
// cache, because the file system cannot bypass it.
func (s *Store) throughCache(a *active, b []byte, why error) error {
	s.direct = false
	s.log.Info("block store writes through the page cache", "dir", s.dir, "err", why)
	_, err := a.f.WriteAt(b, a.size)
	return err
}
