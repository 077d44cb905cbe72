package state

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// randomName returns a name of 10 to 40 letters; every other name begins with a word.
func randomName(rng *rand.Rand, letters []rune) string {
	name := make([]rune, 10+rng.IntN(31))
	for i := range name {
		name[i] = letters[rng.IntN(len(letters))]
	}
	if rng.IntN(2) == 0 {
		copy(name, []rune("Backup "))
	}
	return string(name)
}

const latin, cyrillic = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_. ", "абвгдежзийклмнопрстуфхцчшщъыьэюяАБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯ -"

// withNames writes n pinned pins with random names.
func (d *onDisk) withNames(b *testing.B, n int, letters string) {
	b.Helper()
	content, err := cid.Decode(contents[0])
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for from := 0; from < n; from += 1000 {
		tx := d.store.Begin()
		for i := from; i < from+1000; i++ {
			p := create(alice, RequestID(fmt.Sprintf("01980000-0000-7000-8000-%012d", i)), contents[0]).Pin
			p.Status, p.Created, p.Name = Pinned, Millis(1<<40+i), randomName(rng, []rune(letters))
			if i == n/3 {
				p.Name = "the one rare name"
			}
			if err := insertPin(tx, &p, content); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListPinsByName is what lists by a part of a name cost, before the names of an older release
// are packed and after it, and how fast they are packed.
func BenchmarkListPinsByName(b *testing.B) {
	for _, names := range []struct{ script, letters string }{{"latin", latin}, {"cyrillic", cyrillic}} {
		for _, n := range []int{200_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/pins=%d", names.script, n), func(b *testing.B) { // not run before it is asked for
				d := newOnDisk(b)
				d.apply(b, &RaiseLevel{FeatureLevel: PackedNamesLevel - 1})
				d.withNames(b, n, names.letters)
				d.listByName(b, "not packed", n)
				d.apply(b, &RaiseLevel{FeatureLevel: PackedNamesLevel})
				began, cpu, steps := time.Now(), hosttest.ProcessorTime(b), 0
				for d.packMore(b) {
					steps++
				}
				took, used := time.Since(began), hosttest.ProcessorTime(b)-cpu
				b.Run("packing", func(b *testing.B) {
					b.ReportMetric(float64(took.Milliseconds()), "ms")
					b.ReportMetric(float64(used.Milliseconds()), "cpu-ms")
					b.ReportMetric(float64(steps), "entries")
				})
				d.listByName(b, "packed", n)
			})
		}
	}
}

// packMore packs more names of older pins. It returns false if none are left.
func (d *onDisk) packMore(b *testing.B) bool {
	b.Helper()
	view := d.store.View()
	next, _, _, err := NewView(view, 0).NamesToPack()
	view.Close()
	if err != nil {
		b.Fatal(err)
	}
	if next != nil {
		d.apply(b, next)
	}
	return next != nil
}

func (d *onDisk) listByName(b *testing.B, prefix string, n int) {
	b.Helper()
	pinned := []Status{Pinned}
	for _, bm := range []struct {
		name string
		q    PinQuery
	}{
		{"none", PinQuery{Name: "no such name", Match: Partial}},
		{"none, any case", PinQuery{Name: "no such name", Match: IPartial}},
		{"none, any case, a letter of three forms", PinQuery{Name: "skill", Match: IPartial}},
		{"one", PinQuery{Name: "rare", Match: Partial}},
		{"one, any case", PinQuery{Name: "RARE", Match: IPartial}},
		{"the whole name, any case", PinQuery{Name: "The One Rare Name", Match: IExact}},
		{"half", PinQuery{Name: "Backup", Match: Partial}},
		{"half, any case", PinQuery{Name: "bACKUP", Match: IPartial}},
		{"half, before the middle", PinQuery{Name: "Backup", Match: Partial, Before: Millis(1<<40 + n/2)}},
		{"half, all statuses, page of 1000", PinQuery{Name: "Backup", Match: Partial, Statuses: Statuses(), Limit: 1000}},
		{"one letter, any case", PinQuery{Name: "e", Match: IPartial}},
	} {
		if bm.q.Statuses == nil {
			bm.q.Statuses = pinned
		}
		if bm.q.Limit == 0 {
			bm.q.Limit = 10
		}
		b.Run(prefix+"/"+bm.name, func(b *testing.B) {
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
