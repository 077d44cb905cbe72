package blocks

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"pgregory.net/rapid"
)

// machine drives a store and a map that says what it should hold.
type machine struct {
	dir        string
	opts       Options
	store      *Store
	blks       []blocks.Block
	references map[string]*modelReference
}

type modelReference struct {
	refs   map[int]bool // positions in blks
	sealed bool
	seal   Sealed
	// turning: a seal was cut short, so nothing of it shows until it is ended
	turning bool
}

func (m *machine) alive() map[int]bool {
	alive := make(map[int]bool)
	for _, o := range m.references {
		for i := range o.refs {
			alive[i] = true
		}
	}
	return alive
}

func (m *machine) reference(name string) *modelReference {
	if m.references[name] == nil {
		m.references[name] = &modelReference{refs: make(map[int]bool)}
	}
	return m.references[name]
}

func (m *machine) must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// take gives a reference blocks, and returns them.
func (m *machine) take(reference string, which []int) (blks []blocks.Block) {
	for _, i := range which {
		blks = append(blks, m.blks[i])
		m.reference(reference).refs[i] = true
	}
	return blks
}

func (m *machine) check(t *rapid.T) {
	ctx := context.Background()
	alive := m.alive()
	bytes := uint64(0)
	for i, b := range m.blks {
		got, err := m.store.Get(ctx, b.Cid())
		if alive[i] != (err == nil) {
			t.Fatalf("block %d: %v, alive %v", i, err, alive[i])
		}
		if alive[i] {
			bytes += uint64(len(got.RawData()))
		}
	}
	seen := 0
	if err := m.store.References(ctx, "", func(o ReferenceInfo) (bool, error) {
		want := m.references[o.Reference]
		if want == nil {
			t.Fatalf("reference %q should not be", o.Reference)
		}
		seen++
		refs := make(map[string]bool)
		err := m.store.Blocks(ctx, o.Reference, func(h multihash.Multihash) (bool, error) { refs[string(h)] = true; return true, nil })
		for i := range want.refs {
			if !refs[string(m.blks[i].Cid().Hash())] {
				t.Fatalf("reference %q lacks block %d", o.Reference, i)
			}
		}
		if len(refs) != len(want.refs) || o.Sealed != want.sealed || (o.Sealed && o.Bytes != want.seal.Bytes) || (!o.Sealed && o.Blocks != uint64(len(refs))) {
			t.Fatalf("reference %+v with %d blocks, want %+v", o, len(refs), want)
		}
		return true, err
	}); err != nil {
		t.Fatal(err)
	}
	if u := m.store.Usage(); seen != len(m.references) || u.Blocks != uint64(len(alive)) || u.LiveBytes != bytes || u.Missing != 0 || u.Damaged != 0 {
		t.Fatalf("%d references, %+v; want %d references, %d blocks, %d bytes", seen, u, len(m.references), len(alive), bytes)
	}
	m.checkVisible(t)
	wantLoads(t, m.store)
	if found, err := m.store.Check(ctx, 3); err != nil || len(found.Differences) > 0 {
		t.Fatalf("check: %+v, %v", found, err)
	}
	m.checkDrops(t)
}

// checkVisible compares what Visible says of every block with the references.
func (m *machine) checkVisible(t *rapid.T) {
	visible := make(map[int]bool)
	for _, o := range m.references {
		for i := range o.refs {
			visible[i] = visible[i] || o.sealed && !o.seal.Hidden && !o.turning
		}
	}
	for i, b := range m.blks {
		if got, err := m.store.Visible(context.Background(), b.Cid()); err != nil || got != visible[i] {
			t.Fatalf("block %d is visible: %v, %v; want %v", i, got, err, visible[i])
		}
	}
	m.checkHidden(t)
}

// checkHidden compares the counts of hidden references with the references, and these
// with the seals of their references.
func (m *machine) checkHidden(t *rapid.T) {
	v := m.store.index.View()
	defer v.Close()
	counts, want := make(map[string]uint32), make(map[string]uint32)
	hidden, turning := make(map[uint64]bool), make(map[uint64]bool)
	for name, o := range m.references {
		e, ok, err := getReference(v, name)
		if err != nil || !ok || o.sealed && e.sealed.Hidden != o.seal.Hidden {
			t.Fatalf("reference %q: %+v, %v, %v; want %+v", name, e, ok, err, o)
		}
		hidden[e.inc], turning[e.inc] = e.sealed.Hidden, o.turning
	}
	if err := v.Scan(nil, nil, false, func(key, value []byte) (bool, error) {
		switch key[0] {
		case keyBlock:
			e, err := decodeBlockEntry(key, value)
			counts[string(key[1:])] = e.hidden
			return true, err
		case keyBlockRef:
			at, err := decodeBlockRefEntry(key, value)
			inc := (&reader{b: key[1:]}).uint(8)
			if at.hidden {
				want[string(key[9:])]++
			}
			if at.hidden != hidden[inc] && !turning[inc] {
				t.Fatalf("a reference of incarnation %x is hidden: %v", inc, at.hidden)
			}
			return true, err
		case keyOpen:
			inc := (&reader{b: key[1:]}).uint(8)
			if (len(value) > 0) != turning[inc] {
				t.Fatalf("incarnation %x is being counted: %q", inc, value)
			}
		}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	for hash, n := range counts {
		if n != want[hash] {
			t.Fatalf("block %x counts %d hidden references, there are %d", hash, n, want[hash])
		}
	}
}

// wantLoads compares the counts that decide about segments with the index, of a store
// without doubts.
func wantLoads(t rapid.TB, s *Store) {
	t.Helper()
	want := make(map[uint32]int64)
	v := s.index.View()
	defer v.Close()
	if err := v.Scan(nil, nil, false, func(key, value []byte) (bool, error) {
		switch key[0] {
		case keyBlock:
			e, err := decodeBlockEntry(key, value)
			want[e.segment]++
			return true, err
		case keyBlockRef:
			want[uint32((&reader{b: value}).uint(4))]++
		case keyReference:
			if e, err := decodeReferenceEntry(key, value); err != nil || e.sealSegment != 0 {
				want[e.sealSegment]++
				return true, err
			}
		case keyDropped:
			e, err := decodeDroppedEntry(key, value)
			want[e.segment]++
			return true, err
		}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	s.stats.Lock()
	defer s.stats.Unlock()
	for number, l := range s.loads {
		if l.records != want[number] || l.bytes < 0 || l.bytes > s.sizes[number] || (l.records == 0) != (l.bytes == 0) {
			t.Fatalf("segment %d of %d bytes counts %+v, the index %d", number, s.sizes[number], l, want[number])
		}
		delete(want, number)
	}
	if len(want) > 0 {
		t.Fatalf("segments without counts: %v", want)
	}
}

// checkDrops reads the segments: whatever names an incarnation that does not
// live must be killed by a drop record, there or where the index keeps one.
func (m *machine) checkDrops(t *rapid.T) {
	v := m.store.index.View()
	defer v.Close()
	places, counted := make(map[uint64]uint32), make(map[uint64]uint32)
	if err := v.Scan([]byte{keyDead}, []byte{keyDead + 1}, false, func(key, _ []byte) (bool, error) {
		places[(&reader{b: key[5:]}).uint(8)]++
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	living := make(map[uint64]bool)
	if err := v.Scan([]byte{keyReference}, []byte{keyReference + 1}, false, func(key, value []byte) (bool, error) {
		e, err := decodeReferenceEntry(key, value)
		living[e.inc], counted[e.inc] = true, e.outdated
		return true, err
	}); err != nil {
		t.Fatal(err)
	}
	kept := make(map[uint64]bool)
	if err := v.Scan([]byte{keyDropped}, []byte{keyDropped + 1}, false, func(key, value []byte) (bool, error) {
		e, err := decodeDroppedEntry(key, value)
		inc := (&reader{b: key[1:]}).uint(8)
		kept[inc], counted[inc] = e.segment != 0, e.segments
		return true, err
	}); err != nil {
		t.Fatal(err)
	}
	for inc := range counted {
		if counted[inc] != places[inc] {
			t.Fatalf("incarnation %x: %d segments with dead records counted, the index names %d", inc, counted[inc], places[inc])
		}
		delete(places, inc)
	}
	if len(places) > 0 {
		t.Fatalf("incarnations %v are nowhere counted", places)
	}
	for number := range m.store.sizes {
		dead, here := make(map[uint64]bool), make(map[uint64]bool)
		for _, r := range m.records(t, number) {
			if r.kind == kindDrop {
				here[r.inc] = true
			} else if r.kind != kindBlock && !living[r.inc] {
				dead[r.inc] = true
			}
		}
		for inc := range dead {
			if !kept[inc] && !here[inc] {
				t.Fatalf("segment %d holds records of incarnation %x that nothing keeps dead", number, inc)
			}
		}
	}
}

func (m *machine) records(t *rapid.T, number uint32) (out []record) {
	h, err := m.store.files.acquire(number)
	if err != nil {
		t.Fatal(err)
	}
	defer m.store.files.release(h)
	sc := &scan{src: h.f, seed: h.seed, size: m.store.sizes[number]}
	if err := sc.each(headerBytes, func(r record) error { r.data = nil; out = append(out, r); return nil }); err != nil || len(sc.bad) > 0 {
		t.Fatalf("segment %d: %v, bad %v", number, err, sc.bad)
	}
	return out
}

// modelChecks is how many histories the model test tries unless -rapid.checks
// says otherwise.
const modelChecks = 30

// fewerChecks makes rapid try modelChecks histories, if nobody asked for others.
func fewerChecks(t *testing.T) {
	t.Helper()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		must(t, flag.Set("rapid.checks", strconv.Itoa(modelChecks)))
	}
}

// A store has exactly the blocks, references and visibility of a model after any sequence of operations. The
// operations are writes, seals, drops, compactions, restarts, kills and losses of the index.
func TestStoreBehavesLikeAMapWhateverHappens(t *testing.T) {
	blks := slices.Concat(makeBlocks(t, 1, 10, 300), makeBlocks(t, 2, 10, 1_500), makeBlocks(t, 3, 4, 4_000))
	fewerChecks(t)
	t.Parallel() // it mostly waits for the disk
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "holdfast-blocks-model")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := &machine{dir: filepath.Join(dir, "0"), opts: testOptions(), blks: blks, references: make(map[string]*modelReference)}
		m.opts.SegmentBytes, m.opts.countStep, m.opts.directBytes = 8<<10, 2, directAlign
		m.open(t)
		defer func() { _ = m.store.Close() }()
		name := rapid.SampledFrom([]string{"a", "b", "c", "root/1"})
		some := rapid.SliceOfN(rapid.IntRange(0, len(blks)-1), 1, 6)
		steps := m.writes(name, some)
		maps.Copy(steps, m.upheavals(name))
		steps[""] = m.check
		t.Repeat(steps)
	})
}

// writes returns what is asked of the store.
func (m *machine) writes(name *rapid.Generator[string], some *rapid.Generator[[]int]) map[string]func(*rapid.T) {
	ctx, blks := context.Background(), m.blks
	return map[string]func(*rapid.T){
		"put": func(t *rapid.T) {
			reference := name.Draw(t, "reference")
			if err := m.store.Put(ctx, reference, m.take(reference, some.Draw(t, "blocks"))); err != nil {
				t.Fatal(err)
			}
		},
		"put cold": func(t *rapid.T) {
			reference := name.Draw(t, "reference")
			if err := m.store.PutCold(ctx, reference, m.take(reference, some.Draw(t, "blocks"))); err != nil {
				t.Fatal(err)
			}
		},
		"put and seal": func(t *rapid.T) {
			reference := name.Draw(t, "reference")
			put, o := m.take(reference, some.Draw(t, "blocks")), m.reference(reference)
			o.sealed, o.seal = true, drawSeal(t)
			o.turning = false
			call := m.store.PutAndSeal
			if rapid.Bool().Draw(t, "cold") {
				call = m.store.PutColdAndSeal
			}
			if err := call(ctx, reference, put, o.seal); err != nil {
				t.Fatal(err)
			}
		},
		"several in one batch": func(t *rapid.T) {
			var steps []func(b *batch) error
			for range rapid.IntRange(2, 6).Draw(t, "steps") {
				steps = append(steps, m.batched(t, name.Draw(t, "reference"), some))
			}
			m.must(t, m.store.do(ctx, recordSlack, func(b *batch) error {
				for _, step := range steps {
					if err := step(b); err != nil {
						return err
					}
				}
				return nil
			}))
		},
		"adopt": func(t *rapid.T) {
			reference, which := name.Draw(t, "reference"), some.Draw(t, "blocks")
			alive := m.alive()
			var cids, want []cid.Cid
			var here uint64
			for _, i := range which {
				cids = append(cids, blks[i].Cid())
				if alive[i] {
					m.reference(reference).refs[i] = true
					here += uint64(len(blks[i].RawData()))
				} else {
					want = append(want, blks[i].Cid())
				}
			}
			bytes, missing, err := m.store.TakeOver(ctx, reference, cids, rapid.Bool().Draw(t, "going to be hidden"))
			if err != nil || !slices.Equal(missing, want) || bytes != here {
				t.Fatalf("%d bytes, missing %v, %v, want %d and %v", bytes, missing, err, here, want)
			}
		},
		"seal": func(t *rapid.T) {
			reference := name.Draw(t, "reference")
			o := m.reference(reference)
			o.sealed, o.seal = true, drawSeal(t)
			o.turning = false
			m.must(t, m.store.Seal(ctx, reference, o.seal))
		},
		"seal cut short": func(t *rapid.T) {
			reference := name.Draw(t, "reference")
			o := m.reference(reference)
			o.sealed, o.seal = true, drawSeal(t)
			m.must(t, m.store.do(ctx, recordSlack, func(b *batch) error {
				inc, err := b.seal(reference, o.seal)
				if err == nil {
					_, _, o.turning, err = getUncounted(b.tx, inc)
				}
				return err
			}))
		},
		"hide": func(t *rapid.T) {
			reference, hidden := name.Draw(t, "reference"), rapid.Bool().Draw(t, "hidden")
			o := m.references[reference]
			change := o != nil && o.sealed && o.seal.Hidden != hidden
			if changed, err := m.store.Hide(ctx, reference, hidden); err != nil || changed != change {
				t.Fatalf("changed %v, %v; want %v", changed, err, change)
			}
			if o != nil && o.sealed {
				o.seal.Hidden, o.turning = hidden, false
			}
		},
	}
}

// batched returns one write in a batch that has others: what they begin and end is in no
// store yet.
func (m *machine) batched(t *rapid.T, reference string, some *rapid.Generator[[]int]) func(b *batch) error {
	switch rapid.SampledFrom([]string{"put", "put and seal", "drop", "drop"}).Draw(t, "step") {
	case "put":
		put := m.take(reference, some.Draw(t, "blocks"))
		return func(b *batch) error { return b.put(reference, put, nil) }
	case "put and seal":
		put, o, sealed := m.take(reference, some.Draw(t, "blocks")), m.reference(reference), drawSeal(t)
		o.sealed, o.seal = true, sealed
		return func(b *batch) error {
			inc, err := b.putAndSeal(reference, put, nil, sealed)
			if err == nil {
				_, _, o.turning, err = getUncounted(b.tx, inc)
			}
			return err
		}
	default:
		delete(m.references, reference)
		return func(b *batch) error {
			_, err := b.bury(reference, sweepStep)
			return err
		}
	}
}

// upheavals returns what happens to a store as a whole, and drops.
func (m *machine) upheavals(name *rapid.Generator[string]) map[string]func(*rapid.T) {
	ctx, dir, copies := context.Background(), filepath.Dir(m.dir), 0
	return map[string]func(*rapid.T){
		"drop": func(t *rapid.T) {
			reference := name.Draw(t, "reference")
			delete(m.references, reference)
			if _, err := m.store.Drop(ctx, reference); err != nil {
				t.Fatal(err)
			}
		},
		"compact": func(t *rapid.T) {
			m.must(t, m.store.Compact(ctx))
			m.ended()
		},
		"collect": func(t *rapid.T) {
			m.must(t, m.store.Collect(ctx))
			m.ended()
		},
		"reopen": func(t *rapid.T) {
			if err := m.store.Close(); err != nil {
				t.Fatal(err)
			}
			m.open(t)
		},
		"kill": func(t *rapid.T) {
			copies++
			next := filepath.Join(dir, fmt.Sprint(copies))
			if err := copyStill(m.dir, next); err != nil {
				t.Fatal(err)
			}
			if err := m.store.Close(); err != nil {
				t.Fatal(err)
			}
			m.dir = next
			m.open(t)
		},
		"lose the index": func(t *rapid.T) {
			if err := m.store.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(m.dir, indexDir)); err != nil {
				t.Fatal(err)
			}
			m.open(t)
		},
	}
}

// drawSeal declares no blocks: a seal of more than its reference has is not trusted without the
// index.
func drawSeal(t *rapid.T) Sealed {
	return Sealed{Bytes: rapid.Uint64Range(0, 3).Draw(t, "bytes"), Hidden: rapid.Bool().Draw(t, "hidden")}
}

// ended says that all seals which were cut short are ended.
func (m *machine) ended() {
	for _, o := range m.references {
		o.turning = false
	}
}

// open opens the store and ends the drops that a crash interrupted.
func (m *machine) open(t *rapid.T) {
	s, err := Open(m.dir, m.opts)
	if err != nil {
		t.Fatal(err)
	}
	m.store = s
	m.ended()
	for inc := range s.unswept {
		if _, err := s.sweep(context.Background(), inc); err != nil {
			t.Fatal(err)
		}
	}
}
