package volume

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

const mib = 1 << 20

// disks are file systems as a test wants them, by folder.
type disks struct {
	mu    sync.Mutex
	space map[string]durable.Space
	fault error
}

func (d *disks) of(path string) (durable.Space, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.space[path], d.fault
}

func (d *disks) set(path string, change func(s *durable.Space)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.space[path]
	change(&s)
	d.space[path] = s
}

// open watches one folder per name, each a file system of 10 GiB that is empty.
func open(t *testing.T, o Options, names ...string) (*Watch, *disks, map[string]string) {
	t.Helper()
	d, paths := &disks{space: map[string]durable.Space{}}, map[string]string{}
	var folders []Folder
	for i, name := range names {
		paths[name] = t.TempDir()
		d.space[paths[name]] = durable.Space{Device: uint64(i), Total: 10 << 30, Free: 10 << 30}
		folders = append(folders, Folder{Name: name, Path: paths[name]})
	}
	o.SpaceOf = d.of
	w, err := Open(folders, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, d, paths
}

// The level of a volume follows its free bytes and changes back only with more room than it began with. The ballast
// counts as free.
func TestLevelsFollowTheFreeBytesAndDoNotFlutter(t *testing.T) {
	const reserve = 512 * mib // 5 % of 10 GiB, less than 1 GiB
	w, d, paths := open(t, Options{}, "raft")
	for _, step := range []struct {
		free uint64 // what the file system says: the ballast is gone from it
		want Level
	}{
		{9 << 30, Roomy},
		{reserve - 64*mib, Roomy}, // with the ballast just enough
		{reserve - 65*mib, Low},
		{reserve - 1*mib, Low}, // a little more is no way back
		{reserve, Roomy},
		{reserve/2 - 64*mib, Low},
		{reserve/2 - 65*mib, Tight},
		{reserve/2 - 1*mib, Tight},
		{reserve / 2, Low},
		{9 << 30, Roomy},
	} {
		d.set(paths["raft"], func(s *durable.Space) { s.Free = step.free })
		if err := w.Measure(); err != nil {
			t.Fatal(err)
		}
		if got := w.Level("raft"); got != step.want {
			t.Errorf("%d bytes free: %s, want %s", step.free, got, step.want)
		}
	}
}

// A volume with fewer than fewFiles free inodes is Tight.
func TestFewInodesAreTight(t *testing.T) {
	w, d, paths := open(t, Options{}, "state")
	d.set(paths["state"], func(s *durable.Space) { s.Files, s.FreeFiles = 1000, fewFiles-1 })
	if err := w.Measure(); err != nil || w.Level("state") != Tight {
		t.Errorf("%s, %v", w.Level("state"), err)
	}
}

// The reserve of a volume is by default the smaller of 1 GiB and 5 %, but at least smallestReserve. The options
// change both.
func TestTheReserveIsTheSmallerOfBytesAndPercent(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reserve int64
		percent int
		total   uint64
		want    uint64
	}{
		{"large disk", 0, 0, 1 << 40, 1 << 30},
		{"small disk", 0, 0, 4 << 30, (4 << 30) / 100 * 5},
		{"tiny disk", 0, 0, 256 * mib, smallestReserve},
		{"as told", 8 * mib, 0, 256 * mib, 8 * mib},
		{"more percent", 0, 20, 4 << 30, (4 << 30) / 100 * 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := t.TempDir()
			d := &disks{space: map[string]durable.Space{path: {Total: tc.total, Free: tc.total}}}
			w, err := Open([]Folder{{"a", path}}, Options{Reserve: tc.reserve, Percent: tc.percent, SpaceOf: d.of})
			if err != nil || w.Volumes()[0].Reserve != tc.want {
				t.Errorf("%+v, %v, want %d", w.Volumes(), err, tc.want)
			}
		})
	}
}

// Folders on one file system are one volume.
func TestFoldersOfOneFileSystemAreOneVolume(t *testing.T) {
	a, b, c := t.TempDir(), t.TempDir(), t.TempDir()
	d := &disks{space: map[string]durable.Space{a: {Device: 1}, b: {Device: 2}, c: {Device: 1}}}
	w, err := Open([]Folder{{"a", a}, {"b", b}, {"c", c}}, Options{SpaceOf: d.of})
	if err != nil {
		t.Fatal(err)
	}
	v := w.Volumes()
	if len(v) != 2 || !slices.Equal(v[0].Folders, []string{"a", "c"}) || !slices.Equal(v[1].Folders, []string{"b"}) {
		t.Errorf("%+v", v)
	}
}

// The ballast is removed when less than its quarter is free, not before, and made again when there is room.
func TestTheBallastGoesWithTheLastBytesAndComesBack(t *testing.T) {
	w, d, paths := open(t, Options{Reserve: 4 * mib}, "raft")
	file := filepath.Join(paths["raft"], BallastFile)
	var on syscall.Stat_t
	if err := syscall.Stat(file, &on); err != nil || on.Blocks*512 < mib {
		t.Fatalf("the ballast takes %d bytes: %v", on.Blocks*512, err)
	}
	there := func() bool { _, err := os.Stat(file); return err == nil }
	d.set(paths["raft"], func(s *durable.Space) { s.Free = mib / 2 })
	if err := w.Measure(); err != nil || !there() || w.Level("raft") != Tight {
		t.Fatalf("too early: %t, %s, %v", there(), w.Level("raft"), err)
	}
	d.set(paths["raft"], func(s *durable.Space) { s.Free = mib/4 - 1 })
	if err := w.Measure(); err != nil || there() {
		t.Fatalf("ballast on a full disk: %t, %v", there(), err)
	}
	d.set(paths["raft"], func(s *durable.Space) { s.Free = 9 << 30 })
	if err := w.Measure(); err != nil || !there() || w.Level("raft") != Roomy {
		t.Errorf("no ballast with room: %t, %s, %v", there(), w.Level("raft"), err)
	}
}

// Spare returns the bytes that may be written until a level, and no limit if the file system cannot be measured.
func TestSpareEndsAtTheLevel(t *testing.T) {
	w, d, paths := open(t, Options{Reserve: 12 * mib}, "blocks")
	d.set(paths["blocks"], func(s *durable.Space) { s.Free = 10 * mib }) // and 4 of ballast
	check := func(low, tight, free int64) {
		t.Helper()
		for level, want := range map[Level]int64{Low: low, Tight: tight} {
			if spare, all := w.Spare("blocks", level); spare != want || all != free {
				t.Errorf("%d of %d bytes until %s, want %d of %d", spare, all, level, want, free)
			}
		}
	}
	check(2*mib, 8*mib, 10*mib)
	d.set(paths["blocks"], func(s *durable.Space) { s.Free = 5 * mib })
	if err := w.Measure(); err != nil {
		t.Fatal(err)
	}
	check(0, 3*mib, 5*mib)
	d.mu.Lock()
	d.fault = errors.New("no answer")
	d.mu.Unlock()
	check(math.MaxInt64, math.MaxInt64, math.MaxInt64) // what cannot be measured refuses no writes
}

// Full removes the ballast for the first write on a full disk, and lets later ones wait for room. A wait also ends
// when the watch is closed.
func TestAWriteOnAFullDiskGetsTheBallastAndThenWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d, paths := open(t, Options{Reserve: 4 * mib}, "state")
		file := filepath.Join(paths["state"], BallastFile)
		d.set(paths["state"], func(s *durable.Space) { s.Free = 0 })
		w.Full("state")
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the ballast is still there: %v", err)
		}
		full := func() <-chan struct{} {
			done := make(chan struct{})
			go func() { defer close(done); w.Full("state") }()
			synctest.Wait()
			select {
			case <-done:
				t.Fatal("did not wait")
			default:
			}
			return done
		}
		done := full()
		d.set(paths["state"], func(s *durable.Space) { s.Free = 2 * mib })
		<-done
		d.set(paths["state"], func(s *durable.Space) { s.Free = 0 })
		done = full()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		<-done
	})
}

// A second write that meets the full disk finds the room that the ballast has left and does not wait. Several writes
// meet the end of a disk at the same moment: the index has to go on for something to be deleted.
func TestTheBallastIsForEveryWriteThatMetTheFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d, paths := open(t, Options{}, "state")
		d.set(paths["state"], func(s *durable.Space) { s.Free = 0 })
		if !w.Full("state") {
			t.Fatal("the first has no room")
		}
		d.set(paths["state"], func(s *durable.Space) { s.Free = maxBallast - mib }) // it has gone on
		done := make(chan bool, 1)
		go func() { done <- w.Full("state") }()
		select {
		case <-time.After(time.Minute):
			t.Error("the second waits for more than there was")
			_ = w.Close()
			<-done
		case room := <-done:
			if !room {
				t.Error("the second has no room")
			}
		}
	})
}

// Run measures the volumes again and again until its context ends, and returns no error then.
func TestRunMeasuresUntilItIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, d, paths := open(t, Options{}, "raft")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		d.set(paths["raft"], func(s *durable.Space) { s.Free = 0 })
		<-time.After(2 * DefaultEvery)
		if got := w.Level("raft"); got != Tight {
			t.Errorf("full for two turns: %s", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Bytes of a ballast that somebody removed or cut off count once as free. The ballast is made again when there is
// room.
func TestABallastThatSomebodyElseTookCountsOnce(t *testing.T) {
	const reserve, ballast = 512 * mib, 64 * mib
	for name, take := range map[string]func(path string) error{
		"removed":   os.Remove,
		"cut off":   func(path string) error { return os.Truncate(path, 1*mib) },
		"of a hole": func(path string) error { return errors.Join(os.Truncate(path, 0), os.Truncate(path, ballast)) },
	} {
		t.Run(name, func(t *testing.T) {
			w, d, paths := open(t, Options{}, "raft")
			path := paths["raft"]
			if err := take(filepath.Join(path, "ballast")); err != nil {
				t.Fatal(err)
			}
			d.set(path, func(s *durable.Space) { s.Free = reserve - 1*mib }) // all there is
			if err := w.Measure(); err != nil {
				t.Fatal(err)
			}
			if got := w.Volumes()[0]; got.Free != reserve-1*mib || got.Level != Low {
				t.Errorf("%d MiB free, %v", got.Free/mib, got.Level)
			}
			if got, _ := w.Spare("raft", Low); got != 0 {
				t.Errorf("%d bytes of the reserve are given to content", got)
			}
			d.set(path, func(s *durable.Space) { s.Free = 9 << 30 })
			if err := w.Measure(); err != nil {
				t.Fatal(err)
			}
			if got, err := durable.Allocated(filepath.Join(path, "ballast")); err != nil || got < ballast {
				t.Errorf("a ballast of %d bytes, %v", got, err)
			}
		})
	}
}

// A ballast file with a hole counts for no bytes. A backup that was put back may leave such a file.
func TestAHoleIsNoBallast(t *testing.T) {
	w, d, paths := open(t, Options{}, "raft")
	path := paths["raft"]
	file := filepath.Join(path, "ballast")
	if err := errors.Join(w.Close(), os.Truncate(file, 0), os.Truncate(file, 64*mib)); err != nil {
		t.Fatal(err)
	}
	d.set(path, func(s *durable.Space) { s.Free = 100 * mib })
	again, err := Open([]Folder{{Name: "raft", Path: path}}, Options{SpaceOf: d.of})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := again.Volumes()[0]; got.Free != 100*mib {
		t.Errorf("%d MiB free", got.Free/mib)
	}
}
