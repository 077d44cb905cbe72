package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// filter decides whether a stored pin has the requested name and meta. It reads the encoded
// row without copying it.
type filter struct {
	name func(name []byte) bool // nil: any
	meta map[string]string      // pairs that the pin must have
}

func (q *PinQuery) filter() filter { return filter{name: nameMatcher(q.Name, q.Match), meta: q.Meta} }

// every returns whether the filter matches all pins.
func (f *filter) every() bool { return f.name == nil && len(f.meta) == 0 }

func (f *filter) match(row []byte) (bool, error) {
	if f.every() {
		return true, nil
	}
	name, rest, err := peekPin(row)
	if err != nil || f.name != nil && !f.name(name) {
		return false, err
	}
	if len(f.meta) == 0 {
		return true, nil
	}
	found := 0 // keys of a map are different
	for range codec.Count(&rest, MaxMetaPairs) {
		k, got := codec.Text(&rest, MaxMetaBytes), codec.Text(&rest, MaxMetaBytes)
		if want, ok := f.meta[string(k)]; ok && want == string(got) {
			found++
		}
	}
	return found == len(f.meta), rest.Err()
}
