package state

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// withPairs writes n pins, apart milliseconds after each other. All have app=bench; half=1, third=1,
// fifth=1 and hundredth=1 are on so many of them, independently of each other. One in failed has
// failed, and the others are pinned. It returns the creation time of the pin in the middle.
func (d *onDisk) withPairs(b *testing.B, n, apart, failed int) (middle Millis) {
	b.Helper()
	content, err := cid.Decode(contents[0])
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	at := Millis(1 << 40)
	for from := 0; from < n; from += 1000 {
		tx := d.store.Begin()
		for i := from; i < from+1000; i++ {
			at += Millis(apart)
			if apart > 1 {
				at += Millis(rng.IntN(1000))
			}
			p := create(alice, RequestID(fmt.Sprintf("01980000-0000-7000-8000-%012d", i)), contents[0]).Pin
			p.Status, p.Created, p.Name = Pinned, at, fmt.Sprintf("name %d", i)
			if rng.IntN(failed) == 0 {
				p.Status = Failed
			}
			p.Meta = map[string]string{"app": "bench"}
			for i, pair := range []string{"half", "third", "fifth", "hundredth"} {
				if rng.IntN([]int{2, 3, 5, 100}[i]) == 0 {
					p.Meta[pair] = "1"
				}
			}
			if err := insertPin(tx, &p, content); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(false); err != nil {
			b.Fatal(err)
		}
		if from == n/2 {
			middle = at
		}
	}
	return middle
}

// BenchmarkListPinsByPairs is what lists by several pairs of meta cost that many pins have,
// independently of each other.
func BenchmarkListPinsByPairs(b *testing.B) {
	for _, of := range []struct {
		name          string
		apart, failed int
	}{
		{"1 ms apart", 1, 1 << 40},
		{"1 ms apart, 1 of 100 failed", 1, 100},
		{"1 min apart, 1 of 1000 failed", 60_000, 1000},
	} {
		for _, n := range []int{100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/pins=%d", of.name, n), func(b *testing.B) { // not run before it is asked for
				d := newOnDisk(b)
				d.apply(b, &RaiseLevel{FeatureLevel: NewestFeatureLevel})
				d.listByPairs(b, d.withPairs(b, n, of.apart, of.failed))
			})
		}
	}
}

func (d *onDisk) listByPairs(b *testing.B, middle Millis) {
	b.Helper()
	pairs := func(keys ...string) map[string]string {
		m := map[string]string{}
		for _, k := range keys {
			m[k] = "1"
			if k == "app" {
				m[k] = "bench"
			}
		}
		return m
	}
	pinned := []Status{Pinned}
	for _, bm := range []struct {
		name string
		q    PinQuery
	}{
		{"half and a third", PinQuery{Statuses: pinned, Meta: pairs("half", "third")}},
		{"half and a third, before the middle", PinQuery{Statuses: pinned, Before: middle, Meta: pairs("half", "third")}},
		{"half and a third, all statuses", PinQuery{Meta: pairs("half", "third")}},
		{"half and a third, page of 1000", PinQuery{Statuses: pinned, Limit: 1000, Meta: pairs("half", "third")}},
		{"half, a third and a fifth", PinQuery{Statuses: pinned, Meta: pairs("half", "third", "fifth")}},
		{"all, half, a third and a fifth", PinQuery{Statuses: pinned, Meta: pairs("app", "half", "third", "fifth")}},
		{"half and one of 100", PinQuery{Statuses: pinned, Meta: pairs("half", "hundredth")}},
		{"all and half", PinQuery{Statuses: pinned, Meta: pairs("app", "half")}},
	} {
		if bm.q.Limit == 0 {
			bm.q.Limit = 10
		}
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu := hosttest.ProcessorTime(b)
			for b.Loop() {
				view := d.store.View()
				total, _, err := NewView(view, 0).ListPins(b.Context(), alice, bm.q)
				view.Close()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(total), "pins")
			}
			b.ReportMetric((hosttest.ProcessorTime(b)-cpu).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}
