//go:build faults

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// movesWithin is how soon the leadership must be elsewhere when the disk of the leader's Raft log is full: a second or
// so, and on a busy machine later. In virtual time TestAFullDiskTakesTheLeadershipUntilThereIsRoom allows 5 s.
const movesWithin = 30 * time.Second

// pins returns how many pins a step takes in the long form, and in the short one.
func pins(full, short int) int {
	if *long {
		return full
	}
	return short
}

// onVolumes starts three nodes, one folder of each on a disk of its own.
func onVolumes(t *testing.T, folder string, size int, env ...string) (*harness.Cluster, []*disk) {
	t.Helper()
	return nodesOnVolumes(t, 3, folder, size, env...)
}

func nodesOnVolumes(t *testing.T, nodes int, folder string, size int, env ...string) (*harness.Cluster, []*disk) {
	t.Helper()
	var disks []*disk
	var folders []string
	for range nodes {
		data, err := os.MkdirTemp("", fmt.Sprintf("hff-%d-", os.Getpid()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(data); err != nil {
				t.Error(err)
			}
		})
		d := newDisk(t, size)
		d.on(filepath.Join(data, folder))
		disks, folders = append(disks, d), append(folders, data)
	}
	return harness.Start(t, harness.Options{Nodes: nodes, Folders: folders, Env: env}), disks
}

// diskOf returns the disk of one node.
func diskOf(c *harness.Cluster, disks []*disk, n *harness.Node) *disk {
	return disks[slices.Index(c.Nodes, n)]
}

// TestAFullRaftVolumeCostsNoMoreThanTheLeadership promises that a node whose Raft volume is full loses the leadership
// at most: no process ends, and nothing has to be started again (A8).
func TestAFullRaftVolumeCostsNoMoreThanTheLeadership(t *testing.T) {
	t.Parallel()
	c, disks := onVolumes(t, "raft", 96, "HOLDFAST_STORAGE_RESERVE=16MiB")
	known := learn(c)
	source := harness.StartBoxo(t)
	l := newLoad(t, c, source, 50)
	stop := l.keepPosting(t.Context())
	pids := map[*harness.Node]int{}
	for _, n := range c.Nodes {
		pids[n] = n.Pid()
	}
	for _, of := range []string{"follower", "leader"} {
		l.more(t, 50, healWithin)
		leader := c.Leader()
		victim := leader
		if of == "follower" {
			victim = harness.Without(c.Nodes, leader)[0]
		}
		others := harness.Without(c.Nodes, victim)
		began := time.Now()
		room := diskOf(c, disks, victim).keepFull()
		if of == "leader" {
			harness.Eventually(t, movesWithin, "the leadership moves", func() (bool, error) {
				now := known.leader(others...)
				return now != nil && now != victim, errors.New("it does not")
			})
			t.Logf("the leadership was elsewhere %s after the disk was full", time.Since(began).Round(time.Millisecond))
		}
		harness.Eventually(t, healWithin, "a write is refused for want of room", func() (bool, error) {
			return victim.Metrics()["holdfast_consensus_log_writes_refused_total"] > 0, nil
		})
		l.more(t, pins(200, 60), healWithin)
		if now := known.leader(others...); now == victim {
			t.Errorf("the %s leads on a full disk", of)
		}
		if level := victim.Metrics()[`holdfast_volume_level{folder="raft"}`]; level != 2 {
			t.Errorf("the metric of its disk says %g", level)
		}
		room()
		freed := time.Now()
		harness.Eventually(t, healWithin, "it has caught up", func() (bool, error) {
			own, err := victim.StatusNow()
			other, oerr := others[0].StatusNow()
			return err == nil && oerr == nil && own.Index+50 >= other.Index, errors.Join(err, oerr, fmt.Errorf("%d of %d", own.Index, other.Index))
		})
		t.Logf("%s: caught up %s after there was room", of, time.Since(freed).Round(time.Millisecond))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	l.check(t)
	l.pinned(t, 3)
	for n, pid := range pids {
		if !n.Running() || n.Pid() != pid {
			t.Errorf("%s did not keep running", n.Name)
		}
	}
	t.Logf("%d pins acknowledged, longest time without one %s", l.count(), l.gap.Round(time.Millisecond))
}

// TestContentWhoseNodesAreFullByThenIsKeptByOthers promises that a pin gets pinned on other nodes if all three nodes
// that were told to keep it are full when its content comes.
func TestContentWhoseNodesAreFullByThenIsKeptByOthers(t *testing.T) {
	longForm(t)
	t.Parallel()
	c, disks := nodesOnVolumes(t, 5, "blocks", 192, "HOLDFAST_STORAGE_RESERVE=72MiB")
	user := c.Nodes[0].Pins(c.Nodes[0].UserKey("full@example.org").Token)
	data := bytes.Repeat([]byte("late "), 200_000)
	file := harness.StartBoxo(t).AddBytes(data)
	source := harness.StartBoxo(t) // which has it later
	p, err := user.Post(t.Context(), harness.Pin{CID: file.CID, Origins: source.Addrs})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for i, n := range c.Nodes {
		id := n.Status().Node.ID
		if !slices.ContainsFunc(p.Delegates, func(a string) bool { return strings.HasSuffix(a, "/p2p/"+id) }) {
			continue
		}
		told++
		if err := disks[i].fill(32 * mib); err != nil {
			t.Fatal(err)
		}
	}
	if told != 3 {
		t.Fatalf("%d nodes were told", told)
	}
	harness.Eventually(t, healWithin, "three are known to be full", func() (bool, error) {
		full := 0
		for _, peer := range c.Leader().Status().Peers {
			if peer.Full {
				full++
			}
		}
		return full == told, fmt.Errorf("%d", full)
	})
	source.AddBytes(data)
	if _, err := harness.WaitPinned(t.Context(), user, p.RequestID, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
}

// stuffed is a cluster whose disks for blocks hold 20 files and are to be full.
type stuffed struct {
	*harness.Cluster
	disks  []*disk
	source *harness.Boxo
	token  string
	files  []harness.Offered
	ids    []string // of the pins of files
}

// stuff starts a cluster and pins the files on all three nodes.
func stuff(t *testing.T) *stuffed {
	t.Helper()
	c, disks := onVolumes(t, "blocks", 320, "HOLDFAST_STORAGE_RESERVE=72MiB", "HOLDFAST_STORAGE_SEGMENT_SIZE=4MiB", "HOLDFAST_TRACKER_ATTEMPTS=1")
	s := &stuffed{Cluster: c, disks: disks, source: harness.StartBoxo(t), token: c.Nodes[0].UserKey("full@example.org").Token}
	s.files = s.source.AddRandom(20, 2<<20)
	for i, f := range s.files {
		p, err := s.post(t, i, f)
		if err != nil {
			t.Fatal(err)
		}
		s.ids = append(s.ids, p.RequestID)
	}
	for i, id := range s.ids {
		if _, err := harness.WaitPinned(t.Context(), s.client(i), id, healWithin); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, healWithin, "all three have all copies", func() (bool, error) {
		for _, p := range c.Nodes[0].Status().Peers {
			if p.Pins < int64(len(s.ids)) {
				return false, fmt.Errorf("%s has %d", p.Name, p.Pins)
			}
		}
		return true, nil
	})
	return s
}

func (s *stuffed) client(i int) *harness.PinsClient { return s.Nodes[i%3].Pins(s.token) }

func (s *stuffed) post(t *testing.T, i int, f harness.Offered) (harness.PinStatus, error) {
	return s.client(i).Post(t.Context(), harness.Pin{CID: f.CID, Origins: s.source.Addrs})
}

// refused wants new content to be refused by a node.
func (s *stuffed) refused(t *testing.T, i int, f harness.Offered) {
	t.Helper()
	_, err := s.post(t, i, f)
	var api *harness.APIError
	if !errors.As(err, &api) || api.Status != http.StatusInsufficientStorage || api.Reason != "INSUFFICIENT_STORAGE" ||
		api.RetryAfter <= 0 || !strings.Contains(api.Details, "full") {
		t.Errorf("new content on full disks: %v (%+v)", err, api)
	}
}

// read wants the bytes of files, from all nodes in turn.
func (s *stuffed) read(t *testing.T, files []harness.Offered) {
	t.Helper()
	for i, f := range files {
		if !f.Matches(s.Nodes[i%3].Get(f.CID)) {
			t.Errorf("other bytes of %s", f.CID)
		}
	}
}

// collect deletes the second half of the pins and waits until what they took is
// collected.
func (s *stuffed) collect(t *testing.T) {
	t.Helper()
	collected(t, s.Cluster, func() {
		for i, id := range s.ids[10:] {
			if err := s.client(i).Delete(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
	})
}

// collected wants that 15 MiB come back on every node when 20 are deleted. It does
// not go by what the file system says: the index may allocate its next log.
func collected(t *testing.T, c *harness.Cluster, deleteAll func()) {
	t.Helper()
	segments := func(n *harness.Node) float64 { return n.Metrics()["holdfast_blocks_disk_bytes"] }
	var before []float64
	for _, n := range c.Nodes {
		before = append(before, segments(n))
	}
	began := time.Now()
	deleteAll()
	harness.Eventually(t, healWithin, "the space comes back", func() (bool, error) {
		for i, n := range c.Nodes {
			if got := before[i] - segments(n); got < 15*mib {
				return false, fmt.Errorf("%s: %.0f bytes", n.Name, got)
			}
		}
		return true, nil
	})
	t.Logf("with all disks full, 20 MiB were deleted, and 15 MiB were collected on each node after %s", time.Since(began).Round(time.Millisecond))
}

// TestFullDataVolumesRefuseNewContentAndNothingElse promises that nodes whose disks of blocks have no byte left
// refuse new content, and still read, delete and pin what they have (A9 for pins).
func TestFullDataVolumesRefuseNewContentAndNothingElse(t *testing.T) {
	longForm(t)
	t.Parallel()
	s := stuff(t)
	fresh := s.source.AddRandom(1, 1<<20)[0]
	for _, d := range s.disks {
		if err := d.fill(32 * mib); err != nil { // half of the reserve
			t.Fatal(err)
		}
	}
	fullness(t, s.Cluster, true)
	for i := range 3 {
		s.refused(t, i, fresh)
	}
	if p, err := s.post(t, 0, s.files[1]); err != nil { // takes no room
		t.Error(err)
	} else if _, err := harness.WaitPinned(t.Context(), s.client(1), p.RequestID, healWithin); err != nil {
		t.Error(err)
	}
	r := s.Nodes[1].TryCLI(strings.Repeat("x", 300_000), "add", "-")
	if r.Code == 0 || !strings.Contains(r.Stderr, "no room") {
		t.Errorf("an import on a full disk: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, d := range s.disks { // to the last byte: now the ballast has to do
		if err := d.fill(0); err != nil {
			t.Fatal(err)
		}
	}
	tight(t, s.Cluster)
	s.refused(t, 2, fresh)
	s.read(t, s.files[:6])
	s.collect(t)
	for _, d := range s.disks {
		if err := os.Remove(d.filler()); err != nil {
			t.Fatal(err)
		}
	}
	fullness(t, s.Cluster, false)
	p, err := s.post(t, 1, fresh)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := harness.WaitPinned(t.Context(), s.client(2), p.RequestID, healWithin); err != nil {
		t.Error(err)
	}
	s.read(t, s.files[:10])
	if err := s.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}

// fullness waits until every node says of all that they are full, or not.
func fullness(t *testing.T, c *harness.Cluster, want bool) {
	t.Helper()
	harness.Eventually(t, healWithin, fmt.Sprintf("everybody is known to be full: %t", want), func() (bool, error) {
		for _, n := range c.Nodes {
			s, err := n.StatusNow()
			if err != nil {
				return false, err
			}
			for _, p := range s.Peers {
				if p.Full != want {
					return false, fmt.Errorf("%s says %t of %s", n.Name, p.Full, p.Name)
				}
			}
		}
		return true, nil
	})
}
