package blocks

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// BenchmarkPut is a durable put of one block by each of many writers at a
// time. One iteration is a round of benchRound puts, from the first to the end
// of the last; the blocks are made between rounds, while nobody writes.
func BenchmarkPut(b *testing.B) {
	const benchRound = 128
	for _, tc := range []struct{ size, writers int }{{64 << 10, 1}, {64 << 10, 32}, {1 << 20, 1}, {1 << 20, 8}} {
		b.Run(fmt.Sprintf("%dKiB-%dwriters", tc.size>>10, tc.writers), func(b *testing.B) {
			opts := testOptions()
			opts.SegmentBytes = DefaultSegmentBytes
			s := openWith(b, b.TempDir(), opts)
			b.SetBytes(int64(tc.size) * benchRound)
			b.ReportAllocs()
			seed := uint64(0)
			for b.Loop() {
				b.StopTimer()
				blks := make([]blocks.Block, benchRound)
				for i := range blks {
					seed++
					data := make([]byte, tc.size)
					binary.BigEndian.PutUint64(data, seed)
					blks[i] = rawBlock(b, data)
				}
				b.StartTimer()
				var group sync.WaitGroup
				for w := range tc.writers {
					group.Go(func() {
						for i := w; i < benchRound; i += tc.writers {
							if err := s.Put(b.Context(), fmt.Sprintf("o%d", w), blks[i:i+1]); err != nil {
								b.Error(err)
							}
						}
					})
				}
				group.Wait()
			}
			b.ReportMetric(float64(b.N*benchRound)/b.Elapsed().Seconds(), "puts/s")
		})
	}
}

// BenchmarkPutAndSeal is what an object of 64 KiB costs the store, whose hash was
// checked by who took it in: all of it is new. Beside the time it tells the
// processor time, which several stores on one machine share.
func BenchmarkPutAndSeal(b *testing.B) {
	const size, round = 64 << 10, 256
	for _, writers := range []int{1, 16, 32} {
		b.Run(fmt.Sprintf("%d writers", writers), func(b *testing.B) {
			opts := testOptions()
			opts.SegmentBytes = DefaultSegmentBytes
			s := openWith(b, b.TempDir(), opts)
			b.ReportAllocs()
			seed, used := uint64(0), time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				blks, references := make([]blocks.Block, round), make([]string, round)
				for i := range blks {
					seed++
					data := make([]byte, size)
					binary.BigEndian.PutUint64(data, seed)
					blks[i] = claim{rawBlock(b, data), true}
					references[i] = "root/" + blks[i].Cid().String()
				}
				before := hosttest.ProcessorTime(b)
				b.StartTimer()
				var next atomic.Int64
				var group sync.WaitGroup
				for range writers {
					group.Go(func() {
						for i := next.Add(1) - 1; i < round; i = next.Add(1) - 1 {
							var put sync.WaitGroup // each in a goroutine of its own, as what a member sends
							put.Go(func() {
								if err := s.PutColdAndSeal(b.Context(), references[i], blks[i:i+1], Sealed{Bytes: size, Blocks: 1, Hidden: true}); err != nil {
									b.Error(err)
								}
							})
							put.Wait()
						}
					})
				}
				group.Wait()
				used += hosttest.ProcessorTime(b) - before
			}
			b.ReportMetric(float64(b.N*round)/b.Elapsed().Seconds(), "puts/s")
			b.ReportMetric(float64(used.Microseconds())/float64(b.N*round), "cpu-µs/put")
		})
	}
}

// BenchmarkSmallPin is what a pin of one block of 1 KiB costs the store, beside
// many others: its three steps, and the two that are left.
func BenchmarkSmallPin(b *testing.B) {
	const writers = 64
	run := func(name string, store func(s *Store, reference string, blk blocks.Block) error) {
		b.Run(name, func(b *testing.B) {
			opts := testOptions()
			opts.SegmentBytes = DefaultSegmentBytes
			s := openWith(b, b.TempDir(), opts)
			b.ReportAllocs()
			b.SetParallelism(writers)
			var seed atomic.Uint64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n := seed.Add(1)
					data := make([]byte, 1<<10)
					binary.BigEndian.PutUint64(data, n)
					blk := rawBlock(b, data)
					reference := "root/" + blk.Cid().String()
					if _, err := s.Adopt(b.Context(), reference, []cid.Cid{blk.Cid()}); err != nil {
						b.Error(err)
					}
					if err := store(s, reference, blk); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	run("put, seal", func(s *Store, reference string, blk blocks.Block) error {
		if err := s.Put(b.Context(), reference, []blocks.Block{blk}); err != nil {
			return err
		}
		return s.Seal(b.Context(), reference, Sealed{Bytes: 1 << 10, Blocks: 1})
	})
	run("put and seal", func(s *Store, reference string, blk blocks.Block) error {
		return s.PutAndSeal(b.Context(), reference, []blocks.Block{blk}, Sealed{Bytes: 1 << 10, Blocks: 1})
	})
	run("put and seal hidden", func(s *Store, reference string, blk blocks.Block) error {
		return s.PutAndSeal(b.Context(), reference, []blocks.Block{blk}, Sealed{Bytes: 1 << 10, Blocks: 1, Hidden: true})
	})
}

func BenchmarkGet(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s := openWith(b, b.TempDir(), testOptions())
			blks := makeBlocks(b, 1, 64, size)
			mustPut(b, s, "o", blks...)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := s.Get(b.Context(), blks[i%len(blks)].Cid()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHas(b *testing.B) {
	s := openWith(b, b.TempDir(), testOptions())
	blks := makeBlocks(b, 1, 10_000, 64)
	mustPut(b, s, "o", blks...)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Has(b.Context(), blks[i%len(blks)].Cid()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHide makes a large reference hidden and visible again.
func BenchmarkHide(b *testing.B) {
	s := openWith(b, b.TempDir(), testOptions())
	const n = 10_000
	mustPut(b, s, "o", makeBlocks(b, 1, n, 64)...)
	must(b, s.Seal(b.Context(), "o", Sealed{Blocks: n}))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if changed, err := s.Hide(b.Context(), "o", i%2 == 0); err != nil || !changed {
			b.Fatal(changed, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/block")
}
