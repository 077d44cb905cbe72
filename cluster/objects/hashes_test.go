package objects

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// uneven completes an upload whose parts say nothing of the hash, and returns what it
// is the hash of.
func (w *world) uneven(key string, sizes ...int) (obj state.Object, text string) {
	w.t.Helper()
	ctx := w.t.Context()
	id, err := w.objects.CreateUpload(ctx, w.account, "bkt", UploadRequest{Key: key})
	if err != nil {
		w.t.Fatal(err)
	}
	r := CompleteRequest{Key: key, Upload: id}
	for i, size := range sizes {
		part := randomText(size + i)
		p, err := w.objects.PutPart(ctx, w.account, "bkt", PartRequest{Key: key, Upload: id, Number: i + 1, Body: bodyOf(part)})
		if err != nil {
			w.t.Fatal(err)
		}
		text += part
		r.Parts = append(r.Parts, CompletePart{Number: i + 1, ETag: p.ETag})
	}
	if obj, err = w.objects.Complete(ctx, w.account, "bkt", r); err != nil || obj.Blake3 != nil {
		w.t.Fatalf("%x, %v", obj.Blake3, err)
	}
	return obj, text
}

func (w *world) left() uint64 {
	w.t.Helper()
	view, release := w.state.LocalView()
	defer release()
	n, err := view.UnhashedCount()
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// on returns the use case as another node has it.
func (w *world) on(n state.NodeID) *Objects {
	opts := w.objects.opts
	opts.Self = n
	return New(opts)
}

// Three holders together compute the BLAKE3 hash of every version that has none, each a share of them, and read no
// deleted version.
func TestHashesThatUploadsCannotTellAreComputed(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	nodes := []*Objects{w.on(self), w.on(second), w.on(third)}
	want := map[string]string{}
	for i := range 2 * hashPage {
		key := fmt.Sprint("k", i)
		_, text := w.uneven(key, 11, 5000+i)
		want[key] = blake3Of(text)
	}
	_, large := w.uneven("large", 1<<20+1, 3<<20)
	want["large"] = blake3Of(large)
	if _, err := w.objects.Copy(t.Context(), w.account, "bkt", CopyRequest{Key: "copy", SourceBucket: "bkt", Source: "large"}); err != nil {
		t.Fatal(err)
	}
	want["copy"] = want["large"]
	w.uneven("gone", 11, 12)
	if _, err := w.objects.Delete(t.Context(), w.account, "bkt", "gone", "", state.Condition{}); err != nil {
		t.Fatal(err)
	}
	if n := w.left(); n != uint64(len(want)) {
		t.Fatalf("%d versions have no hash, want %d", n, len(want))
	}
	// Each has its share, and what is one's is no other's.
	for i, n := range nodes {
		before := w.left()
		if err := n.HashObjects(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := w.left()
		if i < 2 && (before-after < hashPage/8 || n.Hashing().Bytes() == 0 || n.Hashing().Reads() != 0) {
			t.Errorf("node %d has hashed %d of %d versions, %d bytes", i, before-after, before, n.Hashing().Bytes())
		}
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d versions are left", n)
	}
	for key, sum := range want {
		if got, _ := w.read("bkt", key); hex.EncodeToString(got.Blake3) != sum {
			t.Errorf("%s: %x, want %s", key, got.Blake3, sum)
		}
	}
}

// A node computes the hashes of the members that are down too, and none while it cannot read the content.
func TestWhoIsDownHashesNothing(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	for i := range 20 {
		w.uneven(fmt.Sprint("k", i), 11, 12)
	}
	w.nodes[1].Alive, w.nodes[2].Alive = false, false
	w.objects.opts.Files = &files{Files: w, err: state.ErrUnavailable}
	if err := w.objects.HashObjects(t.Context()); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("content that cannot be read: %v", err)
	}
	if n := w.left(); n != 20 {
		t.Errorf("%d versions are left", n)
	}
	w.objects.opts.Files = w
	if err := w.objects.HashObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d versions are left", n)
	}
}

// A hash of a version that is gone changes no object, and its content is not read; hashing ends with its context.
func TestAHashOfAVersionThatIsGoneIsForNobody(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	obj, _ := w.uneven("k", 11, 12)
	mine, _, err := w.objects.unhashed(nil)
	for _, n := range []state.NodeID{second, third} {
		if len(mine) == 0 {
			mine, _, err = w.on(n).unhashed(nil)
		}
	}
	if err != nil || len(mine) != 1 || mine[0].Object.ID != obj.ID {
		t.Fatalf("%+v, %v", mine, err)
	}
	kept := w.put("bkt", "k", "another")
	if err := w.objects.hashObject(t.Context(), &mine[0]); err != nil {
		t.Fatal(err)
	}
	w.state.Apply(t, &state.SetObjectHash{Account: w.account, Born: mine[0].Born, Key: obj.Key, ID: obj.ID, Root: obj.Root, Blake3: make([]byte, 32)})
	if got, _ := w.read("bkt", "k"); hex.EncodeToString(got.Blake3) != hex.EncodeToString(kept.Blake3) {
		t.Errorf("%x", got.Blake3)
	}
	if n := w.objects.Hashing().Bytes(); n != 0 {
		t.Errorf("%d bytes were read in vain", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.uneven("later", 11, 12)
	cancel()
	w.nodes[1].Alive, w.nodes[2].Alive = false, false
	if err := w.objects.HashObjects(ctx); !errors.Is(err, context.Canceled) || w.left() != 1 {
		t.Errorf("%v, %d left", err, w.left())
	}
}
