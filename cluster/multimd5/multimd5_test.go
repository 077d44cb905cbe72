package multimd5

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"hash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func random(r *rand.ChaCha8, n int) []byte {
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

// Each lane computes the MD5 state that the standard library computes, for any number of lanes and any alignment.
func TestLanes(t *testing.T) {
	if !haveLanes() {
		t.Skip("this processor has no AVX-512")
	}
	r := rand.NewChaCha8([32]byte{1})
	for n := 2; n <= width; n++ {
		for blocks := 1; blocks < 40; blocks += 6 {
			in, want := make([]*Hash, n), make([]hash.Hash, n)
			for i := range in {
				h := new(Pool).New()
				if h.alone {
					t.Fatal("the standard library keeps the state of an MD5 in another form")
				}
				in[i], want[i] = h, md5.New()
				before := random(r, i*md5.BlockSize)
				_, _ = h.Write(before)
				_, _ = want[i].Write(before)
				h.rest = random(r, blocks*md5.BlockSize+i)[i:] // not aligned
				_, _ = want[i].Write(h.rest)
			}
			together(in, blocks*md5.BlockSize)
			for i, h := range in {
				after := random(r, 5)
				_, _ = h.Hash.Write(after)
				_, _ = want[i].Write(after)
				if got, want := h.Sum(nil), want[i].Sum(nil); !bytes.Equal(got, want) {
					t.Errorf("%d blocks, lane %d of %d: %x, want %x", blocks, i, n, got, want)
				}
			}
		}
	}
}

// Bodies that are hashed at the same time, in pieces of all sizes, have the MD5 that each would have alone.
func TestManyBodies(t *testing.T) {
	var pool Pool
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			seed := [32]byte{2, byte(i)}
			r, sizes := rand.NewChaCha8(seed), rand.New(rand.NewPCG(1, uint64(i)))
			got, want := pool.New(), md5.New()
			if i%3 == 0 { // never all of them
				got.Wait()
				defer got.Leave()
			}
			for range 20 {
				for range sizes.IntN(6) {
					piece := random(r, sizes.IntN([]int{100, least, 2 * least, 5 * slice}[sizes.IntN(4)]))
					if n, err := got.Write(piece); n != len(piece) || err != nil {
						t.Error(n, err)
					}
					_, _ = want.Write(piece)
				}
				prefix := []byte("before")
				if got, want := got.Sum(prefix), want.Sum(prefix); !bytes.Equal(got, want) {
					t.Errorf("%x, want %x", got, want)
				}
				if sizes.IntN(4) == 0 {
					got.Reset()
					want.Reset()
				}
			}
		})
	}
	all.Wait()
	if pool.led || len(pool.queue)+pool.patient > 0 {
		t.Errorf("left in the pool: %+v", &pool)
	}
	if h := pool.New(); h.Size() != md5.Size || h.BlockSize() != md5.BlockSize {
		t.Error(h.Size(), h.BlockSize())
	}
}

// A hash that waits is computed when all that wait have bytes, when one is in a hurry, or when one does not wait any
// more, and not before.
func TestWhoWaits(t *testing.T) {
	if !haveLanes() {
		t.Skip("this processor has no AVX-512")
	}
	piece := make([]byte, least)
	for _, tc := range []struct {
		name string
		then func(pool *Pool, waits, other *Hash)
	}{
		{"the other has something too", func(_ *Pool, _, other *Hash) { _, _ = other.Write(piece) }},
		{"it is in a hurry", func(_ *Pool, waits, _ *Hash) { waits.Hurry() }},
		{"it does not wait any more", func(_ *Pool, waits, _ *Hash) { waits.Leave() }},
		{"the other does not wait any more", func(_ *Pool, _, other *Hash) { other.Leave() }},
		{"somebody else does not wait at all", func(pool *Pool, _, _ *Hash) { _, _ = pool.New().Write(piece) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pool Pool
				waits, other := pool.New(), pool.New()
				waits.Wait()
				other.Wait()
				var over atomic.Bool
				go func() {
					_, _ = waits.Write(piece)
					over.Store(true)
				}()
				synctest.Wait()
				if over.Load() {
					t.Error("it did not wait")
				}
				tc.then(&pool, waits, other)
				synctest.Wait()
				if !over.Load() {
					t.Error("it waits still")
				}
				want := md5.Sum(piece)
				if got := waits.Sum(nil); !bytes.Equal(got, want[:]) {
					t.Errorf("%x, want %x", got, want)
				}
				waits.Leave()
				other.Leave()
				if pool.led || len(pool.queue)+pool.patient > 0 {
					t.Errorf("left in the pool: %+v", &pool)
				}
			})
		})
	}
}

// BenchmarkPool hashes so many bodies of 64 KiB at once, in one pool and each by the
// standard library. Both processors hash; their time is what to compare.
func BenchmarkPool(b *testing.B) {
	const size = 64 << 10
	for _, bodies := range []int{1, 2, 4, 8, 16, 32} {
		for _, tc := range []struct {
			name string
			make func(*Pool) hash.Hash
		}{
			{"together", func(p *Pool) hash.Hash { return p.New() }},
			{"each alone", func(*Pool) hash.Hash { return md5.New() }},
		} {
			b.Run(fmt.Sprintf("%d bodies %s", bodies, tc.name), func(b *testing.B) {
				var pool Pool
				var all sync.WaitGroup
				var left atomic.Int64
				left.Store(int64(b.N))
				b.SetBytes(size)
				b.ReportAllocs()
				for range bodies {
					all.Go(func() {
						body := make([]byte, size)
						for left.Add(-1) >= 0 {
							h := tc.make(&pool)
							_, _ = h.Write(body)
							body = h.Sum(body[:0])[:size]
						}
					})
				}
				all.Wait()
			})
		}
	}
}
