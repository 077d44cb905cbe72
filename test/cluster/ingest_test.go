package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// ids returns the nodes' ids.
func ids(t *testing.T, nodes []*running) []state.NodeID {
	t.Helper()
	var all []state.NodeID
	for _, n := range nodes {
		s, err := n.Members().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s.Node.ID)
	}
	return all
}

// readHere reads a file with what a node has.
func readHere(t *testing.T, n *running, root state.RootKey) []byte {
	t.Helper()
	f, _, err := n.Content().Open(t.Context(), root.Cid().String())
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestANodeThatIsReadyTakesContentInAtOnce promises that a node that says that it is ready stores content at once,
// because it has its epoch. A try for an epoch that fails would be repeated only after a while.
func TestANodeThatIsReadyTakesContentInAtOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := filepath.Join(t.TempDir(), "alone")
	n := start(t, dir, "", "")
	await(t, "the cluster is made", func() bool {
		s, err := n.Ingest().Store(t.Context(), bytes.NewReader(nil), ingest.Placement{Nodes: ids(t, []*running{n}), Copies: 1})
		if err == nil {
			s.Done(false)
		}
		return err == nil
	})
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	log := new(lines)
	n = start(t, dir, "", "", func(o *node.Options) {
		o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s, err := n.Ingest().Store(t.Context(), bytes.NewReader([]byte("first")), ingest.Placement{Nodes: ids(t, []*running{n}), Copies: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.Done(false)
	if said := log.String(); strings.Contains(said, "cannot begin a new epoch yet") || !strings.Contains(said, "level=DEBUG") {
		t.Errorf("logged:\n%s", said)
	}
}

// TestContentIsStoredOnSeveralNodes promises that content of any size is whole on each of the
// nodes that it was placed on when Store returns.
func TestContentIsStoredOnSeveralNodes(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	where := ids(t, nodes)
	for _, tc := range []struct {
		name  string
		bytes int
		place ingest.Placement
	}{
		{"nothing", 0, ingest.Placement{Nodes: where, Copies: 3}},
		{"one block", 1000, ingest.Placement{Nodes: where, Copies: 3}},
		{"a whole chunk", ingest.ChunkSize, ingest.Placement{Nodes: where, Copies: 3}},
		{"a byte more", ingest.ChunkSize + 1, ingest.Placement{Nodes: where, Copies: 3}},
		{"several batches", 20<<20 + 7, ingest.Placement{Nodes: where, Copies: 3}},
		{"on others only", 5 << 20, ingest.Placement{Nodes: where[1:], Copies: 2}},
		{"here only", 5 << 20, ingest.Placement{Nodes: where[:1], Copies: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := harness.BytesOf(uint64(tc.bytes), tc.bytes)
			s, err := nodes[0].Ingest().Store(t.Context(), bytes.NewReader(data), tc.place)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Done(false)
			if s.Size != uint64(tc.bytes) || len(s.Content.Held) != tc.place.Copies || !slices.Equal(s.Content.Nodes, tc.place.Nodes) {
				t.Errorf("stored %d bytes, held %v, nodes %v", s.Size, s.Content.Held, s.Content.Nodes)
			}
			for i, n := range nodes {
				if slices.Contains(tc.place.Nodes, where[i]) && !bytes.Equal(readHere(t, n, s.Content.Root), data) {
					t.Errorf("node %d has other bytes", i)
				}
			}
		})
	}
}

// TestPartsAreJoined promises that parts which each lie on another node are joined to one file
// that all nodes have.
func TestPartsAreJoined(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	where := ids(t, nodes)
	var parts []ingest.File
	var all []byte
	for i, n := range []int{5 << 20, 1 << 20, 3<<20 + 5} {
		data := harness.BytesOf(uint64(i), n)
		all = append(all, data...)
		// Each part is on one node only: the others get it of it.
		s, err := nodes[i].Ingest().Store(t.Context(), bytes.NewReader(data), ingest.Placement{Nodes: where[i : i+1], Copies: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Done(false)
		parts = append(parts, ingest.File{Root: s.Content.Root.Cid(), Size: s.Size})
	}
	whole, err := nodes[0].Ingest().Join(t.Context(), parts, ingest.Placement{Nodes: where, Copies: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Done(false)
	if whole.Size != uint64(len(all)) || whole.Content.Blocks < 10 {
		t.Errorf("joined %d bytes in %d blocks", whole.Size, whole.Content.Blocks)
	}
	if !bytes.Equal(readHere(t, nodes[2], whole.Content.Root), all) {
		t.Error("the parts do not make the whole")
	}
}

// TestStoreGivesContentToASpareNode promises that a spare node takes the copy of a node that
// is down.
func TestStoreGivesContentToASpareNode(t *testing.T) {
	t.Parallel() // it mostly waits
	nodes := three(t)
	where := ids(t, nodes)
	if err := nodes[1].stop(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1000, 4 << 20} {
		data := harness.BytesOf(uint64(n), n)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		s, err := nodes[0].Ingest().Store(ctx, bytes.NewReader(data), ingest.Placement{Nodes: where[:2], Spare: where[2:], Copies: 2})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Content.Held) != 2 || s.Content.Held[0].Node == where[1] || s.Content.Held[1].Node == where[1] {
			t.Errorf("held by %v", s.Content.Held)
		}
		s.Done(false)
	}
}

// sealed tells whether a node keeps a root.
func sealed(t *testing.T, n *running, root state.RootKey) bool {
	t.Helper()
	f, _, err := n.Content().Open(t.Context(), root.Cid().String())
	if err == nil {
		err = f.Close()
	} else if errors.Is(err, state.ErrNotFound) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// TestWhatIsStoredBecomesAnObject promises that stored content which an object names stays,
// and that other content goes.
func TestWhatIsStoredBecomesAnObject(t *testing.T) {
	t.Parallel() // it mostly waits
	testObjects(t, three(t))
}

// TestABoundOfPinsIsNotForObjects promises that the bound of the size of a pin does not hold for objects, neither
// where they are put nor where they are copied to. Objects have bounds of their own.
func TestABoundOfPinsIsNotForObjects(t *testing.T) {
	t.Parallel() // it mostly waits
	testObjects(t, three(t, func(o *node.Options) { o.Config.Tracker.MaxBytes = 2 << 20 }))
}

func testObjects(t *testing.T, nodes []*running) {
	where := ids(t, nodes)
	account, err := nodes[0].Accounts().Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	operator := account.ID
	replica := nodes[0].Replica()
	if _, err := replica.Propose(t.Context(), &state.CreateBucket{Bucket: state.Bucket{Account: operator, Name: "bucket", Created: 1}}); err != nil {
		t.Fatal(err)
	}
	view, release := replica.LocalView()
	bucket, err := view.Bucket(operator, "bucket")
	release()
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string, data []byte, name bool, on ...state.NodeID) *ingest.Stored {
		t.Helper()
		s, err := nodes[0].Ingest().Store(t.Context(), bytes.NewReader(data), ingest.Placement{Nodes: on, Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		s.Content.Nodes = where
		if name {
			_, err = replica.Propose(t.Context(), &state.PutObject{
				Account: operator, Bucket: "bucket", Born: bucket.Born, Content: s.Content,
				Object: state.Object{
					ID: state.VersionID(key), Key: key, Root: s.Content.Root, Size: s.Size, Created: 1, ETag: "d41d8cd98f00b204e9800998ecf8427e",
				},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		s.Done(name)
		return s
	}
	small, large := put("small", harness.BytesOf(1, 1000), true, where...), put("large", harness.BytesOf(2, 9<<20), true, where[:2]...)
	dropped := put("none", harness.BytesOf(3, 3<<20), false, where...)
	await(t, "what was given up goes from everywhere", func() bool { return !sealed(t, nodes[1], dropped.Content.Root) })
	await(t, "all copies are held", func() bool {
		view, release := nodes[1].Replica().LocalView()
		defer release()
		for _, s := range []*ingest.Stored{small, large} {
			root, err := view.Root(s.Content.Root)
			if err != nil || len(root.Copies) != 3 || slices.ContainsFunc(root.Copies, func(c state.Copy) bool { return c.Phase != state.Held }) {
				return false
			}
		}
		return true
	})
	for _, n := range nodes[1:] { // the others go on without who stored it
		if !bytes.Equal(readHere(t, n, large.Content.Root), harness.BytesOf(2, 9<<20)) {
			t.Error("other bytes")
		}
	}
}
