package objects

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// behind is the state of a member that has not applied what others have committed since
// old was taken; a linearizable read waits until it has.
type behind struct {
	State
	old  state.View
	lags bool
}

func (b *behind) LocalView() (state.View, func()) {
	if b.lags {
		return b.old, func() {}
	}
	return b.State.LocalView()
}

func (b *behind) View(ctx context.Context) (state.View, func(), error) {
	b.lags = false
	return b.State.View(ctx)
}

// An upload that is aborted, or whose bucket is deleted, through another node while its parts are joined fails with
// ErrNoUpload or ErrNoBucket. This node may not have applied that yet.
func TestAnUploadThatEndsElsewhereIsSaidToHaveEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(w *world, r CompleteRequest) error
		want error
	}{
		"aborted": {func(w *world, r CompleteRequest) error {
			return w.objects.Abort(t.Context(), w.account, "bkt", r.Key, r.Upload)
		}, state.ErrNoUpload},
		"bucket deleted": {func(w *world, _ CompleteRequest) error { return w.objects.DeleteBucket(t.Context(), w.account, "bkt") }, state.ErrNoBucket},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bucket("bkt")
			r := w.uploaded("bkt", "k", "the first part", "the second part")
			real := w.objects.opts.State
			view, release := real.LocalView()
			defer release()
			w.joining = func() {
				w.joining = nil
				if err := tc.end(w, r); err != nil {
					t.Fatal(err)
				}
				clear(w.content)
				w.objects.opts.State = &behind{real, view, true}
			}
			if _, err := w.objects.Complete(Seen(t.Context(), view.Index()), w.account, "bkt", r); !errors.Is(err, tc.want) {
				t.Errorf("completed: %v", err)
			}
		})
	}
}
