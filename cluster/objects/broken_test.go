package objects

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A use case of objects returns an error if any one of its reads of the state fails. A made-up answer would be a key
// that is not there, an upload that has ended, or an object without what it should say.
func TestNoReadThatFailsIsPassedOver(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	ctx, a := t.Context(), w.account
	obj := w.put("bkt", "k", "content")
	id, err := w.objects.CreateUpload(ctx, a, "bkt", UploadRequest{Key: "film"})
	if err != nil {
		t.Fatal(err)
	}
	part, err := w.objects.PutPart(ctx, a, "bkt", PartRequest{Key: "film", Upload: id, Number: 1, Body: bodyOf("of ten bytes")})
	if err != nil {
		t.Fatal(err)
	}
	for name, use := range map[string]func() error{
		"buckets":     func() error { _, err := w.objects.Buckets(ctx, a); return err },
		"bucket":      func() error { _, err := w.objects.Bucket(ctx, a, "bkt"); return err },
		"cors":        func() error { _, err := w.objects.Cors(ctx, a, "bkt"); return err },
		"bucket tags": func() error { _, err := w.objects.BucketTags(ctx, a, "bkt"); return err },
		"list":        func() error { _, err := w.objects.List(ctx, a, "bkt", state.ObjectsQuery{Limit: 10}); return err },
		"object":      func() error { _, err := w.objects.Object(ctx, a, "bkt", "k", ""); return err },
		"version":     func() error { _, err := w.objects.Object(ctx, a, "bkt", "k", obj.ID); return err },
		"versions":    func() error { _, err := w.objects.Versions(ctx, a, "bkt", state.VersionsQuery{Limit: 10}); return err },
		"upload":      func() error { _, err := w.objects.Upload(ctx, a, "bkt", "film", id); return err },
		"uploads":     func() error { _, err := w.objects.Uploads(ctx, a, "bkt", state.UploadsQuery{Limit: 10}); return err },
		"parts":       func() error { _, _, err := w.objects.Parts(ctx, a, "bkt", "film", id, 0, 10); return err },
		"copy": func() error {
			_, err := w.objects.Copy(ctx, a, "bkt", CopyRequest{Key: "copy", SourceBucket: "bkt", Source: "k", SourceVersion: obj.ID})
			return err
		},
		"put if": func() error {
			_, err := w.objects.Put(ctx, a, "bkt", PutRequest{Key: "other", Body: bodyOf("x"), If: state.Condition{Match: []string{"none"}}})
			return err
		},
		"copy part": func() error {
			_, err := w.objects.CopyPart(ctx, a, "bkt", PartCopyRequest{Key: "film", Upload: id, Number: 3, SourceBucket: "bkt", Source: "k"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { w.state.EachReadFails(t, use) })
	}
	t.Run("complete", func(t *testing.T) { // it ends the upload
		w.state.EachReadFails(t, func() error {
			_, err := w.objects.Complete(ctx, a, "bkt", CompleteRequest{Key: "film", Upload: id, Parts: []CompletePart{{Number: 1, ETag: part.ETag}}})
			return err
		})
	})
}
