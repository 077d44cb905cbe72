package objects

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sumFor returns the checksum of a text.
func sumFor(algorithm, text string) []byte {
	h := NewHash(algorithm)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// copied copies an object of bkt to "copy", with a checksum of an algorithm.
func (w *world) copied(source, algorithm string) state.Object {
	w.t.Helper()
	obj, err := w.objects.Copy(w.t.Context(), w.account, "bkt", CopyRequest{Key: "copy", SourceBucket: "bkt", Source: source, Algorithm: algorithm})
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

// composed completes an upload whose checksum is of those of its parts.
func (w *world) composed(key string, parts ...string) {
	w.t.Helper()
	ctx := w.t.Context()
	id, err := w.objects.CreateUpload(ctx, w.account, "bkt", UploadRequest{Key: key, Algorithm: SHA256, Composite: true})
	if err != nil {
		w.t.Fatal(err)
	}
	r := CompleteRequest{Key: key, Upload: id}
	for i, part := range parts {
		body := bodyOf(part)
		body.Sums = []string{SHA256}
		body.Check = func(s Sums) ([]state.Checksum, error) {
			return []state.Checksum{{Algorithm: SHA256, Value: s.By[SHA256]}}, nil
		}
		p, err := w.objects.PutPart(ctx, w.account, "bkt", PartRequest{Key: key, Upload: id, Number: i + 1, Body: body})
		if err != nil {
			w.t.Fatal(err)
		}
		r.Parts = append(r.Parts, CompletePart{Number: i + 1, ETag: p.ETag})
	}
	obj, err := w.objects.Complete(ctx, w.account, "bkt", r)
	if err != nil || len(obj.Checksums) != 1 || !obj.Checksums[0].Composite {
		w.t.Fatalf("%+v, %v", obj, err)
	}
}

// A copy has the checksum that it asks for over all bytes, at once where that is known or soon computed, else once a
// holder has read the content. Until then it has none.
func TestACopyHasTheChecksumThatItAsksFor(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	has := func(obj state.Object, algorithm, text string) {
		t.Helper()
		if sum := obj.WholeSum(algorithm); len(obj.Checksums) != 1 || sum == nil || !bytes.Equal(sum.Value, sumFor(algorithm, text)) {
			t.Errorf("%s of %d bytes: %+v", algorithm, len(text), obj.Checksums)
		}
	}
	w.put("bkt", "small", "hello")
	for _, algorithm := range Algorithms() {
		has(w.copied("small", algorithm), algorithm, "hello")
	}
	parts := []string{randomText(3 << 20), randomText(9)}
	w.composed("composed", parts...)
	has(w.copied("composed", SHA256), SHA256, parts[0]+parts[1])
	has(w.copied("copy", SHA256), SHA256, parts[0]+parts[1])
	if obj := w.copied("composed", ""); len(obj.Checksums) != 1 || !obj.Checksums[0].Composite {
		t.Errorf("a copy that asks for none: %+v", obj.Checksums)
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d versions lack a hash", n)
	}

	parts = []string{randomText(copySum), randomText(9)}
	w.composed("large", parts...)
	later := w.copied("large", XXHASH3)
	if len(later.Checksums) != 0 || later.Wanted != XXHASH3 {
		t.Fatalf("%+v, %q", later.Checksums, later.Wanted)
	}
	again, err := w.objects.Copy(t.Context(), w.account, "bkt", CopyRequest{Key: "again", SourceBucket: "bkt", Source: "copy"})
	if err != nil || len(again.Checksums) != 0 {
		t.Fatalf("%+v, %v", again, err)
	}
	for _, n := range []state.NodeID{self, second, third} {
		if err := w.on(n).HashObjects(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d versions lack a hash", n)
	}
	for _, key := range []string{"copy", "again"} {
		obj, text := w.read("bkt", key)
		has(obj, XXHASH3, parts[0]+parts[1])
		if obj.Wanted != "" || hex.EncodeToString(obj.Blake3) != blake3Of(text) || obj.ETag != later.ETag {
			t.Errorf("%s: %+v", key, obj)
		}
	}
}

// A copy whose content cannot be read now is made without its checksum, and has the checksum once a holder has read
// the content.
func TestACopyThatCannotBeReadNowHasItsChecksumLater(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.put("bkt", "k", "hello")
	w.objects.opts.Files = &files{Files: w, err: state.ErrUnavailable}
	if obj := w.copied("k", SHA1); len(obj.Checksums) != 0 || obj.Wanted != SHA1 {
		t.Errorf("%+v", obj)
	}
	w.objects.opts.Files = w
	for _, n := range []state.NodeID{self, second, third} {
		if err := w.on(n).HashObjects(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if obj, _ := w.read("bkt", "copy"); obj.WholeSum(SHA1) == nil || w.left() != 0 {
		t.Errorf("%+v, %d", obj, w.left())
	}
}
