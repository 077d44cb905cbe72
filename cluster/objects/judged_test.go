package objects

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// TestNothingChangesThatIsJudgedAway: each change asks right before it is proposed, and
// leaves everything as it was.
func TestNothingChangesThatIsJudgedAway(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.bucket("empty")
	w.put("bkt", "k", "mine")
	upload, err := w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: "film"})
	if err != nil {
		t.Fatal(err)
	}
	part, err := w.objects.PutPart(t.Context(), w.account, "bkt", PartRequest{Key: "film", Upload: upload, Number: 1, Body: bodyOf("part")})
	if err != nil {
		t.Fatal(err)
	}
	view, release := w.state.LocalView()
	before := view.Index()
	release()
	away := errors.New("not any more")
	asked := 0
	ctx := Judged(t.Context(), func(context.Context) error {
		asked++
		return away
	})
	for name, change := range map[string]func() error{
		"create bucket":  func() error { return w.objects.CreateBucket(ctx, w.account, "fresh", false) },
		"delete bucket":  func() error { return w.objects.DeleteBucket(ctx, w.account, "empty") },
		"set public":     func() error { return w.objects.SetPublic(ctx, w.account, "bkt", true) },
		"set CORS rules": func() error { return w.objects.SetCors(ctx, w.account, "bkt", nil) },
		"set versioning": func() error { return w.objects.SetVersioning(ctx, w.account, "bkt", state.Versioned) },
		"set tags":       func() error { return w.objects.SetTags(ctx, w.account, "bkt", "k", "", nil) },
		"delete": func() error {
			_, err := w.objects.Delete(ctx, w.account, "bkt", "k", "", state.Condition{})
			return err
		},
		"delete many": func() error {
			_, err := w.objects.DeleteMany(ctx, w.account, "bkt", []Doomed{{Key: "k"}})
			return err
		},
		"put": func() error {
			_, err := w.objects.Put(ctx, w.account, "bkt", PutRequest{Key: "k", Body: bodyOf("theirs")})
			return err
		},
		"copy": func() error {
			_, err := w.objects.Copy(ctx, w.account, "bkt", CopyRequest{Key: "x", SourceBucket: "bkt", Source: "k"})
			return err
		},
		"create upload": func() error {
			_, err := w.objects.CreateUpload(ctx, w.account, "bkt", UploadRequest{Key: "k"})
			return err
		},
		"put part": func() error {
			_, err := w.objects.PutPart(ctx, w.account, "bkt", PartRequest{Key: "film", Upload: upload, Number: 2, Body: bodyOf("two")})
			return err
		},
		"copy part": func() error {
			all := func(size uint64) (uint64, uint64, error) { return 0, size, nil }
			_, err := w.objects.CopyPart(ctx, w.account, "bkt", PartCopyRequest{Key: "film", Upload: upload, Number: 2, SourceBucket: "bkt", Source: "k", Range: all})
			return err
		},
		"complete": func() error {
			_, err := w.objects.Complete(ctx, w.account, "bkt", CompleteRequest{Key: "film", Upload: upload, Parts: []CompletePart{{Number: 1, ETag: part.ETag}}})
			return err
		},
		"abort": func() error { return w.objects.Abort(ctx, w.account, "bkt", "film", upload) },
	} {
		asked = 0
		if err := change(); !errors.Is(err, away) || asked == 0 {
			t.Errorf("%s: %v, asked %d times", name, err, asked)
		}
	}
	view, release = w.state.LocalView()
	defer release()
	if after := view.Index(); after != before {
		t.Errorf("%d changes were proposed", after-before)
	}
}
