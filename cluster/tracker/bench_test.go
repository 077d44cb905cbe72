package tracker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	block "github.com/ipfs/go-block-format"
)

// watched counts views of the state.
type watched struct {
	*clustertest.State
	views atomic.Uint64
}

func (w *watched) LocalView() (state.View, func()) {
	w.views.Add(1)
	return w.State.LocalView()
}

// disk is a block store on the disk.
type disk struct {
	*blocks.Store
	asked atomic.Uint64 // Reference and Hide
}

func (d *disk) Reference(ctx context.Context, reference string) (bool, uint64, uint64, bool, error) {
	d.asked.Add(1)
	o, ok, err := d.Store.Reference(ctx, reference)
	return o.Sealed, o.Bytes, o.Blocks, ok, err
}

func (d *disk) References(ctx context.Context, prefix string, fn func(string, bool) (bool, error)) error {
	return d.Store.References(ctx, prefix, func(o blocks.ReferenceInfo) (bool, error) { return fn(o.Reference, o.Sealed) })
}

func (d *disk) Seal(ctx context.Context, reference string, bytes, count uint64) error {
	return d.Store.Seal(ctx, reference, blocks.Sealed{Bytes: bytes, Blocks: count})
}

func (d *disk) Hide(ctx context.Context, reference string, hidden bool) error {
	d.asked.Add(1)
	_, err := d.Store.Hide(ctx, reference, hidden)
	return err
}

func (d *disk) Drop(ctx context.Context, reference string) error {
	_, err := d.Store.Drop(ctx, reference)
	return err
}

// Puts come as 32 clients make them: so many in an entry of the log, 1,000 a second.
const (
	perEntry   = 5
	entryEvery = 5 * time.Millisecond
)

// benchStores have b.N roots that objects name, sealed and hidden.
func benchStores(b *testing.B) (*watched, *disk) {
	st := &watched{State: clustertest.New(b, clustertest.Setup{Nodes: clustertest.Members(self), Replication: 1, WriteCopies: 1})}
	st.Apply(b, &state.RaiseLevel{FeatureLevel: LeaseFeatureLevel})
	shelf := st.NewBucket(b, clustertest.Operator, bucket, false)
	s, err := blocks.Open(b.TempDir(), blocks.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	var work sync.WaitGroup
	for from := range 64 {
		work.Go(func() {
			for n := from; n < b.N; n += 64 {
				blk, err := block.NewBlockWithCid(fmt.Appendf(nil, "root %d", n), key(n).Cid())
				if err != nil {
					b.Error(err)
					return
				}
				sealed := blocks.Sealed{Bytes: 10, Blocks: 1, Hidden: true}
				if err := s.PutAndSeal(context.Background(), Reference(key(n)), []block.Block{blk}, sealed); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	for n := range b.N {
		st.Apply(b, &state.PutObject{
			Account: shelf.Account, Bucket: shelf.Name, Born: shelf.Born,
			Content: state.Content{Root: key(n), Bytes: 10, Blocks: 1, Nodes: []state.NodeID{self}, Held: []state.Holding{{Node: self}}},
			Object:  state.Object{ID: state.VersionID(fmt.Sprint("v", n)), Key: fmt.Sprint(n), Root: key(n), Size: 10, Created: 1, ETag: "e"},
		})
	}
	return st, &disk{Store: s}
}

// BenchmarkEndOfPut is what a tracker does for a put in its normal course: leased,
// sealed, told by an event, not leased any more, and all that follows. What the put
// itself costs is not in it: the state and the block store have it before. The time is
// cpu-ns/op, that on the clock is how fast they come.
func BenchmarkEndOfPut(b *testing.B) {
	st, store := benchStores(b)
	keys := make([]state.RootKey, b.N)
	for n := range keys {
		keys[n] = key(n)
	}
	leases := NewLeases()
	leases.Fenced()
	tr, err := New(Options{
		Self: self, State: st, Watch: st.Watch, Blocks: store, Fetcher: &network{}, NodeMeta: &nodeMeta{kept: map[string][]byte{}},
		Limits: Limits{Audit: 24 * time.Hour}, Leases: leases, Now: time.Now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	quiet := func() { // until nothing has been asked for longer than a lease lingers
		for last := uint64(1) << 63; ; {
			now := st.views.Load() + store.asked.Load()
			if now == last {
				return
			}
			last = now
			<-time.After(leaseLinger + leaseLinger/2)
		}
	}
	quiet() // the audit at the start
	reads, views, asked, used := st.Reads(), st.views.Load(), store.asked.Load(), hosttest.ProcessorTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	entries := time.NewTicker(entryEvery)
	defer entries.Stop()
	for n := 0; n < b.N; n += perEntry {
		<-entries.C
		page := keys[n:min(n+perEntry, b.N)]
		fx := new(state.Effects)
		for _, k := range page {
			if err := leases.Begin(ctx, k); err != nil {
				b.Fatal(err)
			}
			leases.Sealed(k, true)
			fx.Roots = append(fx.Roots, state.RootChange{Root: k, Nodes: []state.NodeID{self}})
		}
		st.Watch.Publish(uint64(n), fx)
		for _, k := range page {
			leases.End(k)
		}
	}
	quiet()
	per := func(of uint64, name string) { b.ReportMetric(float64(of)/float64(b.N), name) }
	per(uint64(hosttest.ProcessorTime(b)-used), "cpu-ns/op")
	per(st.Reads()-reads, "reads/op")
	per(st.views.Load()-views, "views/op")
	per(store.asked.Load()-asked, "lookups/op")
}
