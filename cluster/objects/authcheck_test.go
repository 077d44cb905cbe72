package objects

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// changing returns a world with something in it, and all changes of it that somebody asks for.
func changing(t *testing.T) (w *world, changes map[string]func(context.Context) error) {
	w = newWorld(t)
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
	return w, map[string]func(context.Context) error{
		"create bucket":      func(ctx context.Context) error { return w.objects.CreateBucket(ctx, w.account, "fresh", false) },
		"delete bucket":      func(ctx context.Context) error { return w.objects.DeleteBucket(ctx, w.account, "empty") },
		"set public":         func(ctx context.Context) error { return w.objects.SetPublic(ctx, w.account, "bkt", true) },
		"set CORS rules":     func(ctx context.Context) error { return w.objects.SetCors(ctx, w.account, "bkt", nil) },
		"set tags of bucket": func(ctx context.Context) error { return w.objects.SetBucketTags(ctx, w.account, "bkt", nil) },
		"set versioning": func(ctx context.Context) error {
			return w.objects.SetVersioning(ctx, w.account, "bkt", state.Versioned)
		},
		"set tags": func(ctx context.Context) error { return w.objects.SetTags(ctx, w.account, "bkt", "k", "", nil) },
		"delete": func(ctx context.Context) error {
			_, err := w.objects.Delete(ctx, w.account, "bkt", "k", "", state.Condition{})
			return err
		},
		"delete many": func(ctx context.Context) error {
			_, err := w.objects.DeleteMany(ctx, w.account, "bkt", []Doomed{{Key: "k"}})
			return err
		},
		"put": func(ctx context.Context) error {
			_, err := w.objects.Put(ctx, w.account, "bkt", PutRequest{Key: "k", Body: bodyOf("theirs")})
			return err
		},
		"copy": func(ctx context.Context) error {
			_, err := w.objects.Copy(ctx, w.account, "bkt", CopyRequest{Key: "x", SourceBucket: "bkt", Source: "k"})
			return err
		},
		"create upload": func(ctx context.Context) error {
			_, err := w.objects.CreateUpload(ctx, w.account, "bkt", UploadRequest{Key: "k"})
			return err
		},
		"put part": func(ctx context.Context) error {
			_, err := w.objects.PutPart(ctx, w.account, "bkt", PartRequest{Key: "film", Upload: upload, Number: 2, Body: bodyOf("two")})
			return err
		},
		"copy part": func(ctx context.Context) error {
			all := func(size uint64) (uint64, uint64, error) { return 0, size, nil }
			_, err := w.objects.CopyPart(ctx, w.account, "bkt", PartCopyRequest{Key: "film", Upload: upload, Number: 2, SourceBucket: "bkt", Source: "k", Range: all})
			return err
		},
		"complete": func(ctx context.Context) error {
			_, err := w.objects.Complete(ctx, w.account, "bkt", CompleteRequest{Key: "film", Upload: upload, Parts: []CompletePart{{Number: 1, ETag: part.ETag}}})
			return err
		},
		"abort": func(ctx context.Context) error { return w.objects.Abort(ctx, w.account, "bkt", "film", upload) },
	}
}

// Each change of objects asks its auth check and proposes nothing if the check fails.
func TestARequestThatFailsTheAuthCheckChangesNothing(t *testing.T) {
	w, changes := changing(t)
	view, release := w.state.LocalView()
	before := view.Index()
	release()
	away := errors.New("not any more")
	asked := 0
	ctx := WithAuthCheck(t.Context(), func(context.Context) error {
		asked++
		return away
	})
	for name, change := range changes {
		asked = 0
		if err := change(ctx); !errors.Is(err, away) || asked == 0 {
			t.Errorf("%s: %v, asked %d times", name, err, asked)
		}
	}
	view, release = w.state.LocalView()
	defer release()
	if after := view.Index(); after != before {
		t.Errorf("%d changes were proposed", after-before)
	}
}

// A change whose API key is revoked, or whose session ends, between the auth check and the proposal is refused by
// Apply. The proposal may be under way for seconds.
func TestAKeyThatEndsWhileItsChangeIsUnderWayChangesNothing(t *testing.T) {
	asked := func(w *world) (key, session func(ends bool) context.Context) {
		w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel},
			&state.CreateKey{Key: state.APIKey{ID: "key", Account: w.account, Scope: []string{state.ScopeWrite}, Created: 1}},
			&state.SetPassword{Account: w.account, Hash: "hash"},
			&state.CreateSession{
				Session:  state.Session{ID: "session", Account: w.account, Created: 1, Expires: 1 << 40, Idle: 1 << 40},
				Password: state.PasswordProof("hash"),
			})
		key = func(ends bool) context.Context {
			return WithAuthCheck(state.As(t.Context(), "key"), func(context.Context) error {
				if ends {
					w.state.Apply(t, &state.RevokeKey{ID: "key"})
				}
				return nil
			})
		}
		session = func(ends bool) context.Context {
			return WithAuthCheck(state.AsSession(t.Context(), "session"), func(context.Context) error {
				if ends {
					w.state.Apply(t, &state.EndSession{ID: "session"})
				}
				return nil
			})
		}
		return key, session
	}
	_, changes := changing(t)
	for name := range changes {
		for _, ends := range []bool{false, true} {
			for _, bySession := range []bool{false, true} {
				w, changes := changing(t)
				ctx, session := asked(w)
				if bySession {
					ctx = session
				}
				err := changes[name](ctx(ends))
				if ends && !errors.Is(err, state.ErrUnauthorized) || !ends && err != nil {
					t.Errorf("%s, by a session %t, that ends %t: %v", name, bySession, ends, err)
				}
			}
		}
	}
}
