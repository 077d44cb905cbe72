package client

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
)

// flushRanges is the number of ranges after which the client flushes the file and records the
// ranges. A crash of the machine loses at most this number of ranges of progress.
const flushRanges = 16

// progressHead is the first line of the journal of a download, and describes the download. The
// client begins a download anew if the journal has another head.
type progressHead struct {
	ETag    string `json:"etag"`
	Version string `json:"version,omitempty"`
	Size    int64  `json:"size"`           // bytes
	Hash    string `json:"hash,omitempty"` // hash by which each range was verified
	Range   int64  `json:"range"`          // size of a range in bytes
}

// progressLine is a line after the head. Each names one range that is in the file.
type progressLine struct {
	Offset int64 `json:"offset"` // offset of the range in bytes
}

// progressJournal records which ranges of a file were received.
type progressJournal struct {
	data *os.File

	mu      sync.Mutex
	journal *os.File
	there   map[int64]bool
	pending []int64 // offsets of ranges that are not recorded yet
}

// openProgress reads the journal of the download that head describes and whose bytes are in data.
// If the journal is absent or has another head, openProgress begins a new one.
func openProgress(root *os.Root, name string, head progressHead, data *os.File) (*progressJournal, error) {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	p := &progressJournal{data: data, journal: f, there: map[int64]bool{}}
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
	if err := errors.Join(lines.Err(), p.rewrite(head)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return p, nil
}

// rewrite writes the journal anew, so that the journal ends with a complete line.
func (p *progressJournal) rewrite(head progressHead) error {
	if err := p.journal.Truncate(0); err != nil {
		return err
	}
	if _, err := p.journal.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if len(p.there) == 0 {
		if err := p.data.Truncate(0); err != nil {
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
	return p.data.Truncate(head.Size)
}

func (p *progressJournal) has(off int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.there[off]
}

// done records that the range at an offset is in the file.
func (p *progressJournal) done(off int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, off)
	if len(p.pending) < flushRanges {
		return nil
	}
	return p.record()
}

// record flushes the file and then writes the pending ranges to the journal. The caller holds mu.
func (p *progressJournal) record() error {
	if len(p.pending) == 0 {
		return nil
	}
	if err := p.data.Sync(); err != nil {
		return err
	}
	out := json.NewEncoder(p.journal)
	for _, off := range p.pending {
		if err := out.Encode(progressLine{off}); err != nil {
			return err
		}
	}
	p.pending = nil
	return nil
}

func (p *progressJournal) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.record(), p.journal.Close())
}
