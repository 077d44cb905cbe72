package client

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
)

// flushRanges is the number of downloaded ranges after which the client flushes the file and
// writes them to the journal. A crash of the machine loses fewer than this number of ranges, and
// those that arrived during the last flush.
const flushRanges = 8

// progressHead is the first line of the journal of a download, and identifies the download. If
// the head differs, the client starts the download from the beginning.
type progressHead struct {
	ETag    string `json:"etag"`
	Version string `json:"version,omitempty"`
	Size    int64  `json:"size"`           // bytes
	Hash    string `json:"hash,omitempty"` // hash by which each range was verified
	Range   int64  `json:"range"`          // size of a range in bytes
}

// progressLine is a later line of the journal of a download. It names one range that is in the
// file.
type progressLine struct {
	Offset int64 `json:"offset"` // offset of the range in bytes
}

// progressJournal records which ranges of a file have arrived. It flushes the file in a goroutine
// of its own while further ranges arrive, so that the transfer does not wait for the disk. The
// methods has and done are safe for concurrent use.
type progressJournal struct {
	sync    func() error // flushes the file of the ranges
	journal *os.File     // only the goroutine that flushes writes to it
	flushes sync.WaitGroup

	mu       sync.Mutex
	there    map[int64]bool // offsets of the ranges that are in the file
	pending  []int64        // offsets of ranges that are not in the journal yet
	flushing bool           // a goroutine flushes
	failed   error          // first error of a flush
}

// openProgress reads the journal name of the download that head describes; data is the file with
// its bytes. If the journal is absent or has another head, openProgress starts a new one.
func openProgress(root *os.Root, name string, head progressHead, data *os.File) (*progressJournal, error) {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	p := &progressJournal{sync: data.Sync, journal: f, there: map[int64]bool{}}
	lines := bufio.NewScanner(f)
	var old progressHead
	if lines.Scan() && json.Unmarshal(lines.Bytes(), &old) == nil && old == head {
		for lines.Scan() {
			var line progressLine
			if json.Unmarshal(lines.Bytes(), &line) == nil { // a crash cut off any other line
				p.there[line.Offset] = true
			}
		}
	}
	if err := errors.Join(lines.Err(), p.rewrite(head, data)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return p, nil
}

// rewrite writes the journal from the start, so that it ends with a complete line, and truncates
// or extends data to its final size.
func (p *progressJournal) rewrite(head progressHead, data *os.File) error {
	if err := p.journal.Truncate(0); err != nil {
		return err
	}
	if _, err := p.journal.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if len(p.there) == 0 {
		if err := data.Truncate(0); err != nil {
			return err
		}
	}
	out := json.NewEncoder(p.journal)
	if err := out.Encode(head); err != nil {
		return err
	}
	for off := range p.there {
		if err := out.Encode(progressLine{off}); err != nil {
			return err
		}
	}
	return data.Truncate(head.Size)
}

func (p *progressJournal) has(off int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.there[off]
}

// done records that the range at the offset off is in the file. It returns the error of an
// earlier flush.
func (p *progressJournal) done(off int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, off)
	if len(p.pending) >= flushRanges && !p.flushing && p.failed == nil {
		p.flushing = true
		p.flushes.Go(p.flush)
	}
	return p.failed
}

// flush records pending ranges until less than flushRanges are pending.
func (p *progressJournal) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.failed == nil && len(p.pending) >= flushRanges {
		batch := p.pending
		p.pending = nil
		p.mu.Unlock()
		err := p.record(batch)
		p.mu.Lock()
		p.failed = err
	}
	p.flushing = false
}

// record flushes the file and then writes the offsets ranges to the journal. The ranges must be
// in the file.
func (p *progressJournal) record(ranges []int64) error {
	if err := p.sync(); err != nil {
		return err
	}
	out := json.NewEncoder(p.journal)
	for _, off := range ranges {
		if err := out.Encode(progressLine{off}); err != nil {
			return err
		}
	}
	return nil
}

// close writes the pending ranges to the journal and closes it. No other method may run at the
// same time.
func (p *progressJournal) close() error {
	p.flushes.Wait()
	err := p.failed
	if err == nil && len(p.pending) > 0 {
		err = p.record(p.pending)
	}
	return errors.Join(err, p.journal.Close())
}
