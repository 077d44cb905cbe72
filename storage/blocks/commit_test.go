package blocks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	blocks "github.com/ipfs/go-block-format"
)

// busy keeps the committer in a batch until it is released.
func busy(t *testing.T, s *Store) (release func()) {
	t.Helper()
	began, ended := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		err := s.do(t.Context(), 1, func(*batch) error {
			close(began)
			<-ended
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-began
	return func() {
		close(ended)
		group.Wait()
	}
}

// waitQueued returns when n ops wait for their batch.
func waitQueued(s *Store, n int) {
	for {
		s.mu.Lock()
		queued := len(s.queue)
		s.mu.Unlock()
		if queued == n {
			return
		}
		runtime.Gosched()
	}
}

// A put whose context ends while it waits is withdrawn without a trace, and one that is in a batch is committed.
func TestWhatWaitsIsWithdrawnAndNothingElse(t *testing.T) {
	s := openTest(t, t.TempDir())
	blks := makeBlocks(t, 1, 3, 1_000)
	release := busy(t, s)
	put := func(ctx context.Context, i int) <-chan error {
		answer := make(chan error, 1)
		go func() { answer <- s.Put(ctx, fmt.Sprint("o", i), blks[i:i+1]) }()
		waitQueued(s, i+1)
		return answer
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second, third := put(t.Context(), 0), put(ctx, 1), put(t.Context(), 2)
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("withdrawn: %v", err)
	}
	waitQueued(s, 2)
	release()
	must(t, errors.Join(<-first, <-third))
	wantHere(t, s, blks[0], blks[2])
	wantGone(t, s, blks[1])
	late, stop := context.WithCancel(t.Context())
	defer stop()
	must(t, s.do(late, 1, func(*batch) error { // it is told what came of it
		stop()
		return nil
	}))
}

// Close commits the writes that wait and refuses later ones with ErrClosed.
func TestCloseEndsTheWritesThatWait(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	const waiting = 5
	blks := makeBlocks(t, 1, waiting, 1_000)
	release := busy(t, s)
	var group sync.WaitGroup
	for i := range blks {
		group.Go(func() {
			if err := s.Put(t.Context(), fmt.Sprint("o", i), blks[i:i+1]); err != nil {
				t.Error(err)
			}
		})
	}
	waitQueued(s, waiting)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	<-s.closing
	if err := s.Put(t.Context(), "late", []blocks.Block{rawBlock(t, []byte("late"))}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	select {
	case err := <-closed:
		t.Errorf("closed while writes are under way: %v", err)
	default:
	}
	release()
	group.Wait()
	must(t, <-closed)
	again := openTest(t, dir)
	wantHere(t, again, blks...)
}

// An operation that breaks the store fails its whole batch and all later writes with ErrBroken, and Close still ends.
func TestABreakdownIsToldToEverybodyWhoWaits(t *testing.T) {
	s := openTest(t, t.TempDir())
	blks := makeBlocks(t, 1, 3, 1_000)
	release := busy(t, s)
	answers := make(chan error, 2)
	go func() { answers <- s.Put(t.Context(), "before", blks[:1]) }()
	waitQueued(s, 1)
	go func() {
		answers <- s.do(t.Context(), 1, func(*batch) error { return errors.New("the index cannot be read") })
	}()
	waitQueued(s, 2)
	release()
	for range 2 {
		if err := <-answers; !errors.Is(err, ErrBroken) {
			t.Errorf("in the batch: %v, want ErrBroken", err)
		}
	}
	<-s.Failed()
	if err := s.Put(t.Context(), "after", blks[1:]); !errors.Is(err, ErrBroken) {
		t.Errorf("after it: %v, want ErrBroken", err)
	}
	wantGone(t, s, blks...)
	must(t, s.Close())
}

// References that end and begin again within one batch leave what they would leave in several. So they do after a
// crash and in a rebuilt index.
func TestAReferenceEndsAndBeginsAgainInOneBatch(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 6, 1_000)
	mustPut(t, s, "old", blks[0])
	must(t, s.Seal(t.Context(), "old", Sealed{Bytes: 1}))
	must(t, s.PutAndSeal(t.Context(), "old", blks[1:2], Sealed{Bytes: 2, Hidden: true})) // sealed visible until then
	wantVisible(t, s, false, blks[:2]...)
	must(t, s.do(t.Context(), recordSlack, func(b *batch) error {
		_, err1 := b.putAndSeal("new", blks[2:3], nil, Sealed{Bytes: 1})
		_, err2 := b.bury("new", sweepStep)
		err3 := b.put("new", blks[3:4], nil)
		_, err4 := b.bury("new", sweepStep)
		_, err5 := b.putAndSeal("new", blks[4:5], nil, Sealed{Bytes: 3, Hidden: true})
		_, err6 := b.bury("old", sweepStep)
		_, err7 := b.putAndSeal("old", blks[5:], nil, Sealed{Bytes: 4})
		return errors.Join(err1, err2, err3, err4, err5, err6, err7, b.put("open", blks[5:], nil))
	}))
	want := describe(t, s)
	check := func(s *Store) {
		t.Helper()
		must(t, s.Compact(t.Context()))
		if got := describe(t, s); got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
		wantGone(t, s, blks[:4]...)
		wantHere(t, s, blks[4:]...)
		wantVisible(t, s, false, blks[4])
		wantVisible(t, s, true, blks[5])
	}
	check(openTest(t, kill(t, dir)))
	check(s)
	check(rebuild(t, s))
}

// A put into a store whose folder was removed or moved fails and breaks the store. The file that is open would take
// the write: the node has to begin again.
func TestAStoreWhoseFolderIsGoneIsBroken(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, segments string){
		"removed": func(t *testing.T, segments string) { must(t, os.RemoveAll(segments)) },
		"moved":   func(t *testing.T, segments string) { must(t, os.Rename(segments, segments+".old")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTest(t, dir)
			mustPut(t, s, "reference", makeBlocks(t, 1, 1, 100)...)
			lose(t, filepath.Join(dir, segmentsDir))
			if err := s.Put(t.Context(), "reference", makeBlocks(t, 2, 1, 100)); !errors.Is(err, ErrBroken) {
				t.Fatalf("a write ends in %v", err)
			}
			<-s.Failed()
			must(t, s.Close())
		})
	}
}

// A put that needs a new segment breaks the store if the folder is gone.
func TestAStoreWithoutAFolderForTheNextSegmentIsBroken(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = 8 << 10
	s := openWith(t, dir, opts)
	mustPut(t, s, "reference", makeBlocks(t, 1, 1, 9000)...)
	must(t, os.RemoveAll(filepath.Join(dir, segmentsDir)))
	if err := s.Put(t.Context(), "reference", makeBlocks(t, 2, 1, 100)); !errors.Is(err, ErrBroken) {
		t.Fatalf("a write ends in %v", err)
	}
	<-s.Failed()
	must(t, s.Close())
}

// Blocks that are put after the current segment was removed or replaced are here after a restart.
func TestWritesGoOnInASegmentThatIsThere(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, segments string){
		"removed":      removeFiles,
		"another file": replaceFiles,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTest(t, dir)
			mustPut(t, s, "reference", makeBlocks(t, 1, 1, 100)...)
			lose(t, filepath.Join(dir, segmentsDir))
			blks := makeBlocks(t, 2, 3, 100)
			mustPut(t, s, "reference", blks...)
			wantHere(t, s, blks...)
			must(t, s.Close())
			wantHere(t, openTest(t, dir), blks...)
		})
	}
}

// removeFiles removes each file of a folder.
func removeFiles(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, f := range files {
		must(t, os.Remove(f))
	}
}

// replaceFiles puts a copy in the place of each file of a folder.
func replaceFiles(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		must(t, os.WriteFile(f+".new", b, 0o600))
		must(t, os.Rename(f+".new", f))
	}
}
