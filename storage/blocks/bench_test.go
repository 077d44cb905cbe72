package blocks

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	blocks "github.com/ipfs/go-block-format"
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
