//go:build conformance

package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	// repairedWithin is what P11 and A28 give a node from the detection of
	// damage, or of a file that is gone, to a whole copy.
	repairedWithin = 60 * time.Second
	damageFiles    = 8
	damageBytes    = 2 << 20 // of each file: several blocks
	// flipEvery spaces the flipped bits: every block of 256 KiB and more is hit.
	flipEvery = 100_000
)

// segmentFiles returns the files that a node keeps blocks in.
func segmentFiles(t *testing.T, n *harness.Node) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.Dir, "blocks", "segments", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// flipBits damages what lies in every segment of a node, now.
func flipBits(t *testing.T, n *harness.Node) {
	t.Helper()
	for _, path := range segmentFiles(t, n) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		for off := int64(flipEvery); off < info.Size(); off += flipEvery {
			b := make([]byte, 1)
			_, rerr := f.ReadAt(b, off)
			b[0] ^= 1 << (off / flipEvery % 8)
			_, werr := f.WriteAt(b, off)
			if err := errors.Join(rerr, werr); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func removeSegments(t *testing.T, n *harness.Node) {
	t.Helper()
	for _, path := range segmentFiles(t, n) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func wipeBlocks(t *testing.T, n *harness.Node) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(n.Dir, "blocks")); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedBlocksAreNeverServedAndRepaired promises that no node ever serves a wrong byte of content that one of
// three nodes has damaged, and that its copy is whole again within repairedWithin.
func TestDamagedBlocksAreNeverServedAndRepaired(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Replication: 3})
	s := newService(t, c, "damage@example.org")
	source := harness.StartBoxo(t)
	files := source.AddRandom(damageFiles, damageBytes)
	for _, f := range files {
		s.pinned(s.post(harness.Pin{CID: f.CID, Origins: source.Addrs}).RequestID)
	}
	wholeEverywhere(t, c)
	source.Close()
	readAll := func(t *testing.T, c *harness.Cluster) {
		t.Helper()
		for _, n := range c.Live() {
			for _, f := range files {
				if sum := sha256.Sum256(n.Get(f.CID)); hex.EncodeToString(sum[:]) != f.SHA256 {
					t.Fatalf("%s gives wrong bytes for %s", n.Name, f.CID)
				}
			}
		}
	}
	for i, tc := range []struct {
		name   string
		harm   func(t *testing.T, n *harness.Node)
		live   bool // the node runs meanwhile
		scrubs bool // the scrub is told to find it; else reads, or the node itself, do
	}{
		{"bits flip under a running node, reads find it", flipBits, true, false},
		{"bits flip under a running node, scrub finds it", flipBits, true, true},
		{"bits flip under a stopped node, reads find it", flipBits, false, false},
		{"bits flip under a stopped node, scrub finds it", flipBits, false, true},
		{"segments go under a running node, nobody looks", removeSegments, true, false},
		{"segments go under a running node, scrub finds it", removeSegments, true, true},
		{"segments go while the node is stopped", removeSegments, false, false},
		{"the whole folder of blocks is gone", wipeBlocks, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := c.As(t)
			n := c.Nodes[i%len(c.Nodes)]
			if !tc.live {
				n.Stop()
			}
			tc.harm(t, n)
			if !tc.live {
				n.Restart()
				c.Settle()
			}
			begin := time.Now()
			if tc.scrubs {
				t.Logf("scrub says %q", n.CLI("scrub"))
			}
			readAll(t, c)
			wholeEverywhere(t, c)
			t.Logf("whole again after %v", time.Since(begin))
			if took := time.Since(begin); took > repairedWithin {
				t.Errorf("the copy was whole after %v, %v are allowed", took, repairedWithin)
			}
			if out := n.CLI("scrub"); !strings.Contains(out, "damaged   0\n") {
				t.Errorf("after the repair scrub finds\n%s", out)
			}
			readAll(t, c)
		})
	}
}

// wholeEverywhere waits until every node holds every root, whole.
func wholeEverywhere(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, repairedWithin, "every node holds a whole copy", func() (bool, error) {
		for _, n := range c.Nodes {
			m := n.Metrics()
			if missing, hurt := m["holdfast_blocks_missing"], m["holdfast_scrub_damaged_roots"]; missing+hurt > 0 {
				return false, fmt.Errorf("%s misses %v blocks of %v roots", n.Name, missing, hurt)
			}
			if live := m["holdfast_blocks_live_bytes"]; live < damageFiles*damageBytes {
				return false, fmt.Errorf("%s has %v bytes of blocks", n.Name, live)
			}
			var disk int64 // what a restart would find
			for _, path := range segmentFiles(t, n) {
				if info, err := os.Stat(path); err == nil {
					disk += info.Size()
				}
			}
			if disk < damageFiles*damageBytes {
				return false, fmt.Errorf("%s has %d bytes of segments", n.Name, disk)
			}
			s := n.Status()
			if s.Pins.Pinned != damageFiles || s.Pins.UnderReplicated != 0 {
				return false, fmt.Errorf("%s sees %+v", n.Name, s.Pins)
			}
		}
		return true, nil
	})
}

// TestDamageThatNobodyCanRepairIsSaid promises that scrub fails and says so if the only copy is damaged, that the
// rest of the copy stays, and that it is whole again when the content turns up.
func TestDamageThatNobodyCanRepairIsSaid(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 1})
	n := c.Nodes[0]
	path := filepath.Join(t.TempDir(), "file")
	content := make([]byte, 5<<20)
	for i := range content {
		content[i] = byte(i >> 13)
	}
	content = append(content, t.Name()...)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(n.CLI("add", path))
	flipBits(t, n)
	r := n.TryCLI("", "scrub")
	if r.Code != 1 || !strings.Contains(r.Stderr, "not repaired yet") || strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("scrub: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := n.TryCLI("", "get", root); r.Code == 0 || !bytes.HasPrefix(content, []byte(r.Stdout)) {
		t.Errorf("get: exit code %d with %d bytes: %s", r.Code, len(r.Stdout), r.Stderr)
	}
	if s := n.Status(); s.Pins.Failed != 0 {
		t.Errorf("%+v: a damaged copy was given up", s.Pins)
	}
	n.CLI("add", path)
	harness.Eventually(t, 2*repairedWithin, "the copy is whole", func() (bool, error) {
		m := n.Metrics()
		return m["holdfast_blocks_missing"]+m["holdfast_scrub_damaged_roots"] == 0 && n.Status().Pins.Pinned > 0, nil
	})
	if out := n.CLI("scrub"); !strings.Contains(out, "damaged   0\n") {
		t.Errorf("scrub finds\n%s", out)
	}
	if !bytes.Equal(n.Get(root), content) {
		t.Error("get gives other bytes")
	}
}
