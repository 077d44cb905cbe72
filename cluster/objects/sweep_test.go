package objects

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Whether an upload is old is what most clocks say, neither that of the node that looks
// nor that of the node through which it was begun.
func TestOneWrongClockDiscardsNoUpload(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	ctx, right := t.Context(), w.now
	age := w.objects.opts.UploadAge
	type clocks struct{ own, agreed time.Time }
	for _, c := range []struct {
		name          string
		begun, looked clocks
		stays         bool
	}{
		{"all are right, and it is old", clocks{right, right}, clocks{right.Add(2 * age), right.Add(2 * age)}, false},
		{"who looks is ahead", clocks{right, right}, clocks{right.Add(100 * age), right}, true},
		{"who looks is behind", clocks{right, right}, clocks{right.Add(-100 * age), right.Add(2 * age)}, false},
		{"who looks is ahead and hears too few", clocks{right, right}, clocks{right.Add(100 * age), time.Time{}}, true},
		{"who began it is behind", clocks{right.Add(-100 * age), right}, clocks{right, right}, true},
		{"who began it is ahead", clocks{right.Add(age), right}, clocks{right.Add(3 * age), right.Add(3 * age)}, false},
		{"who began it heard too few", clocks{right, time.Time{}}, clocks{right, right}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.now, w.agreed = c.begun.own, c.begun.agreed
			id, err := w.objects.CreateUpload(ctx, w.account, "bkt", UploadRequest{Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.objects.PutPart(ctx, w.account, "bkt", PartRequest{Key: "k", Upload: id, Number: 1, Body: bodyOf("0123456789")}); err != nil {
				t.Fatal(err)
			}
			w.now, w.agreed = c.looked.own, c.looked.agreed
			if err := w.objects.SweepUploads(ctx); err != nil {
				t.Fatal(err)
			}
			if err := w.objects.Abort(ctx, w.account, "bkt", "k", id); (err == nil) != c.stays || err != nil && !errors.Is(err, state.ErrNoUpload) {
				t.Errorf("to abort it gives %v, it should have stayed: %v", err, c.stays)
			}
		})
	}
}
