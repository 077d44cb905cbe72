package state

import (
	"slices"
	"strings"
)

// wantPackedNames compares the packed names of all accounts with their pins, by what each row says
// and not by how it came about.
func (m *machine) wantPackedNames(pins []Pin) {
	m.t.Helper()
	for _, a := range everyone() {
		want := map[Millis]string{}
		to, err := packedTo(m, a)
		if err != nil {
			m.t.Fatal(err)
		}
		for i := range pins {
			if p := &pins[i]; p.Account == a && p.Name != "" && p.Created <= to {
				want[p.Created] = p.Name
			}
		}
		before := to + 1 // when the chunk read last begins
		var gone []byte
		prefix := chunksOf(a)
		err = m.Scan(prefix, prefix.end(), false, func(k, value []byte) (bool, error) {
			oldest, form, err := readChunkKey(k[len(prefix):])
			if err != nil {
				return false, err
			}
			if form == chunkGone {
				gone = slices.Clone(value)
				return true, nil
			}
			c, err := decode[chunk](value)
			if err != nil {
				return false, err
			}
			c.oldest = oldest
			made, err := c.created(nil)
			if err != nil {
				return false, err
			}
			names := c.list()
			if len(names) != c.count || c.count == 0 || c.count > chunkNames || c.names[0] != nameEnd || c.names[len(c.names)-1] != nameEnd {
				m.t.Errorf("the chunk of %s at %d has %d names, and says %d", a, oldest, len(names), c.count)
			}
			if c.ascii != (strings.IndexFunc(strings.ReplaceAll(string(c.names), "\xff", ""), func(r rune) bool { return r > 127 }) < 0) {
				m.t.Errorf("the chunk of %s at %d says that it is ASCII: %t", a, oldest, c.ascii)
			}
			for i, at := range made {
				if at < oldest || at >= before || i > 0 && at >= made[i-1] {
					m.t.Errorf("the chunk of %s at %d, before %d, has times %d", a, oldest, before, made)
				}
				if isGone(gone, i) {
					continue
				}
				if name, ok := want[at]; !ok || name != string(names[i]) {
					m.t.Errorf("%s has a packed name %q of %d, want %q", a, names[i], at, name)
				}
				delete(want, at)
			}
			if n := countGone(gone); len(gone) > 0 && (n == 0 || n*goneShare >= c.count || len(gone) != (c.count+7)/8) {
				m.t.Errorf("of %d names of the chunk of %s at %d, %d are gone", c.count, a, oldest, n)
			}
			before, gone = oldest, nil
			return true, nil
		})
		if err != nil {
			m.t.Fatal(err)
		}
		if len(want) > 0 || len(gone) > 0 {
			m.t.Errorf("packed names of %s lack %v, and %x are gone of no chunk", a, want, gone)
		}
	}
}
