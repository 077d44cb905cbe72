package blocks

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	blocks "github.com/ipfs/go-block-format"
)

// BenchmarkPut is a durable put of one block by each of many writers at a
// time. The blocks are made (and hashed) outside the measured part.
func BenchmarkPut(b *testing.B) {
	for _, tc := range []struct{ size, writers int }{{64 << 10, 1}, {64 << 10, 32}, {1 << 20, 1}, {1 << 20, 8}} {
		b.Run(fmt.Sprintf("%dKiB-%dwriters", tc.size>>10, tc.writers), func(b *testing.B) {
			opts := testOptions()
			opts.SegmentBytes = DefaultSegmentBytes
			s := openWith(b, b.TempDir(), opts)
			b.SetBytes(int64(tc.size))
			b.ReportAllocs()
			todo := make(chan blocks.Block, tc.writers)
			var group sync.WaitGroup
			for w := range tc.writers {
				group.Go(func() {
					for blk := range todo {
						if err := s.Put(b.Context(), fmt.Sprintf("o%d", w), []blocks.Block{blk}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			data := make([]byte, tc.size)
			next := uint64(0)
			for b.Loop() {
				b.StopTimer()
				next++
				own := append([]byte(nil), data...)
				binary.BigEndian.PutUint64(own, next)
				blk := rawBlock(b, own)
				b.StartTimer()
				todo <- blk
			}
			close(todo)
			group.Wait()
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
