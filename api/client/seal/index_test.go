package seal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func index(t testing.TB, store Store) *Index {
	t.Helper()
	root, err := generate(t).FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	return NewIndex(store, "trip", root, "")
}

func entry(i int) Entry {
	return Entry{Name: fmt.Sprintf("name %06d.jpg", i), StorageKey: fmt.Sprintf("e/%032x", i), Size: int64(i), Modified: at()}
}

func entries(from, to int) (all []Entry) {
	for i := from; i < to; i++ {
		all = append(all, entry(i))
	}
	return all
}

// checkNames fails if the index does not have exactly the entries of the numbers below n for which
// has is true.
func checkNames(t *testing.T, x *Index, n int, has func(i int) bool) {
	t.Helper()
	all, err := x.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i := range n {
		if !has(i) {
			continue
		}
		if found >= len(all) || all[found] != entry(i) {
			t.Fatalf("entry %d is missing among %d", i, len(all))
		}
		found++
	}
	if found != len(all) {
		t.Fatalf("%d entries, want %d", len(all), found)
	}
}

// TestIndexKeepsNames promises that names are added, replaced, found and removed, across splits.
func TestIndexKeepsNames(t *testing.T) {
	const n = 5000
	ctx, store := t.Context(), newMemory()
	x := index(t, store)
	checkNames(t, x, 0, nil)
	for i := 0; i < n; i += 500 {
		if err := x.Put(ctx, entries(i, i+500)...); err != nil {
			t.Fatal(err)
		}
	}
	checkNames(t, x, n, func(int) bool { return true })
	changed := entry(7)
	changed.Size = 99
	if err := x.Put(ctx, changed); err != nil {
		t.Fatal(err)
	}
	if got, err := x.Lookup(ctx, changed.Name); err != nil || got != changed {
		t.Errorf("%+v, %v", got, err)
	}
	if err := x.Put(ctx, entry(7)); err != nil {
		t.Fatal(err)
	}
	var odd []string
	for i := 1; i < n; i += 2 {
		odd = append(odd, entry(i).Name)
	}
	if err := x.Remove(ctx, append(odd, "never there")...); err != nil {
		t.Fatal(err)
	}
	checkNames(t, x, n, func(i int) bool { return i%2 == 0 })
	_, err := x.Lookup(ctx, odd[0])
	want(t, err, ErrNotFound)
	keys, err := x.StorageKeys(ctx)
	if err != nil || len(keys) != len(store.objects) {
		t.Errorf("%d keys of %d objects: %v", len(keys), len(store.objects), err)
	}
	want(t, x.Put(ctx, Entry{Name: strings.Repeat("x", maxName+1)}), ErrTooLarge)
	want(t, x.Put(ctx, Entry{}), ErrTooLarge)
}

// TestManyWritersLoseNothing promises that writers that add and remove at the same time, while
// nodes are split, lose no entry and leave no object behind.
func TestManyWritersLoseNothing(t *testing.T) {
	const writers, each = 8, 400
	store := newMemory()
	shared := index(t, store)
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			x := *shared
			for i := w * each; i < (w+1)*each; i += 40 {
				if err := x.Put(t.Context(), entries(i, i+40)...); err != nil {
					t.Error(err)
				}
				if err := x.Remove(t.Context(), entry(i).Name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	checkNames(t, shared, writers*each, func(i int) bool { return i%40 != 0 })
	keys, err := shared.StorageKeys(t.Context())
	if err != nil || len(keys) != len(store.objects) {
		t.Errorf("%d objects are named of %d: %v", len(keys), len(store.objects), err)
	}
}

// repeating is a Store whose every other write of a root is repeated below, as an HTTP client does
// that has lost an answer: the second is refused because of what the first did.
type repeating struct {
	*memory
	writes int
}

func (r *repeating) PutIf(ctx context.Context, key string, data []byte, etag string) error {
	if err := r.memory.PutIf(ctx, key, data, etag); err != nil || !strings.HasSuffix(key, nodeRoot) {
		return err
	}
	if r.writes++; r.writes%2 == 0 {
		return nil
	}
	return r.memory.PutIf(ctx, key, data, etag)
}

// TestRepeatedWritesLoseNothing promises that a write which took effect and reports a conflict is
// neither undone nor lost, also if it split the root.
func TestRepeatedWritesLoseNothing(t *testing.T) {
	for _, first := range []int{0, 1} {
		store := &repeating{newMemory(), first}
		x := index(t, store)
		for i := 0; i < 2000; i += 1000 {
			if err := x.Put(t.Context(), entries(i, i+1000)...); err != nil {
				t.Fatal(err)
			}
		}
		checkNames(t, x, 2000, func(int) bool { return true })
	}
}

// TestForeignPartsOfAnIndex promises that a part that was moved, taken from another folder or
// bucket, or taken away is refused.
func TestForeignPartsOfAnIndex(t *testing.T) {
	ctx, store := t.Context(), newMemory()
	id := generate(t)
	root, err := id.FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	x := NewIndex(store, "trip", root, "")
	if err := x.Put(ctx, entries(0, 3000)...); err != nil {
		t.Fatal(err)
	}
	keys, err := x.StorageKeys(ctx)
	if err != nil {
		t.Fatal(err)
	}
	store.objects[keys[0]], store.objects[keys[1]] = store.objects[keys[1]], store.objects[keys[0]]
	_, err = x.List(ctx)
	want(t, err, ErrIndex)
	store.objects[keys[0]], store.objects[keys[1]] = store.objects[keys[1]], store.objects[keys[0]]
	gone := store.objects[keys[0]]
	delete(store.objects, keys[0])
	_, err = x.List(ctx)
	want(t, err, ErrIndexMissing)
	store.objects[keys[0]] = gone

	for name, other := range map[string]*Index{
		"bucket": {store, "other", x.folder, x.key, x.base},
		"folder": {store, x.bucket, "/other", x.key, x.base},
		"key":    {store, x.bucket, x.folder, DataKey{1}, x.base},
	} {
		_, err := other.List(ctx)
		if !errors.Is(err, ErrIndex) {
			t.Errorf("a part of another %s is read: %v", name, err)
		}
	}
}

// TestReaderOfASharedFolderListsIt promises that a token opens the index of its folder.
func TestReaderOfASharedFolderListsIt(t *testing.T) {
	owner, recipient, store := generate(t), generate(t), newMemory()
	root, err := owner.FolderKey("trip")
	if err != nil {
		t.Fatal(err)
	}
	photos, err := root.Folder("/photos")
	if err != nil {
		t.Fatal(err)
	}
	if err := NewIndex(store, "trip", photos, "").Put(t.Context(), entry(1)); err != nil {
		t.Fatal(err)
	}
	grant, err := token(t, owner, recipient.Public(), share()).Open(recipient, at(), owner.Public())
	if err != nil {
		t.Fatal(err)
	}
	key, _ := grant.FolderKey()
	all, err := NewIndex(store, grant.Token().Bucket, key, "").List(t.Context())
	if err != nil || len(all) != 1 || all[0] != entry(1) {
		t.Errorf("%v, %v", all, err)
	}
}

// BenchmarkListIndex lists 100,000 names from a store that answers after one millisecond.
func BenchmarkListIndex(b *testing.B) {
	store := newMemory()
	x := index(b, store)
	if err := x.Put(b.Context(), entries(0, 100_000)...); err != nil {
		b.Fatal(err)
	}
	x.store = distant{store}
	for b.Loop() {
		all, err := x.List(b.Context())
		if err != nil || len(all) != 100_000 {
			b.Fatalf("%d names: %v", len(all), err)
		}
	}
	b.ReportMetric(float64(len(store.objects)), "objects")
}

// distant is a Store that answers after one millisecond.
type distant struct{ Store }

func (d distant) Get(ctx context.Context, key string) ([]byte, string, error) {
	<-time.After(time.Millisecond)
	return d.Store.Get(ctx, key)
}

// TestEscapedNamesSplitEarlier promises that names whose characters take six bytes each in JSON do not
// make an object of an index that readers refuse.
func TestEscapedNamesSplitEarlier(t *testing.T) {
	for _, character := range []string{"\x01", "&", "<", `"`, "\u2028"} {
		store := newMemory()
		x := index(t, store)
		const most = maxNodeBytes / (maxName + 300) // names of this length, if each character takes one byte
		var long []Entry
		for i := range most {
			e := entry(i)
			e.Name += strings.Repeat(character, (maxName-len(e.Name))/len(character))
			long = append(long, e)
		}
		if err := x.Put(t.Context(), long...); err != nil {
			t.Fatal(err)
		}
		if all, err := x.List(t.Context()); err != nil || len(all) != most {
			t.Errorf("names of %q: %d entries, %v", character, len(all), err)
		}
		for key, data := range store.objects {
			if len(data) > maxNodeFile {
				t.Errorf("names of %q: %s has %d bytes", character, key, len(data))
			}
		}
	}
}

// TestAnIndexObjectThatIsTooLargeOrUnorderedIsRefused promises that an object of an index has a bound in bytes, and that one
// beyond it, or with names out of order, is refused.
func TestAnIndexObjectThatIsTooLargeOrUnorderedIsRefused(t *testing.T) {
	ctx, store := t.Context(), newMemory()
	x := index(t, store)
	var long []Entry
	for i := range maxNode {
		e := entry(i)
		e.Name += strings.Repeat("x", maxName-len(e.Name))
		long = append(long, e)
	}
	if err := x.Put(ctx, long...); err != nil {
		t.Fatal(err)
	}
	if len(store.objects) != 1+fanOut {
		t.Errorf("%d objects, want %d", len(store.objects), 1+fanOut)
	}
	if all, err := x.List(ctx); err != nil || len(all) != maxNode {
		t.Errorf("%d entries: %v", len(all), err)
	}
	store.objects[x.storageKey(nodeRoot)] = make([]byte, maxNodeFile+1)
	_, err := x.List(ctx)
	want(t, err, ErrTooLarge)
	for _, text := range []string{
		`{"version":1,"entries":[{"name":"b"},{"name":"a"}]}`, `{"version":1,"entries":[{"name":"a"},{"name":"a"}]}`,
		`{"version":1,"split":"00","entries":[]}`, `{"version":1,"split":"00000000000000000000000000000000","entries":[{"name":"a"}]}`,
		`{"version":1,"entries":[{"name":"a","content_hash":"00"}]}`, `{`,
	} {
		_, err := decodeNode([]byte(text))
		want(t, err, ErrIndex)
	}
	_, err = decodeNode([]byte(`{"version":2}`))
	want(t, err, ErrVersion)
}

// TestIndexTellsWhatWasReplaced promises that of many writers that replace one entry, each replaced entry is
// reported to one writer, so that its object is deleted once.
func TestIndexTellsWhatWasReplaced(t *testing.T) {
	const writers = 20
	x := index(t, newMemory())
	var mu sync.Mutex
	told := map[string]int{}
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			replaced, err := x.Replace(t.Context(), Entry{Name: fmt.Sprint("own ", i)}, Entry{Name: "one", StorageKey: fmt.Sprint(i)})
			if err != nil || len(replaced) != 2 || replaced[0] != (Entry{}) {
				t.Errorf("%v, %v", replaced, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			told[replaced[1].StorageKey]++
		})
	}
	wait.Wait()
	last, err := x.Lookup(t.Context(), "one")
	if err != nil || len(told) != writers || told[last.StorageKey] != 0 {
		t.Errorf("told %v, last is %v, %v", told, last, err)
	}
}

// TestIndexHasNamesOfOneSegment promises that neither a writer nor a reader accepts a name that leads
// out of its folder.
func TestIndexHasNamesOfOneSegment(t *testing.T) {
	x := index(t, newMemory())
	for _, name := range []string{"/", ".", "..", "./", "../", "a/b", "/a", "a//", "a\x00"} {
		want(t, x.Put(t.Context(), Entry{Name: name}), ErrPath)
		plain, err := (&node{entries: []Entry{{Name: name}}}).encode()
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodeNode(plain)
		want(t, err, ErrIndex)
	}
}

// TestATreeInCirclesIsRefused promises that an index whose objects name the same split again, which
// its writer can make without end, is refused before a reader follows it.
func TestATreeInCirclesIsRefused(t *testing.T) {
	store := &counting{Store: newMemory()}
	x := index(t, store)
	circle := node{split: "00112233445566778899aabbccddeeff"}
	ids := []string{nodeRoot}
	for d := range fanOut {
		ids = append(ids, childID(circle.split, d))
	}
	for _, id := range ids {
		if err := x.write(t.Context(), id, circle, ""); err != nil {
			t.Fatal(err)
		}
	}
	_, err := x.List(t.Context())
	want(t, err, ErrIndex)
	_, err = x.StorageKeys(t.Context())
	want(t, err, ErrIndex)
	_, err = x.Lookup(t.Context(), "name")
	want(t, err, ErrIndex)
	want(t, x.Put(t.Context(), Entry{Name: "name"}), ErrIndex)
}

// counting is a store that fails after 1,000 reads.
type counting struct {
	Store
	reads atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string) ([]byte, string, error) {
	if c.reads.Add(1) > 1_000 {
		return nil, "", errors.New("too many reads")
	}
	return c.Store.Get(ctx, key)
}
