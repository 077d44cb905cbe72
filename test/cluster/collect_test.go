package cluster

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

var collectFor = flag.Duration("collect", 3*time.Second, "how long objects come and go while their blocks are collected, with each number of copies")

const (
	collectEvery   = 100 * time.Millisecond
	collectWriters = 6
	collectKeys    = 6  // of a writer in each bucket, that it uses at a time
	collectObjects = 16 // of a writer, at the most and a few more
)

// The buckets of the writers. Who may see what is in turningBucket changes all the time.
const (
	plainBucket   = "plain"
	publicBucket  = "public"
	turningBucket = "turning"
	versionBucket = "versions"
	shownVersions = "public-versions"
)

var collectBuckets = []string{plainBucket, publicBucket, turningBucket, versionBucket, shownVersions}

func keepsVersions(bucket string) bool { return bucket == versionBucket || bucket == shownVersions }

// pieces is content in pieces that others may have as well.
type pieces [][]byte

func (p pieces) size() (n int64) {
	for _, b := range p {
		n += int64(len(b))
	}
	return n
}

func (p pieces) reader() io.Reader {
	all := make([]io.Reader, len(p))
	for i, b := range p {
		all[i] = bytes.NewReader(b)
	}
	return io.MultiReader(all...)
}

// first returns the first n bytes.
func (p pieces) first(n uint64) (cut pieces) {
	for _, b := range p {
		b = b[:min(n, uint64(len(b)))]
		cut = append(cut, b)
		n -= uint64(len(b))
	}
	return cut
}

// compare reads f to its end.
func (p pieces) compare(f io.Reader) error {
	for i, want := range p {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(f, got); err != nil {
			return fmt.Errorf("piece %d of %d: %w", i, len(p), err)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("piece %d of %d has other bytes", i, len(p))
		}
	}
	if n, err := f.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("%d bytes behind the end, %w", n, err)
	}
	return nil
}

// place is where an object is: id is "" where versions are not kept.
type place struct {
	bucket, key string
	id          state.VersionID
}

// acked is content that was acknowledged.
type acked struct {
	pieces
	root state.RootKey
}

// objectWriter makes and removes objects whose keys nobody else uses and whose
// content others have as well, and knows what was acknowledged.
type objectWriter struct {
	name    string
	nodes   []*running
	account state.AccountID
	rng     *rand.Rand
	shared  pieces // a chunk each

	held   map[place]acked
	pinned map[state.RequestID]acked
	open   int            // uploads that are left open
	slot   int            // of the first key
	next   byte           // of content that nobody else has
	done   map[string]int // what was acknowledged, and what has an unknown end
}

func newObjectWriter(i int, nodes []*running, account state.AccountID, shared pieces) *objectWriter {
	return &objectWriter{
		name: fmt.Sprint("w", i), nodes: nodes, account: account, rng: rand.New(rand.NewPCG(uint64(i), 22)), shared: shared,
		held: map[place]acked{}, pinned: map[state.RequestID]acked{}, done: map[string]int{},
	}
}

func (w *objectWriter) node() *running            { return w.nodes[w.rng.IntN(len(w.nodes))] }
func (w *objectWriter) objects() *objects.Objects { return w.node().Objects() }
func (w *objectWriter) bucket() string            { return collectBuckets[w.rng.IntN(len(collectBuckets))] }

func (w *objectWriter) key() string {
	return fmt.Sprintf("%s/%d", w.name, w.slot+w.rng.IntN(collectKeys))
}

// some draws content: small or of several chunks, most of it as others have it.
func (w *objectWriter) some() pieces {
	chunk := w.rng.IntN(len(w.shared))
	switch n := w.rng.IntN(4); n {
	case 0, 1:
		return pieces{w.shared[chunk][:1+chunk*9000]}
	case 2:
		return pieces{w.shared[chunk], w.shared[(chunk+1)%len(w.shared)]}[:1+chunk%2]
	default:
		w.next++
		own := append([]byte(w.name), w.next)
		return pieces{w.shared[chunk], bytes.Repeat(own, 1+w.rng.IntN(3000))}
	}
}

// any returns one of the objects.
func (w *objectWriter) any() (at place, it acked, ok bool) {
	for at, it := range w.held {
		return at, it, true
	}
	return place{}, acked{}, false
}

// count counts what was acknowledged. Without an answer it may happen later, so what is
// under the key then is not known, and the keys are not used again.
func (w *objectWriter) count(what string, at place, err error) (bool, error) {
	switch {
	case err == nil:
		w.done[what]++
		return true, nil
	case errors.Is(err, state.ErrUnavailable):
		w.done["unknown"]++
		delete(w.held, at)
		w.slot += collectKeys
		return false, nil
	}
	return false, fmt.Errorf("%s %v: %w", what, at, err)
}

// made notes what became of something that makes an object.
func (w *objectWriter) made(what, bucket string, obj *state.Object, key string, p pieces, err error) error {
	at := place{bucket: bucket, key: key}
	if err == nil && keepsVersions(bucket) {
		at.id = obj.ID
	}
	ok, err := w.count(what, at, err)
	if ok {
		w.held[at] = acked{p, obj.Root}
	}
	return err
}

func (w *objectWriter) put(ctx context.Context, bucket, key string, p pieces) error {
	obj, err := w.objects().Put(ctx, w.account, bucket, objects.PutRequest{
		Key: key, Body: objects.Body{Reader: p.reader(), Size: p.size()},
	})
	return w.made("put", bucket, &obj, key, p, err)
}

func (w *objectWriter) copy(ctx context.Context) error {
	from, it, ok := w.any()
	if !ok {
		return nil
	}
	bucket, key := w.bucket(), w.key()
	obj, err := w.objects().Copy(ctx, w.account, bucket, objects.CopyRequest{
		Key: key, SourceBucket: from.bucket, Source: from.key, SourceVersion: from.id,
	})
	return w.made("copy", bucket, &obj, key, it.pieces, err)
}

func (w *objectWriter) remove(ctx context.Context, at place) (bool, error) {
	delete(w.held, at)
	_, err := w.objects().Delete(ctx, w.account, at.bucket, at.key, at.id, state.Condition{})
	return w.count("delete", at, err)
}

// mark puts a delete marker over the versions of a key.
func (w *objectWriter) mark(ctx context.Context) error {
	at := place{bucket: versionBucket, key: w.key()}
	_, err := w.objects().Delete(ctx, w.account, at.bucket, at.key, "", state.Condition{})
	_, err = w.count("mark", at, err)
	return err
}

// part adds a part to an upload: bytes, a whole object, or the half of one.
func (w *objectWriter) part(ctx context.Context, bucket, key string, id state.UploadID, number int) (state.Part, pieces, error) {
	from, it, ok := w.any()
	if kind := w.rng.IntN(4); ok && kind < 2 {
		r := objects.PartCopyRequest{
			Key: key, Upload: id, Number: number, SourceBucket: from.bucket, Source: from.key, SourceVersion: from.id,
		}
		p := it.pieces
		if half := uint64(p.size()) / 2; kind == 1 && half > 0 {
			r.Range = func(uint64) (uint64, uint64, error) { return 0, half, nil }
			p = p.first(half)
		}
		part, err := w.objects().CopyPart(ctx, w.account, bucket, r)
		return part, p, err
	}
	p := w.some()
	part, err := w.objects().PutPart(ctx, w.account, bucket, objects.PartRequest{
		Key: key, Upload: id, Number: number, Body: objects.Body{Reader: p.reader(), Size: p.size()},
	})
	return part, p, err
}

// upload makes an object of parts, some of which are replaced and the last of which is
// left out now and then, or gives the upload up, or leaves it open.
func (w *objectWriter) upload(ctx context.Context) error {
	bucket, key := w.bucket(), w.key()
	at := place{bucket: bucket, key: key}
	id, err := w.objects().CreateUpload(ctx, w.account, bucket, objects.UploadRequest{Key: key})
	if ok, err := w.count("begin", at, err); !ok {
		return err
	}
	list := make([]objects.CompletePart, 1+w.rng.IntN(3))
	parts := make([]pieces, len(list))
	for i := range list {
		for range 1 + w.rng.IntN(2) {
			part, p, err := w.part(ctx, bucket, key, id, i+1)
			if ok, err := w.count("part", at, err); !ok {
				return err
			}
			list[i], parts[i] = objects.CompletePart{Number: i + 1, ETag: part.ETag}, p
		}
	}
	switch n := w.rng.IntN(8); {
	case n == 0:
		_, err = w.count("abort", at, w.objects().Abort(ctx, w.account, bucket, key, id))
		return err
	case n == 1 && w.open < 3:
		w.open++
		return nil
	case n < 4 && len(list) > 1:
		list, parts = list[:len(list)-1], parts[:len(list)-1]
	}
	obj, err := w.objects().Complete(ctx, w.account, bucket, objects.CompleteRequest{Key: key, Upload: id, Parts: list})
	return w.made("complete", bucket, &obj, key, slices.Concat(parts...), err)
}

// pin pins what an object has, or unpins something.
func (w *objectWriter) pin(ctx context.Context) error {
	for id := range w.pinned {
		delete(w.pinned, id)
		_, err := w.count("unpin", place{}, w.node().Pins().Delete(ctx, w.account, id))
		return err
	}
	at, it, ok := w.any()
	if !ok {
		return nil
	}
	made, err := w.node().Pins().Create(ctx, w.account, pins.Request{CID: it.root.Cid().String()})
	if err != nil {
		at = place{} // the object is as it was
	}
	if ok, err = w.count("pin", at, err); ok {
		w.pinned[made.ID] = it
	}
	return err
}

// step returns one change, and a look at what it must not have changed.
func (w *objectWriter) step(ctx context.Context) error {
	var err error
	at, it, ok := w.any()
	switch n := w.rng.IntN(12); {
	case len(w.held) > collectObjects || ok && n == 0:
		_, err = w.remove(ctx, at)
	case ok && n == 1: // the same content again, at once
		if ok, err = w.remove(ctx, at); ok {
			err = w.put(ctx, at.bucket, at.key, it.pieces)
		}
	case n == 2:
		err = w.mark(ctx)
	case n < 5:
		err = w.copy(ctx)
	case n < 7:
		err = w.upload(ctx)
	case n == 7:
		err = w.pin(ctx)
	default: // new, or in the place of another
		err = w.put(ctx, w.bucket(), w.key(), w.some())
	}
	if at, it, ok := w.any(); ok && err == nil {
		if err = w.check(ctx, w.node(), at, it); errors.Is(err, state.ErrUnavailable) {
			return nil
		}
	}
	return err
}

// check reads an object by a node.
func (w *objectWriter) check(ctx context.Context, n *running, at place, it acked) error {
	obj, err := n.Objects().Object(ctx, w.account, at.bucket, at.key, at.id)
	if err == nil {
		err = compareObject(ctx, n, w.account, &obj, it.pieces)
	}
	if err != nil {
		return fmt.Errorf("%v by %s: %w", at, n.config.Node.Name, err)
	}
	return nil
}

func compareObject(ctx context.Context, n *running, a state.AccountID, obj *state.Object, want pieces) error {
	f, err := n.Objects().Open(ctx, a, obj)
	if err != nil {
		return err
	}
	return errors.Join(want.compare(f), f.Close())
}

// TestCollectingTakesNothingThatObjectsHave promises that garbage collection takes nothing of objects, and leaves
// nothing when all are deleted.
// Six writers put, replace, copy, complete and delete objects with shared content, and pin some of it, while each
// node collects garbage every collectEvery. Then each node reads everything that was acknowledged. With one copy,
// no other node hides what one node has lost; with three, every copy must be held and undamaged.
func TestCollectingTakesNothingThatObjectsHave(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, copies := range []int{1, 3} {
		t.Run(fmt.Sprintf("copies=%d", copies), func(t *testing.T) {
			nodes := three(t, func(o *node.Options) {
				o.CollectEvery = collectEvery
				o.Config.Cluster.Replication, o.Config.Cluster.WriteCopies = copies, min(copies, 2)
				o.Config.Storage.SegmentSize = 4 * config.MiB
				o.Config.S3.MinPart = 1
			})
			operator, err := nodes[0].Accounts().Operator(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			makeBuckets(t, nodes[0], operator.ID)
			writers := writeObjects(t, nodes, operator.ID)
			wholeEverywhere(t, nodes, writers, copies)
			deleteAll(t, nodes, operator.ID)
			nothingLeft(t, nodes, operator.ID)
		})
	}
}

func makeBuckets(t *testing.T, n *running, a state.AccountID) {
	t.Helper()
	for _, name := range collectBuckets {
		if err := n.Objects().CreateBucket(t.Context(), a, name, name == publicBucket || name == shownVersions); err != nil {
			t.Fatal(err)
		}
		if keepsVersions(name) {
			if err := n.Objects().SetVersioning(t.Context(), a, name, state.Versioned); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// written are the kinds of changes of which each writer makes some.
var written = [...]string{"put", "copy", "part", "complete", "delete"}

// writeObjects has all writers write for collectFor, and on a busy machine longer, until each has made every kind of
// change.
func writeObjects(t *testing.T, nodes []*running, a state.AccountID) []*objectWriter {
	t.Helper()
	shared := make(pieces, 8)
	for i := range shared {
		shared[i] = harness.BytesOf(uint64(i), ingest.ChunkSize)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	defer time.AfterFunc(*collectFor, stop).Stop()
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(5 * collectEvery)
		defer tick.Stop()
		for public := true; ; public = !public {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := nodes[0].Objects().SetPublic(t.Context(), a, turningBucket, public); err != nil && !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("turn a bucket: %v", err)
				return
			}
		}
	})
	writers := make([]*objectWriter, collectWriters)
	late, cancel := context.WithTimeout(t.Context(), *collectFor+patience)
	defer cancel()
	for i := range writers {
		w := newObjectWriter(i, nodes, a, shared)
		writers[i] = w
		lacks := func(what string) bool { return w.done[what] == 0 }
		group.Go(func() {
			for ctx.Err() == nil || late.Err() == nil && slices.ContainsFunc(written[:], lacks) {
				if err := w.step(t.Context()); err != nil {
					t.Errorf("%s: %v", w.name, err)
					stop()
					cancel()
					return
				}
			}
		})
	}
	group.Wait()
	done := map[string]int{}
	for _, w := range writers {
		for what, n := range w.done {
			done[what] += n
		}
	}
	t.Logf("in %v: %v", *collectFor, done)
	for _, what := range written {
		if done[what] == 0 {
			t.Errorf("no %s was acknowledged", what)
		}
	}
	return writers
}

// wholeEverywhere checks that every node reads everything that was acknowledged, and
// that no block is missing where it is said to be.
func wholeEverywhere(t *testing.T, nodes []*running, writers []*objectWriter, copies int) {
	t.Helper()
	for _, n := range nodes {
		for _, w := range writers {
			for at, it := range w.held {
				await(t, "an answer", func() bool {
					err := w.check(t.Context(), n, at, it)
					if errors.Is(err, state.ErrUnavailable) {
						return false
					}
					if err != nil {
						t.Error(err)
					}
					return true
				})
			}
			for id, it := range w.pinned {
				await(t, "pinned", func() bool {
					p, err := n.Pins().Get(t.Context(), w.account, id)
					return err == nil && p.Status == state.Pinned
				})
				obj := state.Object{Root: it.root, Size: uint64(it.size())}
				if err := compareObject(t.Context(), n, w.account, &obj, it.pieces); err != nil {
					t.Errorf("pin %s of %s by %s: %v", id, w.name, n.config.Node.Name, err)
				}
			}
		}
	}
	await(t, "all copies are held", func() bool {
		view, release := nodes[0].Replica().LocalView()
		defer release()
		all := true
		err := view.Roots("", func(r state.Root) (bool, error) {
			all = len(r.Copies) >= copies && !slices.ContainsFunc(r.Copies, func(c state.Copy) bool { return c.Phase != state.Held })
			return all, nil
		})
		return err == nil && all
	})
	for _, n := range nodes {
		if r, err := n.Integrity().Scrub(t.Context()); err != nil || r.Damaged > 0 {
			t.Errorf("%s: %+v, %v", n.config.Node.Name, r, err)
		}
	}
}

// deleteAll deletes pins, versions and buckets, uploads that are open with them.
func deleteAll(t *testing.T, nodes []*running, a state.AccountID) {
	t.Helper()
	_, list, err := nodes[0].Pins().List(t.Context(), a, state.PinQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if err := nodes[0].Pins().Delete(t.Context(), a, p.ID); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range collectBuckets {
		o := nodes[i%len(nodes)].Objects()
		for more := true; more; {
			page, err := o.Versions(t.Context(), a, name, state.VersionsQuery{Limit: state.MaxDeleteKeys})
			if err != nil {
				t.Fatal(err)
			}
			var all []objects.Doomed
			for _, v := range page.Versions {
				d := objects.Doomed{Key: v.Key}
				if keepsVersions(name) {
					d.ID = v.ID
				}
				all = append(all, d)
			}
			if more = len(all) > 0; more {
				if _, err := o.DeleteMany(t.Context(), a, name, all); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := o.DeleteBucket(t.Context(), a, name); err != nil {
			t.Fatal(err)
		}
	}
}

// nothingLeft checks that nothing is left in the state, and in the stores of the nodes,
// which it ends.
func nothingLeft(t *testing.T, nodes []*running, a state.AccountID) {
	t.Helper()
	for _, n := range nodes {
		// What has an unknown end is kept until its node fences, once a minute at the most.
		awaitFor(t, 2*patience, "nothing is left on "+n.config.Node.Name, func() bool {
			view, release := n.Replica().LocalView()
			defer release()
			roots := 0
			err := view.Roots("", func(state.Root) (bool, error) {
				roots++
				return false, nil
			})
			q, quotaErr := view.Quota(a)
			return err == nil && quotaErr == nil && roots == 0 && q.Used() == 0 && n.gauge(t, "holdfast_blocks_stored", "") == 0
		})
	}
	for _, n := range nodes {
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		empty(t, filepath.Join(n.dir, "blocks"))
	}
}

// empty checks that a block store holds nothing, and gives its disk back.
func empty(t *testing.T, dir string) {
	t.Helper()
	s, err := blocks.Open(dir, blocks.Options{MinFreeBytes: -1, SegmentBytes: int64(4 * config.MiB)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	err = s.References(t.Context(), "", func(o blocks.ReferenceInfo) (bool, error) {
		t.Errorf("%s: %+v is left", dir, o)
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u := s.Usage(); u.Blocks > 0 || u.LiveBytes > 0 || u.Missing > 0 || u.Segments > 2 {
		t.Errorf("%s: %+v", dir, u)
	}
}
