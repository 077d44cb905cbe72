package state

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkScan is what a list costs that looks at every pin of an account.
func BenchmarkScan(b *testing.B) {
	for _, of := range []struct {
		name        string
		pins, batch int
		meta        int // bytes
	}{
		{"1000 pins of 64 KiB", 1000, 50, MaxMetaBytes - 1},
		{"100000 small pins", 100_000, 1000, 0},
	} {
		d := newOnDisk(b)
		for i := range of.pins / of.batch {
			cmds := make([]Command, of.batch)
			for j := range cmds {
				n := i*of.batch + j
				c := create(alice, RequestID(fmt.Sprintf("%08d", n)), contents[n%len(contents)])
				c.Pin.Name = fmt.Sprintf("name %d", n)
				if of.meta > 0 {
					c.Pin.Meta = map[string]string{"k": strings.Repeat("m", of.meta)}
				}
				cmds[j] = c
			}
			d.apply(b, cmds...)
		}
		for _, bm := range []struct {
			name string
			q    PinQuery
		}{
			{"part of a name, none", PinQuery{Limit: 10, Name: "zzz", Match: Partial}},
			{"part of a name, any case, all", PinQuery{Limit: 10, Name: "NAME", Match: IPartial}},
			{"meta, none", PinQuery{Limit: 10, Meta: map[string]string{"app": "x"}}},
		} {
			b.Run(of.name+"/"+bm.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					view := d.store.View()
					if _, _, err := NewView(view, 0).ListPins(b.Context(), alice, bm.q); err != nil {
						b.Fatal(err)
					}
					view.Close()
				}
			})
		}
	}
}
