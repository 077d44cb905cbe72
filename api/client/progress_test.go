package client

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestRangesArriveWhileTheDiskIsSlow promises that a flush that takes long stops no range, that ranges
// which arrived during a flush are recorded too, and that an error of a flush ends the download.
func TestRangesArriveWhileTheDiskIsSlow(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	data, err := os.Create(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = data.Close() }()
	head := progressHead{ETag: "etag", Size: 100, Range: 1}
	open := func() *progressJournal {
		t.Helper()
		p, err := openProgress(root, "journal", head, data)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const ranges = 3*flushRanges + 1
	p := open()
	begun, release := make(chan struct{}, ranges), make(chan struct{})
	p.sync = func() error {
		begun <- struct{}{}
		<-release
		return data.Sync()
	}
	for off := range int64(ranges) {
		if err := p.done(off); err != nil {
			t.Fatal(err)
		}
		if off == flushRanges {
			<-begun // and the flush ends only after the last range
		}
	}
	close(release)
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	p = open()
	for off := range int64(ranges) {
		if !p.has(off) {
			t.Errorf("range %d is not recorded", off)
		}
	}
	full := errors.New("the disk is full")
	p.sync = func() error { return full }
	for off := range int64(ranges) {
		if err := p.done(off); err != nil && !errors.Is(err, full) {
			t.Fatal(err)
		}
	}
	if err := p.close(); !errors.Is(err, full) {
		t.Errorf("the error of a flush is %v", err)
	}
}
