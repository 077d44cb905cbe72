package objects

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A young upload stays although the clock of the node that began it or of the node that sweeps is wrong, and every
// upload goes when it is old by most clocks.
func TestOneWrongClockDiscardsNoUpload(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	ctx, right := t.Context(), w.now
	age := w.objects.opts.UploadAge
	behind, ahead := right.Add(-100*age), right.Add(100*age)
	type clocks struct{ own, early, late time.Time }
	most := func(own, agreed time.Time) clocks { return clocks{own, agreed, agreed} }
	few := func(own time.Time) clocks { return clocks{own: own} } // is heard
	look := func(c clocks) {
		t.Helper()
		w.now, w.agreed, w.unheard = c.own, c.early, c.late.Sub(c.early)
		if err := w.objects.SweepUploads(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name          string
		begun, looked clocks
		stays         bool
	}{
		{"all are right, and it is old", most(right, right), most(right.Add(2*age), right.Add(2*age)), false},
		{"all are right, and it is young", most(right, right), most(right.Add(age), right.Add(age)), true},
		{"who looks is ahead", most(right, right), most(ahead, right), true},
		{"who looks is behind", most(right, right), most(behind, right.Add(2*age)), false},
		{"who looks is ahead and hears too few", most(right, right), few(ahead), true},
		{"who began it is behind", most(behind, right), most(right, right), true},
		{"who began it is ahead", most(right.Add(age), right), most(right.Add(3*age), right.Add(3*age)), false},
		{"who began it is right, and most are behind", most(right, behind), most(right, right), true},
		{"who began it is far ahead", most(ahead, right), most(right.Add(age), right.Add(age)), true},
		{"who began it heard too few", few(right), most(right, right), true},
		{"who began it is behind and heard too few", few(behind), most(right, right), true},
		{"who began it is ahead and heard too few", few(ahead), most(right, right), true},
		{"who began it heard too few, and who looks is ahead", few(right), most(ahead, right), true},
		{"who began it is behind, and another is silent", clocks{behind, behind, right}, most(right, right), true},
		{"who began it is right, another is behind and one is silent", clocks{right, behind, right}, most(right, right), true},
		{"who began it is ahead, and another is silent", clocks{ahead, right, ahead}, most(right, right), true},
		{"who began it heard too few, who looks is behind, and another is silent", few(right), clocks{behind, behind, right}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.now, w.agreed, w.unheard = c.begun.own, c.begun.early, c.begun.late.Sub(c.begun.early)
			id, err := w.objects.CreateUpload(ctx, w.account, "bkt", UploadRequest{Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.objects.PutPart(ctx, w.account, "bkt", PartRequest{Key: "k", Upload: id, Number: 1, Body: bodyOf("0123456789")}); err != nil {
				t.Fatal(err)
			}
			look(c.looked)
			if _, err := w.objects.Upload(ctx, w.account, "bkt", "k", id); (err == nil) != c.stays || err != nil && !errors.Is(err, state.ErrNoUpload) {
				t.Errorf("%v, it should have stayed: %v", err, c.stays)
			}
			look(most(right.Add(age), right.Add(age)))
			if _, err := w.objects.Upload(ctx, w.account, "bkt", "k", id); c.stays && err != nil {
				t.Errorf("when all are right again: %v", err)
			}
			look(most(right.Add(3*age), right.Add(3*age)))
			if _, err := w.objects.Upload(ctx, w.account, "bkt", "k", id); !errors.Is(err, state.ErrNoUpload) {
				t.Errorf("in the end: %v", err)
			}
		})
	}
}
