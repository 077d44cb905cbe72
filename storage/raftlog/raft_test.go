package raftlog

import (
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// machine is a Raft FSM on storage/kv: a command "key=value" sets one key. The
// applied index is in the same transaction as its effect.
type machine struct {
	t     testing.TB
	dir   string
	store *kv.Store

	mu       sync.Mutex
	restored int
	taken    int
	applied  chan struct{} // a token after each change
}

func newMachine(t testing.TB, dir string) *machine {
	return &machine{t: t, dir: dir, store: openKV(t, filepath.Join(dir, "state")), applied: make(chan struct{}, 1)}
}

func (m *machine) changed() {
	select {
	case m.applied <- struct{}{}:
	default:
	}
}

func (m *machine) Apply(l *raft.Log) any {
	defer m.changed()
	tx := m.store.Begin()
	defer tx.Discard()
	if raw, ok, err := tx.Get([]byte("applied")); err != nil || ok && binary.BigEndian.Uint64(raw) >= l.Index {
		return err
	}
	key, value, _ := splitCommand(string(l.Data))
	if err := tx.Set([]byte(key), []byte(value)); err != nil {
		return err
	}
	if err := tx.Set([]byte("applied"), binary.BigEndian.AppendUint64(nil, l.Index)); err != nil {
		return err
	}
	return tx.Commit(false)
}

func splitCommand(s string) (key, value string, ok bool) {
	for i := range s {
		if s[i] == '=' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	m.mu.Lock()
	m.taken++
	dir := filepath.Join(m.dir, fmt.Sprint("checkpoint", m.taken))
	m.mu.Unlock()
	return checkpoint(dir), m.store.Checkpoint(dir)
}

func (m *machine) Restore(r io.ReadCloser) error {
	defer m.changed()
	defer r.Close()
	m.mu.Lock()
	m.restored++
	m.mu.Unlock()
	return m.store.Restore(r)
}

type checkpoint string

func (c checkpoint) Persist(sink raft.SnapshotSink) error {
	if err := sink.(*Sink).Adopt(string(c)); err != nil {
		return err
	}
	return sink.Close()
}

func (c checkpoint) Release() {}

type node struct {
	*raft.Raft
	fsm  *machine
	log  *Log
	snap *Snapshots
	net  *raft.InmemTransport
}

func startNode(t *testing.T, dir string, id raft.ServerID, bootstrap bool) *node {
	t.Helper()
	n := &node{fsm: newMachine(t, dir), log: openLog(t, filepath.Join(dir, "raft.db")), snap: openSnapshots(t, filepath.Join(dir, "snapshots"), 2)}
	_, n.net = raft.NewInmemTransportWithTimeout(raft.ServerAddress(id), time.Minute) // nothing is sent twice
	config := raft.DefaultConfig()
	config.LocalID = id
	// There is one voter: it begins to lead after the first of them, and loses the lead to nobody.
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 100*time.Millisecond, 100*time.Millisecond, 80*time.Millisecond
	config.CommitTimeout = 5 * time.Millisecond
	config.TrailingLogs = 2
	config.NoSnapshotRestoreOnStart = true
	config.Logger = hclog.NewNullLogger()
	if bootstrap {
		must(t, raft.BootstrapCluster(config, n.log, n.log, n.snap, n.net, raft.Configuration{
			Servers: []raft.Server{{Suffrage: raft.Voter, ID: id, Address: raft.ServerAddress(id)}},
		}))
	}
	var err error
	n.Raft, err = raft.NewRaft(config, n.fsm, n.log, n.log, n.snap, n.net)
	must(t, err)
	return n
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	must(t, n.Shutdown().Error())
	must(t, n.log.Close())
	must(t, n.fsm.store.Close())
}

func (n *node) lead(t *testing.T) {
	t.Helper()
	select {
	case <-n.LeaderCh():
	case <-time.After(time.Minute):
		t.Fatal("no leader")
	}
}

func (n *node) set(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		f := n.Apply(fmt.Appendf(nil, "key%d=%d", i, i), time.Minute)
		must(t, f.Error())
		if err, _ := f.Response().(error); err != nil {
			t.Fatal(err)
		}
	}
}

// holds waits until the machine has the keys.
func (n *node) holds(t *testing.T, from, to int) {
	t.Helper()
	deadline := time.After(time.Minute)
	for i := from; i < to; {
		v, ok, err := n.fsm.store.Get(fmt.Appendf(nil, "key%d", i))
		must(t, err)
		if ok && string(v) == fmt.Sprint(i) {
			i++
			continue
		}
		select {
		case <-n.fsm.applied:
		case <-deadline:
			t.Fatalf("key%d is %q, %v", i, v, ok)
		}
	}
}

// Raft on these stores replays only the tail of its log after a restart, and cuts the log at a snapshot. It sends the
// snapshot to a new node.
func TestRaftLivesOnTheseStores(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir, "a", true)
	n.lead(t)
	n.set(t, 0, 50)
	must(t, n.Snapshot().Error())
	n.set(t, 50, 60)
	if first, err := n.log.FirstIndex(); first < 40 || err != nil {
		t.Errorf("log begins at %d, %v: not cut by the snapshot", first, err)
	}
	n.stop(t)

	// A restart finds the state as it was and replays only the tail.
	n = startNode(t, dir, "a", false)
	n.lead(t)
	n.holds(t, 0, 60)
	if n.fsm.restored != 0 {
		t.Error("the snapshot was restored over a good state")
	}
	n.set(t, 60, 70)
	must(t, n.Snapshot().Error())
	n.set(t, 70, 80)

	// A new node is so far behind that it gets the snapshot, as a stream.
	b := startNode(t, t.TempDir(), "b", false)
	n.net.Connect("b", b.net)
	b.net.Connect("a", n.net)
	must(t, n.AddNonvoter("b", "b", 0, time.Minute).Error())
	b.holds(t, 0, 80)
	b.fsm.mu.Lock()
	restored := b.fsm.restored
	b.fsm.mu.Unlock()
	if restored != 1 {
		t.Errorf("restored %d times", restored)
	}
	list, err := b.snap.List()
	if err != nil || len(list) != 1 {
		t.Errorf("snapshots of the new node: %v, %v", list, err)
	}
	n.set(t, 80, 90)
	b.holds(t, 80, 90)
	n.stop(t) // first: to end, it waits for the answers of the other
	b.stop(t)
}
