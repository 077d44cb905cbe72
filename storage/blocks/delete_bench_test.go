package blocks

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
	ipld "github.com/ipfs/go-ipld-format"
)

// latencies are how long calls took while something else went on.
type latencies struct {
	name string
	took []time.Duration
}

// time makes a call, and counts it if it is to be.
func (l *latencies) time(counts *atomic.Bool, call func() error) error {
	begin := time.Now()
	counted := counts.Load()
	err := call()
	if counted {
		l.took = append(l.took, time.Since(begin))
	}
	return err
}

func (l *latencies) report(b *testing.B) {
	if len(l.took) == 0 {
		return
	}
	slices.Sort(l.took)
	at := func(q float64) float64 {
		return float64(l.took[int(q*float64(len(l.took)-1))]) / float64(time.Millisecond)
	}
	b.ReportMetric(at(0.5), l.name+"-p50-ms")
	b.ReportMetric(at(0.99), l.name+"-p99-ms")
	b.ReportMetric(at(1), l.name+"-max-ms")
}

// BenchmarkDelete deletes references and collects, while one client reads blocks and
// another puts new ones; their latencies are reported. One iteration is eight
// references that are deleted at the same time, and a pass of the collection; what
// is deleted is put again meanwhile uncounted. "nothing" is the same clients
// with nothing deleted. With -benchtime 125x it is 1 % of 100,000 references.
func BenchmarkDelete(b *testing.B) {
	for _, tc := range []struct {
		name               string
		references, blocks int
		drop               bool
	}{
		{"nothing", 10_000, 1, false},
		{"of 10000 references of 1 block", 10_000, 1, true},
		{"of 100000 references of 1 block", 100_000, 1, true},
		{"of 16 references of 1000 blocks", 16, 1_000, true},
	} {
		b.Run(tc.name, func(b *testing.B) {
			opts := testOptions()
			opts.SegmentBytes = 16 << 20
			opts.CompactBytesPerSecond = DefaultCompactBytesPerSecond
			s := openWith(b, b.TempDir(), opts)
			fillReferences(b, s, 0, tc.references, tc.blocks)
			ctx, stop := context.WithCancel(b.Context())
			counts := new(atomic.Bool)
			gets, puts := &latencies{name: "get"}, &latencies{name: "put"}
			var clients sync.WaitGroup
			clients.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					blk := ownedBlock(b, n%(tc.references-deletedAtOnce)+deletedAtOnce, n%tc.blocks)
					err := gets.time(counts, func() error { _, err := s.Get(ctx, blk.Cid()); return err })
					if err != nil && !ipld.IsNotFound(err) && ctx.Err() == nil {
						b.Error(err)
					}
				}
			})
			clients.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					blk := ownedBlock(b, tc.references+n, 0)
					err := puts.time(counts, func() error { return s.Put(ctx, "new", []blocks.Block{blk}) })
					if err != nil && ctx.Err() == nil {
						b.Error(err)
					}
				}
			})
			deleteSome(b, s, counts, tc.references, tc.blocks, tc.drop)
			stop()
			clients.Wait()
			gets.report(b)
			puts.report(b)
		})
	}
}

const deletedAtOnce = 8

func deleteSome(b *testing.B, s *Store, counts *atomic.Bool, references, each int, drop bool) {
	next := 0
	for b.Loop() {
		counts.Store(true)
		if !drop {
			<-time.After(10 * time.Millisecond)
			continue
		}
		var work sync.WaitGroup
		for i := range deletedAtOnce {
			work.Go(func() {
				if _, err := s.Drop(b.Context(), fmt.Sprint("reference ", (next+i)%references)); err != nil {
					b.Error(err)
				}
			})
		}
		work.Wait()
		if err := s.Compact(b.Context()); err != nil {
			b.Error(err)
		}
		b.StopTimer()
		counts.Store(false)
		fillReferences(b, s, next%references, deletedAtOnce, each)
		next += deletedAtOnce
		b.StartTimer()
	}
}

func ownedBlock(tb testing.TB, reference, n int) blocks.Block {
	data := make([]byte, 1<<10)
	binary.BigEndian.PutUint64(data, uint64(reference))
	binary.BigEndian.PutUint64(data[8:], uint64(n))
	return rawBlock(tb, data)
}

func fillReferences(b *testing.B, s *Store, from, references, each int) {
	var work sync.WaitGroup
	const writers = 64
	for w := range writers {
		work.Go(func() {
			for o := from + w; o < from+references; o += writers {
				blks := make([]blocks.Block, each)
				for i := range blks {
					blks[i] = ownedBlock(b, o, i)
				}
				if err := s.PutAndSeal(b.Context(), fmt.Sprint("reference ", o), blks, Sealed{Bytes: uint64(each) << 10, Blocks: uint64(each)}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
}
