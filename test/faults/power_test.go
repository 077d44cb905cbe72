//go:build faults

package faults

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// diskSize is that of a disk for a whole data folder, in MiB. Images are sparse.
const diskSize = 512

// onDisks starts three nodes, each on a disk of its own.
func onDisks(t *testing.T, env ...string) (*harness.Cluster, []*disk) {
	t.Helper()
	return onDisksOf(t, diskSize, env...)
}

// onDisksOf is onDisks of so many MiB each.
func onDisksOf(t *testing.T, size int, env ...string) (*harness.Cluster, []*disk) {
	t.Helper()
	var disks []*disk
	var folders []string
	for range 3 {
		d := newDisk(t, size)
		disks, folders = append(disks, d), append(folders, filepath.Join(d.at, "n"))
		if err := os.Mkdir(folders[len(folders)-1], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return harness.Start(t, harness.Options{Folders: folders, Env: env}), disks
}

// TestEveryAcknowledgedPinOutlivesThePowerOfAllNodes promises that no acknowledged pin is lost when all processes are
// killed at once under load and their disks lose what was not flushed (A2).
func TestEveryAcknowledgedPinOutlivesThePowerOfAllNodes(t *testing.T) {
	t.Parallel()
	c, disks := onDisks(t)
	source := harness.StartBoxo(t)
	l := newLoad(t, c, source, 100)
	stop := l.keepPosting(t.Context())
	l.more(t, 1000, healWithin)
	powerGoes(t, c, disks, func() error {
		err := stop()
		source.Close() // from now on there is only what the nodes have
		return err
	})
	began := time.Now()
	for _, n := range c.Nodes {
		n.Restart()
	}
	l.check(t)
	t.Logf("%d acknowledged pins, %d of unknown outcome; together again after %s", l.count(), len(l.unsure), time.Since(began).Round(time.Millisecond))
	status := c.Nodes[0].Status().Pins
	if status.Pinned == 0 {
		t.Error("no pin was pinned before the power went: the content shows nothing")
	}
	readPinned(t, l)
}

// powerGoes kills all nodes at once, has their disks lose what was not flushed, and waits
// for the clients to end.
func powerGoes(t *testing.T, c *harness.Cluster, disks []*disk, clients func() error) {
	t.Helper()
	// What proves that the disks do lose something.
	for _, d := range disks {
		writePair(t, d)
	}
	for _, n := range c.Nodes {
		n.Kill()
	}
	for _, d := range disks {
		d.cutPower()
	}
	if err := clients(); err != nil {
		t.Fatal(err)
	}
	for _, d := range disks {
		d.mount()
		wantPair(t, d)
	}
}

// readPinned reads the content of pins that are pinned.
func readPinned(t *testing.T, l *load) {
	t.Helper()
	pins, err := l.cluster.Nodes[1].Pins(l.token).ListAll(t.Context(), map[string][]string{"status": {"pinned"}}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	files, read := map[string]harness.Offered{}, 0
	for _, f := range l.files {
		files[f.CID] = f
	}
	for _, p := range pins {
		f, todo := files[p.Pin.CID]
		if !todo {
			continue
		}
		delete(files, p.Pin.CID)
		n := l.cluster.Nodes[read%len(l.cluster.Nodes)]
		if !f.Matches(n.Get(f.CID)) {
			t.Errorf("%s reads other bytes of %s", n.Name, f.CID)
		}
		if read++; read == 15 && !*long {
			break
		}
	}
	t.Logf("%d pins are pinned, %d contents read whole", len(pins), read)
}

// writePair writes a file that is flushed, and one that is not.
func writePair(t *testing.T, d *disk) {
	t.Helper()
	for name, flush := range map[string]bool{"flushed": true, "unflushed": false} {
		f, err := os.Create(filepath.Join(d.at, name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(make([]byte, 100_000))
		if err == nil && flush {
			err = f.Sync()
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// wantPair wants of writePair's files the one and not the other.
func wantPair(t *testing.T, d *disk) {
	t.Helper()
	kept, err := os.ReadFile(filepath.Join(d.at, "flushed"))
	if err != nil || len(kept) != 100_000 {
		t.Fatalf("of a flushed file %d bytes are there: %v", len(kept), err)
	}
	lost, err := os.ReadFile(filepath.Join(d.at, "unflushed"))
	if len(lost) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("of a file that was not flushed %d bytes are there, %v: the disk lost nothing and the test shows nothing", len(lost), err)
	}
}
