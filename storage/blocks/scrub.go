package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// scrubFile is the name of the file with the position of the resumable pass. If this file is
// lost, the next pass begins at the first segment.
const scrubFile = "scrub.json"

// ScrubOptions configure a pass of Scrub.
type ScrubOptions struct {
	BytesPerSecond int64 // largest number of bytes read per second; 0 means no limit
	Resume         bool  // continue where the last pass with Resume was interrupted
}

// Scrubbed is the result of a pass.
type Scrubbed struct {
	Blocks, Bytes uint64 // number and size of the blocks that were verified and are good
	Damaged       uint64 // number of damaged or missing blocks
}

// scrubState is the content of scrubFile.
type scrubState struct {
	Next      uint32    `json:"next"`      // number of the next segment
	Completed time.Time `json:"completed"` // time at which the last complete pass ended
}

// ScrubCompleted returns when the last complete pass ended, or the zero time if there was
// none.
func (s *Store) ScrubCompleted() time.Time { return s.scrubState().Completed }

func (s *Store) scrubState() (st scrubState) {
	raw, err := os.ReadFile(filepath.Join(s.dir, scrubFile))
	if err == nil {
		err = json.Unmarshal(raw, &st)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("cannot read the position of the scrub: it starts at the beginning", "err", err)
		return scrubState{}
	}
	return st
}

func (s *Store) saveScrub(st scrubState) error {
	raw, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(s.dir, scrubFile), raw, filePerm)
}

// Scrub does one pass over the segments: it reads every record and verifies its checksum
// and, for a block with a reference, its hash. It copies the good records of a damaged
// segment to another one and removes the file. A damaged block counts as missing, see
// Damaged. Other reads and writes continue meanwhile.
func (s *Store) Scrub(ctx context.Context, o ScrubOptions) (Scrubbed, error) {
	limit := rate.NewLimiter(rate.Inf, scanWindowBytes)
	if o.BytesPerSecond > 0 {
		limit.SetLimit(rate.Limit(o.BytesPerSecond))
	}
	st := s.scrubState()
	from := uint32(0)
	if o.Resume {
		from = st.Next
	}
	var sum Scrubbed
	todo := s.segments()
	for len(todo) > 0 {
		number := todo[0]
		if todo = todo[1:]; number < from {
			continue
		}
		moved, err := s.scrubSegment(ctx, number, limit, &sum)
		if moved { // to the end, where it is verified later
			todo = slices.DeleteFunc(s.segments(), func(n uint32) bool { return n <= number })
		}
		if err == nil && o.Resume {
			err = s.saveScrub(scrubState{Next: number + 1, Completed: st.Completed})
		}
		if err != nil {
			return sum, fmt.Errorf("blocks: scrub segment %d: %w", number, s.readError(err))
		}
	}
	if err := s.saveScrub(scrubState{Completed: time.Now()}); err != nil {
		return sum, fmt.Errorf("blocks: scrub: %w", err)
	}
	return sum, nil
}

// CheckSegments checks that the file of each segment exists with its full length, without
// reading the file. It handles a damaged segment as Scrub does. It returns the number of lost
// blocks.
func (s *Store) CheckSegments(ctx context.Context) (gone uint64, err error) {
	for _, number := range s.segments() {
		if s.fileWhole(number) {
			continue
		}
		n, err := s.salvage(ctx, number)
		gone += n
		if err != nil {
			return gone, fmt.Errorf("blocks: check segment %d: %w", number, s.readError(err))
		}
	}
	return gone, nil
}

// segments returns the numbers of the segments with live records, and that of the newest segment.
func (s *Store) segments() []uint32 {
	s.stats.Lock()
	defer s.stats.Unlock()
	var numbers []uint32
	newest := uint32(0)
	for number := range s.sizes {
		newest = max(newest, number)
	}
	for number, l := range s.loads {
		if l.records > 0 && number != newest {
			numbers = append(numbers, number)
		}
	}
	if newest > 0 {
		numbers = append(numbers, newest)
	}
	slices.Sort(numbers)
	return numbers
}

// live returns whether a segment is still needed, and the size in bytes that its file should have.
func (s *Store) live(number uint32) (size int64, needed bool) {
	s.stats.Lock()
	defer s.stats.Unlock()
	newest := uint32(0)
	for n := range s.sizes {
		newest = max(newest, n)
	}
	return s.sizes[number], s.loads[number].records > 0 || number == newest
}

// fileWhole returns whether the file of a segment exists with its full length. A segment
// that Compact has removed meanwhile is not needed any more.
func (s *Store) fileWhole(number uint32) bool {
	s.stats.Lock()
	size := s.sizes[number] // live would scan all segments for each of them
	s.stats.Unlock()
	info, err := os.Stat(segmentPath(filepath.Join(s.dir, segmentsDir), number))
	if err == nil && info.Size() >= size {
		return true
	}
	_, needed := s.live(number)
	return !needed
}

// scrubSegment verifies a segment and adds its blocks to sum. moved is true if the segment was
// damaged: then its good records were copied to another segment and are not counted in sum yet.
func (s *Store) scrubSegment(ctx context.Context, number uint32, limit *rate.Limiter, sum *Scrubbed) (moved bool, err error) {
	var found Scrubbed
	good, err := s.verify(ctx, number, limit, &found)
	sum.Damaged += found.Damaged
	if err != nil {
		return false, err
	}
	if good {
		sum.Blocks += found.Blocks
		sum.Bytes += found.Bytes
		return false, nil
	}
	lost, err := s.salvage(ctx, number)
	sum.Damaged += lost
	return true, err
}

// unreadable returns whether an error means that the file of a segment cannot be read, and not that
// the store itself has failed.
func unreadable(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrNotExist) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// verify reads a segment and returns whether the whole segment is good.
func (s *Store) verify(ctx context.Context, number uint32, limit *rate.Limiter, sum *Scrubbed) (good bool, err error) {
	if !s.fileWhole(number) {
		return false, nil
	}
	size, _ := s.live(number) // all of this is durable
	h, err := s.files.acquire(number)
	if err != nil {
		if !unreadable(err) {
			return false, err
		}
		_, needed := s.live(number)
		return !needed, nil
	}
	defer s.files.release(h)
	if !s.same(h) {
		return false, nil
	}
	header := make([]byte, headerBytes)
	if _, err := h.f.ReadAt(header, 0); err != nil {
		return false, nil
	}
	for copied := 0; copied < headerBytes; copied += headerCopyBytes {
		if seed, ok := parseSegmentHeader(header[copied:copied+headerCopyBytes], number); !ok || seed != h.seed {
			return false, nil
		}
	}
	sc := &scan{src: h.f, seed: h.seed, size: size}
	var stopped error // stopped by the store, not by an error of the file
	err = sc.each(headerBytes, func(rec record) error {
		if stopped = limit.WaitN(ctx, int(rec.bytes)); stopped == nil {
			stopped = s.verifyRecord(ctx, rec, number, sum)
		}
		return stopped
	})
	switch {
	case stopped != nil:
		return false, stopped
	case err != nil && !unreadable(err):
		return false, err
	}
	return err == nil && len(sc.bad) == 0, nil
}

// same returns whether the path of a file still leads to the open file.
func (s *Store) same(h *handle) bool {
	named, err := os.Stat(segmentPath(filepath.Join(s.dir, segmentsDir), h.number))
	if err != nil {
		_, needed := s.live(h.number)
		return !needed
	}
	opened, err := h.f.Stat()
	return err == nil && os.SameFile(named, opened)
}

// verifyRecord verifies the hash of a block whose checksum is right.
func (s *Store) verifyRecord(ctx context.Context, rec record, number uint32, sum *Scrubbed) error {
	if rec.kind != kindBlock {
		return nil
	}
	alive, err := s.looksAlive(rec, number)
	if err != nil || !alive {
		return err
	}
	if hasHash(rec.data, rec.hash) {
		sum.Blocks++
		sum.Bytes += uint64(len(rec.data))
		return nil
	}
	sum.Damaged++
	return s.lose(ctx, number, []record{rec.clone()})
}

// lose marks the blocks in the given records as damaged.
func (s *Store) lose(ctx context.Context, number uint32, records []record) error {
	if len(records) == 0 {
		return nil
	}
	s.corrupt.Add(uint64(len(records)))
	s.log.ErrorContext(ctx, "scrub found damaged blocks", "segment", number, "blocks", len(records), "first", records[0].hash.B58String())
	err := s.do(context.WithoutCancel(ctx), recordSlack, func(b *batch) error {
		for _, rec := range records {
			if err := b.lose(rec.hash, number, uint32(rec.off)); err != nil {
				return err
			}
		}
		return nil
	})
	s.notifyLost()
	return err
}
