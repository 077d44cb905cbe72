package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clustercontent "github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
	"github.com/ipfs/go-cid"
)

const (
	// chunk is the size of the leaves of test files.
	chunk = 4 << 10
	// strays is how many blocks bitswap may send twice: it repeats wants, on a busy machine more often. It is less
	// than what a test would find that fetches all 121 blocks where at most 60 are missing.
	strays = 50
)

// alone is a node without others, with a foreign peer whose content it pins.
type alone struct {
	*running
	t        *testing.T
	foreign  *peertest.Foreign
	operator state.AccountID
}

func newAlone(t *testing.T, set func(c *config.Config)) *alone {
	t.Helper()
	c := config.Default()
	c.Data = filepath.Join(t.TempDir(), "node")
	c.Peer.Listen = []string{"/ip4/127.0.0.1/tcp/0"}
	c.Peer.ClusterListen = []string{"/ip4/127.0.0.1/tcp/0"}
	c.Peer.Routing = config.RoutingOff
	c.Peer.AllowPrivateOrigins = true
	c.Storage.SegmentSize = 64 << 10
	c.Tracker.Backoff = 100 * time.Millisecond
	set(&c)
	a := &alone{running: run(t, c), t: t, foreign: peertest.NewForeign(t)}
	operator, err := a.Accounts().Operator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.operator = operator.ID
	return a
}

// file makes content of so many chunks, each of which depends on its number and
// kind alone.
func file(chunks int, kind func(i int) byte) []byte {
	var b bytes.Buffer
	for i := range chunks {
		b.Write(peertest.Bytes(uint64(i)<<8|uint64(kind(i)), chunk))
	}
	return b.Bytes()
}

// offer gives a file to the foreign peer; has tells which leaves it gets.
func (a *alone) offer(content []byte, has func(i int) bool) (root cid.Cid, give func()) {
	a.t.Helper()
	elsewhere := peertest.NewForeign(a.t)
	root, err := elsewhere.AddFile(bytes.NewReader(content), chunk)
	if err != nil {
		a.t.Fatal(err)
	}
	leaves := map[string]int{}
	for i := range len(content) / chunk {
		c, err := cid.NewPrefixV1(cid.Raw, 0x12).Sum(content[i*chunk : (i+1)*chunk])
		if err != nil {
			a.t.Fatal(err)
		}
		leaves[string(c.Hash())] = i
	}
	move := func(want func(leaf int, ok bool) bool) {
		keys, err := elsewhere.Store.AllKeysChan(context.Background())
		if err != nil {
			a.t.Fatal(err)
		}
		for c := range keys {
			leaf, isLeaf := leaves[string(c.Hash())]
			if !want(leaf, isLeaf) {
				continue
			}
			b, err := elsewhere.Store.Get(context.Background(), c)
			if err == nil {
				err = a.foreign.Store.Blockstore.Put(context.Background(), b)
			}
			if err != nil {
				a.t.Fatal(err)
			}
		}
	}
	move(func(leaf int, isLeaf bool) bool { return !isLeaf || has(leaf) })
	return root, func() { move(func(int, bool) bool { return true }) }
}

func everything(int) bool { return true }

func (a *alone) pin(root cid.Cid) state.RequestID {
	a.t.Helper()
	r, err := a.Pins().Create(a.t.Context(), a.operator, pins.Request{CID: root.String(), Origins: a.foreign.Addrs()})
	if err != nil {
		a.t.Fatal(err)
	}
	return r.ID
}

func (a *alone) replace(old state.RequestID, root cid.Cid) state.RequestID {
	a.t.Helper()
	r, err := a.Pins().Replace(a.t.Context(), a.operator, old, pins.Request{CID: root.String(), Origins: a.foreign.Addrs()})
	if err != nil {
		a.t.Fatal(err)
	}
	return r.ID
}

func (a *alone) delete(id state.RequestID) {
	a.t.Helper()
	if err := a.Pins().Delete(a.t.Context(), a.operator, id); err != nil {
		a.t.Fatal(err)
	}
}

func (a *alone) status(id state.RequestID) pins.Record {
	a.t.Helper()
	r, err := a.Pins().Get(a.t.Context(), a.operator, id)
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

func (a *alone) pinned(id state.RequestID) {
	a.t.Helper()
	await(a.t, "pinned", func() bool {
		r := a.status(id)
		if r.Status == state.Failed {
			a.t.Fatalf("the pin has failed: %s", r.Info[pins.InfoDetails])
		}
		return r.Status == state.Pinned
	})
}

func (a *alone) sent() uint64 {
	a.t.Helper()
	n, err := a.foreign.Sent()
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

func (a *alone) stored() float64 { return a.gauge(a.t, "holdfast_blocks_stored", "") }

// whole tells whether the file can be read here and is what it was.
func (a *alone) whole(root cid.Cid, content []byte) error {
	f, size, err := a.Content().Open(a.t.Context(), root.String())
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || int(size) != len(content) || !bytes.Equal(got, content) {
		return fmt.Errorf("%d bytes of %d, %w", len(got), len(content), err)
	}
	return nil
}

func kindA(int) byte { return 'a' }

// changed returns the kind of a file in which every tenth chunk is another one.
func changed(i int) byte {
	if i%10 == 3 {
		return 'b'
	}
	return 'a'
}

// TestReplaceFetchesOnlyWhatDiffers promises that the blocks which the new version shares with
// the old one are not fetched again, and that the old version goes.
func TestReplaceFetchesOnlyWhatDiffers(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newAlone(t, func(*config.Config) {})
	const chunks = 120
	first, second := file(chunks, kindA), file(chunks, changed)
	old, _ := a.offer(first, everything)
	root, _ := a.offer(second, everything)
	id := a.pin(old)
	a.pinned(id)
	before := a.sent()
	id = a.replace(id, root)
	a.pinned(id)
	if got, differ := a.sent()-before, uint64(chunks/10+1); got < differ || got > differ+strays {
		t.Fatalf("%d blocks were sent, %d differ", got, differ)
	}
	if err := a.whole(root, second); err != nil {
		t.Fatal(err)
	}
	await(t, "the old version is gone", func() bool { return a.stored() == chunks+1 })
}

// TestNothingThatIsHereIsAskedForAfterARestart promises that a node asks for no block again that it has fetched
// before a restart, and keeps the pause between attempts. A provider has half of a DAG, the node restarts, and then
// the other half comes.
func TestNothingThatIsHereIsAskedForAfterARestart(t *testing.T) {
	t.Parallel()       // it mostly waits
	const chunks = 120 // more than is held back for being small
	a := newAlone(t, func(c *config.Config) {
		c.Tracker.IdleTimeout = time.Second
		c.Tracker.Attempts = 100
		c.Tracker.Backoff = 4 * time.Second
	})
	content := file(chunks, kindA)
	half := func(i int) bool { return i < chunks/2 }
	root, give := a.offer(content, half)
	begun := time.Now()
	id := a.pin(root)
	await(t, "half of it is here", func() bool { return a.stored() >= chunks/2+1 })
	await(t, "the first attempt has failed", func() bool { return a.status(id).Status == state.Pinning && a.failures() >= 1 })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	before := a.sent()
	give()
	a.running = run(t, a.config)
	a.pinned(id)
	// The first attempt failed after IdleTimeout at the earliest, and the pause is half of Backoff at the least.
	if took, least := time.Since(begun), a.config.Tracker.IdleTimeout+a.config.Tracker.Backoff/2; took < least {
		t.Errorf("it is pinned after %s, and the next attempt is due after %s", took, least)
	}
	if got := a.sent() - before; got < chunks/2 || got > chunks/2+strays {
		t.Fatalf("%d blocks were sent after the restart, of %d that were missing", got, chunks/2)
	}
	if err := a.whole(root, content); err != nil {
		t.Fatal(err)
	}
}

// failures counts the attempts that have failed.
func (a *alone) failures() float64 {
	a.t.Helper()
	families, err := a.metrics.Gather()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "holdfast_tracker_fetches_total" && m.GetLabel()[0].GetValue() == "failed" {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestDeleteTakesBackItsWantsAndItsBlocks promises that nothing of a pin which is deleted
// during its fetch stays stored, or wanted of others.
func TestDeleteTakesBackItsWantsAndItsBlocks(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newAlone(t, func(*config.Config) {})
	root, _ := a.offer(file(120, kindA), func(i int) bool { return i < 60 })
	id := a.pin(root)
	status, err := a.Members().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wants := func() int {
		list, err := a.foreign.WantedBy(string(status.Node.ID))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	await(t, "it waits for the rest", func() bool { return a.stored() == 61 && wants() == 60 })
	a.delete(id)
	begin := time.Now()
	await(t, "nothing is stored or wanted", func() bool { return a.stored() == 0 && wants() == 0 })
	t.Logf("after %s", time.Since(begin).Round(time.Millisecond))
}

// TestAReplacementThatStallsCostsNothing promises that a pin that is replaced by a version whose fetch stalls keeps
// the old version until the new one has failed.
// Other pins come and go meanwhile and their blocks are collected. The old version stays whole until the new one has
// failed; then what only it needed goes, and nothing else.
func TestAReplacementThatStallsCostsNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	a := newAlone(t, func(c *config.Config) {
		c.Tracker.IdleTimeout = 4 * time.Second
		c.Tracker.Attempts = 3 // the first pins may need them where the disk stands still
	})
	const chunks = 60
	first, second := file(chunks, kindA), file(chunks, changed)
	beside := file(chunks/2, kindA) // shares its leaves with both
	old, _ := a.offer(first, everything)
	other, _ := a.offer(beside, everything)
	stalls, _ := a.offer(second, func(i int) bool { return i < 23 }) // lacks some of what differs
	id, keep := a.pin(old), a.pin(other)
	a.pinned(id)
	a.pinned(keep)

	ctx, cancel := context.WithCancel(t.Context())
	beat := make(chan churned, 1)
	go func() { beat <- a.churn(ctx) }()
	id = a.replace(id, stalls)
	looked := 0
	await(t, "the new version has failed", func() bool {
		if a.status(id).Status == state.Failed {
			return true
		}
		err := a.whole(old, first)
		if a.status(id).Status == state.Failed {
			return true // meanwhile
		}
		if err != nil {
			t.Fatalf("the old version while the new one is fetched: %v", err)
		}
		looked++
		return false
	})
	if detail := a.status(id).Info[pins.InfoDetails]; !strings.Contains(detail, "vanished") && !strings.Contains(detail, "nobody offered") {
		t.Errorf("it failed with %q", detail)
	}
	cancel()
	meanwhile := <-beat
	t.Logf("%d looks at the old version, %d pins came and went", looked, meanwhile.rounds)
	if meanwhile.err != nil || looked == 0 || meanwhile.rounds == 0 { // there are dozens on a machine that is not busy
		t.Errorf("too little happened: %v", meanwhile.err)
	}
	await(t, "only what the other pin needs is left", func() bool { return a.stored() == chunks/2+1 })
	if err := a.whole(other, beside); err != nil {
		t.Fatal(err)
	}
	if s := a.status(keep).Status; s != state.Pinned {
		t.Fatalf("the other pin is %s", s)
	}
}

// churned is what came of churn.
type churned struct {
	rounds int
	err    error
}

// churn pins and deletes imported files until ctx ends.
func (a *alone) churn(ctx context.Context) (c churned) {
	for ctx.Err() == nil && c.err == nil {
		c.err = a.comeAndGo()
		c.rounds++
	}
	return c
}

func (a *alone) comeAndGo() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	content := make([]byte, 200<<10)
	_, _ = rand.Read(content)
	root, _, err := a.Content().Add(ctx, bytes.NewReader(content), clustercontent.Layout{})
	if err != nil {
		return err
	}
	r, err := a.Pins().Create(ctx, a.operator, pins.Request{CID: root.String()})
	if err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for r.Status != state.Pinned {
		select {
		case <-ctx.Done():
			return fmt.Errorf("imported file: %s: %w", r.Status, ctx.Err())
		case <-tick.C:
		}
		if r, err = a.Pins().Get(ctx, a.operator, r.ID); err != nil {
			return err
		}
	}
	a.Content().Sweep(ctx) // the pin holds it
	return a.Pins().Delete(ctx, a.operator, r.ID)
}
