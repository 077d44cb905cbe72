package consensus

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// script makes commands out of random numbers, of a world small enough for them
// to meet: the same numbers make the same commands.
type script struct{ random func(n int) int }

func (s script) node() state.NodeID { return state.NodeID(fmt.Sprintf("n%d", 1+s.random(5))) }

func (s script) nodes() (ids []state.NodeID) {
	for i := range 5 {
		if s.random(2) == 0 {
			ids = append(ids, state.NodeID(fmt.Sprintf("n%d", 1+i)))
		}
	}
	return ids
}

func (s script) request() state.RequestID { return state.RequestID(fmt.Sprintf("p%d", s.random(40))) }

func (s script) pin() state.Pin {
	return state.Pin{
		ID: s.request(), Account: account, CID: cids[s.random(len(cids))], Created: state.Millis(1 + s.random(1<<20)),
		Name: fmt.Sprintf("name %d", s.random(4)), Meta: map[string]string{"k": fmt.Sprint(s.random(3))},
	}
}

func (s script) command() state.Command {
	root := state.RootOf(cid.MustParse(cids[s.random(len(cids))]))
	switch s.random(26) {
	case 18, 19, 20, 21, 22, 23, 24, 25:
		return s.naming(root)
	case 0, 1, 2:
		return &state.CreatePin{Pin: s.pin(), Nodes: s.nodes()}
	case 3, 4:
		return &state.ReplacePin{Old: s.request(), Pin: s.pin(), Nodes: s.nodes()}
	case 5, 6:
		return &state.DeletePin{Account: account, ID: s.request()}
	case 7, 8, 9:
		return &state.ReportCopies{Node: s.node(), Items: []state.CopyReport{{
			Root: root, Born: uint64(1 + s.random(400)), Phase: state.Phase(1 + s.random(4)), Size: uint64(s.random(100)),
		}}}
	case 10:
		return &state.PlaceRoots{Items: []state.Placement{{Root: root, Born: uint64(1 + s.random(400)), Nodes: s.nodes()}}}
	case 11:
		return &state.SettleRoots{Roots: []state.RootKey{root}}
	case 12:
		return &state.JoinNode{Node: state.Node{ID: s.node(), FeatureLevel: state.NewestFeatureLevel}, At: 1}
	case 13:
		return &state.UpdateNode{Node: state.Node{ID: s.node(), FeatureLevel: state.NewestFeatureLevel, Store: state.StoreID(fmt.Sprint(s.random(3)))}}
	case 15:
		return &state.ReportArrivals{Items: []state.Arrival{{Root: root, Born: uint64(1 + s.random(400)), Bytes: uint64(s.random(200))}}}
	case 16:
		return &state.SetQuota{Account: account, Allowance: uint64(s.random(400))}
	case 14:
		return &state.ReportHash{Node: s.node(), Check: uint64(s.random(400)), Hash: state.Hash{byte(s.random(2))}}
	default:
		switch s.random(8) {
		case 3:
			return &state.OpenAccount{Account: state.Account{ID: "other", Email: "o@localhost"}, Allowance: 1}
		case 4:
			return &state.CloseAccount{Account: "other"}
		case 5:
			return &state.GrantCredits{Posting: state.Posting{ID: fmt.Sprint(s.random(2)), Account: account, Credits: 1}}
		case 7:
			return &state.ChargeStorage{Now: state.Millis(s.random(40) << 20), Every: 1 << 20, Rate: state.MaxRate}
		case 6:
			p := state.Posting{ID: fmt.Sprint(s.random(20)), Account: account, Kind: state.PostingKind(1 + s.random(4)), Credits: uint64(1 + s.random(3))}
			p.Takes = p.Kind == state.Charge
			if p.Kind == state.Correction {
				p.Corrects, p.Takes = fmt.Sprint(s.random(20)), s.random(2) == 0
			}
			return &state.PostCredits{Posting: p}
		case 0:
			return &state.CheckState{At: 5}
		case 1:
			return &state.GrantVote{Node: s.node(), Store: state.StoreID(fmt.Sprint(s.random(3)))}
		case 2:
			return &state.RemoveNode{ID: s.node()}
		}
		return &state.CreateTicket{Ticket: state.Ticket{ID: s.node(), Created: 1, Expires: state.Millis(2 + s.random(5))}}
	}
}

const bucket = "bucket"

// bucketBorn is what the second entry of the log gives the bucket.
const bucketBorn = 2

// naming makes a command about an object or an upload that names a root.
func (s script) naming(root state.RootKey) state.Command {
	content := state.Content{Root: root, Bytes: uint64(1 + s.random(50)), Blocks: 1, Nodes: s.nodes()}
	for _, n := range s.nodes() {
		content.Held = append(content.Held, state.Holding{Node: n, Epoch: uint64(s.random(2)) << 20})
	}
	id, key := func() state.VersionID { return state.VersionID(fmt.Sprintf("v%d", s.random(40))) }, fmt.Sprintf("k%d", s.random(5))
	upload := state.UploadID(fmt.Sprintf("u%d", s.random(3)))
	object := state.Object{ID: id(), Key: key, Root: root, Size: 5, Created: state.Millis(1 + s.random(1<<20)), ETag: fmt.Sprint(s.random(2))}
	var cond state.Condition
	switch s.random(5) {
	case 0:
		cond.Absent = true
	case 1:
		cond.Match = []string{"1"}
	}
	switch s.random(14) {
	case 12:
		return &state.SetVersioning{Account: account, Bucket: bucket, Born: bucketBorn, Versioning: state.Versioning(1 + s.random(2))}
	case 13:
		return &state.DeleteObjects{
			Account: account, Bucket: bucket, Born: bucketBorn, Keys: []string{key, "k0"}, IDs: []state.VersionID{id(), state.NullVersion}, Marker: id(), Created: 1,
		}
	case 0, 1, 2, 3:
		return &state.PutObject{Account: account, Bucket: bucket, Born: bucketBorn, Object: object, Content: content, If: cond}
	case 4:
		return &state.CopyObject{
			Account: account, Bucket: bucket, Born: bucketBorn, Object: object, If: cond,
			SourceBucket: bucket, SourceBorn: bucketBorn, SourceKey: fmt.Sprintf("k%d", s.random(5)), SourceID: id(),
		}
	case 5:
		return &state.DeleteObjects{Account: account, Bucket: bucket, Born: bucketBorn, Keys: []string{key, "k0"}, Marker: id(), Created: state.Millis(1 + s.random(1<<20))}
	case 6:
		u := state.Upload{ID: upload, Key: "k1", Created: 1}
		return &state.CreateUpload{Account: account, Bucket: bucket, Born: bucketBorn, Upload: u}
	case 7, 8:
		p := state.Part{Number: uint16(1 + s.random(3)), ID: id(), Root: root, Size: 5, Created: 1, ETag: "e"}
		return &state.PutPart{Account: account, Bucket: bucket, Born: bucketBorn, Key: "k1", Upload: upload, Part: p, Content: content}
	case 9:
		object.ID, object.Key, object.Upload, object.Parts = state.VersionOf(upload), "k1", upload, []state.PartRun{{Size: 5, Count: 1}}
		return &state.CompleteUpload{
			Account: account, Bucket: bucket, Born: bucketBorn, Object: object, Content: content,
			Parts: state.ListParts([]state.Part{{Number: uint16(1 + s.random(3)), ID: id()}}),
		}
	case 10:
		return &state.AbortUpload{Account: account, Bucket: bucket, Born: bucketBorn, Key: "k1", ID: upload}
	case 11:
		return &state.DateUpload{Account: account, Bucket: bucket, Born: bucketBorn, Key: "k1", ID: upload, Since: state.Millis(1 + s.random(9))}
	default:
		return &state.Fence{Node: s.node(), Epoch: uint64(s.random(400))}
	}
}

// entries makes a log of so many commands, several in an entry.
func (s script) entries(t testing.TB, commands int) (log []*raft.Log) {
	t.Helper()
	add := func(bodies [][]byte) {
		data, err := wire.EncodeEntry(bodies)
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, &raft.Log{Index: uint64(len(log) + 1), Term: 1, Type: raft.LogCommand, Data: data})
	}
	encode := func(cmd state.Command, op state.OpID) []byte {
		b, err := wire.EncodeCommand(wire.Command{Op: op, Body: cmd})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	add([][]byte{encode(&state.InitCluster{
		Cluster:  state.Cluster{ID: "c", Replication: 3, WriteCopies: 2, Operator: account},
		Node:     state.Node{ID: "n1", FeatureLevel: state.NewestFeatureLevel, Store: "s", Votes: true},
		Operator: state.Account{ID: account, Email: "operator@localhost"},
	}, state.OpID{})})
	add([][]byte{encode(&state.CreateBucket{Bucket: state.Bucket{Account: account, Name: bucket, Created: 1}}, state.OpID{})})
	for made := 0; made < commands; {
		var bodies [][]byte
		for range 1 + s.random(8) {
			op := state.OpID{byte(made), byte(made >> 8), byte(made >> 16), 1}
			if s.random(20) == 0 {
				op = state.OpID{byte(s.random(256)), 0, 0, 1} // some command again
			}
			bodies = append(bodies, encode(s.command(), op))
			made++
		}
		add(bodies)
	}
	return log
}

// machineOf returns a state machine on an empty store.
func machineOf(t testing.TB) (*fsm, *memStore) {
	t.Helper()
	store := newMemStore()
	f, err := openFSM(Options{Store: store, CheckpointDir: t.TempDir(), Watch: &state.Watch{}, Logger: quiet()},
		func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.checks.close)
	return f, store
}

// feed applies entries in batches of random size.
func feed(f *fsm, entries []*raft.Log, random func(n int) int) {
	for len(entries) > 0 {
		n := min(len(entries), 1+random(12))
		f.ApplyBatch(entries[:n])
		entries = entries[n:]
	}
}

// sameOnTwo runs a log on two machines, one entry by entry and one in batches,
// with a snapshot taken at some entry and restored into an empty machine that
// goes on from there, or is told some entries again.
func sameOnTwo(t testing.TB, entries []*raft.Log, random func(n int) int) {
	t.Helper()
	one, first := machineOf(t)
	for _, e := range entries {
		one.Apply(e)
	}
	two, _ := machineOf(t)
	at := random(len(entries) + 1)
	feed(two, entries[:at], random)
	snapshot, err := two.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(two.store.(*memStore).contents()); err != nil {
		t.Fatal(err)
	}
	defer snapshot.Release()
	if checkpoint := snapshot.(*checkpoint); filepath.Dir(checkpoint.dir) != two.dir {
		t.Fatal(checkpoint.dir)
	}
	three, second := machineOf(t)
	if err := three.Restore(io.NopCloser(&b)); err != nil {
		t.Fatal(err)
	}
	feed(three, entries[max(0, at-random(20)):], random)
	hashes := [2]state.Hash{}
	for i, store := range []*memStore{first, second} {
		view := store.View()
		if hashes[i], err = state.HashOf(view, func(int) error { return nil }); err != nil {
			t.Fatal(err)
		}
		view.Close()
	}
	if hashes[0] != hashes[1] {
		t.Fatalf("a snapshot at entry %d of %d: %s, without %s", at, len(entries), hashes[1], hashes[0])
	}
	if one.progress.index() != three.progress.index() {
		t.Fatalf("at %d and %d", one.progress.index(), three.progress.index())
	}
}

// Ten thousand random commands lead to one state, whatever the batches, and
// whether a snapshot comes in between (A17).
func TestTenThousandCommandsLeadToOneState(t *testing.T) {
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 17)).IntN
		entries := script{random}.entries(t, 10_000)
		sameOnTwo(t, entries, random)
	}
}

func FuzzTwoMachinesStayEqual(f *testing.F) {
	f.Add([]byte("holdfast"))
	f.Add(bytes.Repeat([]byte{3, 1, 200, 7, 99}, 200))
	f.Fuzz(func(t *testing.T, raw []byte) {
		random := func(n int) int {
			if len(raw) == 0 {
				return 0
			}
			v := int(raw[0])
			if len(raw) > 1 && n > 256 {
				v = v<<8 | int(raw[1])
			}
			raw = raw[1:]
			return v % n
		}
		entries := script{random}.entries(t, min(len(raw)/4, 500))
		sameOnTwo(t, entries, random)
	})
}

// The same operation that comes through two nodes is one pin, and both get the
// same answer (A18).
func TestOneOperationThroughTwoNodesIsOnePin(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		for i := range 20 {
			op := state.OpID{byte(i), 1}
			cmd := pin(fmt.Sprintf("p%d", i))
			first := make(chan wire.Outcome, 3)
			for _, n := range c.nodes {
				body, err := wire.EncodeCommand(wire.Command{Op: op, Body: cmd})
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					outcome, err := n.commit(t.Context(), body)
					if err != nil {
						t.Errorf("through %s: %v", n.id, err)
					}
					first <- outcome
				}()
			}
			a, b, d := <-first, <-first, <-first
			for _, other := range []wire.Outcome{b, d} {
				if fmt.Sprint(a.Result.Pin) == fmt.Sprint(nil) || fmt.Sprint(*a.Result.Pin) != fmt.Sprint(*other.Result.Pin) {
					t.Errorf("%+v and %+v", a.Result.Pin, other.Result.Pin)
				}
			}
		}
		c.sameEverywhere()
		names, err := c.leader().pins()
		if err != nil || len(names) != 20 {
			t.Errorf("%d pins, %v", len(names), err)
		}
	})
}
