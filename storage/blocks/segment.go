package blocks

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-ipfs/holdfast/internal/cache"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

const (
	segmentSuffix = ".seg"
	// rottenSuffix is the suffix of segments that could not be read and were set aside.
	rottenSuffix = ".rotten"
	filePerm     = 0o600

	// maxOpenSegments bounds the number of files kept open for reading. More files can be open
	// while more segments are read at the same moment.
	maxOpenSegments = 256
)

// errUnsynced means that a flush failed. A second flush that succeeds would not prove that the data
// of the first one is on the disk.
var errUnsynced = errors.New("not flushed to the disk")

func segmentPath(dir string, number uint32) string {
	return filepath.Join(dir, fmt.Sprintf("%08d%s", number, segmentSuffix))
}

// segmentFiles returns the sizes of the segments in dir by number.
func segmentFiles(dir string) (map[uint32]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sizes := make(map[uint32]int64, len(entries))
	for _, e := range entries {
		number, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), segmentSuffix), 10, 32)
		if err != nil || number == 0 || e.Name() != filepath.Base(segmentPath(dir, uint32(number))) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		sizes[uint32(number)] = info.Size()
	}
	return sizes, nil
}

// newestRotten returns the highest number of a segment in dir that was set aside, or 0 if there
// is none.
func newestRotten(dir string) (newest uint32, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		name, aside := strings.CutSuffix(e.Name(), segmentSuffix+rottenSuffix)
		if number, err := strconv.ParseUint(name, 10, 32); aside && err == nil {
			newest = max(newest, uint32(number))
		}
	}
	return newest, nil
}

func createSegment(dir string, number uint32) (*active, error) {
	var salt [8]byte
	if _, err := rand.Read(salt[:]); err != nil {
		return nil, fmt.Errorf("blocks: create segment: %w", err)
	}
	header := segmentHeader(number, binary.BigEndian.Uint64(salt[:]))
	path := segmentPath(dir, number)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return nil, fmt.Errorf("blocks: create segment: %w", err)
	}
	if _, err = f.WriteAt(header, 0); err == nil {
		if err = errors.Join(f.Sync(), durable.SyncDir(dir)); err != nil {
			err = fmt.Errorf("%w: %w", errUnsynced, err)
		}
	}
	if err != nil {
		// without a header the file must go, because the next attempt uses the name
		return nil, errors.Join(fmt.Errorf("blocks: create segment: %w", err), f.Close(), os.Remove(path))
	}
	seed, _ := parseSegmentHeader(header, number)
	return &active{number: number, f: f, seed: seed, size: headerBytes}, nil
}

func openSegment(dir string, number uint32, flag int) (f *os.File, seed uint32, err error) {
	path := segmentPath(dir, number)
	if f, err = os.OpenFile(path, flag, 0); err != nil {
		return nil, 0, fmt.Errorf("blocks: open segment: %w", err)
	}
	header := make([]byte, headerBytes)
	n, err := f.ReadAt(header, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, errors.Join(fmt.Errorf("blocks: open segment: %w", err), f.Close())
	}
	seed, ok := parseSegmentHeader(header[:n], number)
	if version := newerSegment(header[:n]); !ok && version > 0 {
		return nil, 0, errors.Join(fmt.Errorf("blocks: open segment: %w", durable.Newer(path, version, segmentVersion)), f.Close())
	}
	if !ok {
		return nil, 0, errors.Join(fmt.Errorf("blocks: open segment %s: %w: header", path, ErrCorrupt), f.Close())
	}
	return f, seed, nil
}

// handle is a segment that is open for reading.
type handle struct {
	number  uint32
	f       *os.File
	seed    uint32
	readers int
	removed bool // the handle is not in the cache any more, and the last reader closes it
}

// handles keeps segments open between reads. The least recently used ones are closed first.
type handles struct {
	dir string

	// mu guards the fields below, and is held while a file is opened.
	mu   sync.Mutex
	open *cache.Cache[uint32, *handle]
}

func newHandles(dir string) *handles {
	return &handles{dir: dir, open: cache.Weighted(maxOpenSegments, func(uint32, *handle) int { return 1 }, retire)}
}

// acquire returns the segment, open for reading. The caller releases it.
func (h *handles) acquire(number uint32) (*handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if got, ok := h.open.Get(number); ok {
		got.readers++
		return got, nil
	}
	f, seed, err := openSegment(h.dir, number, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	got := &handle{number: number, f: f, seed: seed, readers: 1}
	h.open.Put(number, got)
	return got, nil
}

// retire closes the file of a handle that leaves the cache, when its last reader has finished. The
// error of closing is ignored, because a file that was only read loses nothing.
func retire(_ uint32, got *handle) {
	got.removed = true
	if got.readers == 0 {
		_ = got.f.Close()
	}
}

func (h *handles) release(got *handle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if got.readers--; got.readers == 0 && got.removed {
		_ = got.f.Close()
	}
}

// remove removes a segment from the cache; its readers continue.
func (h *handles) remove(number uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open.Remove(number)
}

func (h *handles) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open.Clear()
}
