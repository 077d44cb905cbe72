package objects

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A body is refused before it is read if it cannot fit the quota in any case, and is read if Apply may accept it.
func TestABodyIsRefusedBeforeItComesOnlyWhereItCannotFit(t *testing.T) {
	x, y := strings.Repeat("x", 60), strings.Repeat("y", 60)
	put := func(key, text string) func(*world, *CompleteRequest) error {
		return func(w *world, _ *CompleteRequest) error {
			_, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: key, Body: bodyOf(text)})
			return err
		}
	}
	part := func(number int, text string) func(*world, *CompleteRequest) error {
		return func(w *world, r *CompleteRequest) error {
			_, err := w.objects.PutPart(t.Context(), w.account, "bkt", PartRequest{Key: r.Key, Upload: r.Upload, Number: number, Body: bodyOf(text)})
			return err
		}
	}
	versioning := func(to state.Versioning) func(*world, *CompleteRequest) error {
		return func(w *world, _ *CompleteRequest) error {
			return w.objects.SetVersioning(t.Context(), w.account, "bkt", to)
		}
	}
	allow := func(bytes uint64) func(*world, *CompleteRequest) error {
		return func(w *world, _ *CompleteRequest) error {
			w.state.Apply(t, &state.SetQuota{Account: w.account, Allowance: bytes})
			return nil
		}
	}
	type step = func(*world, *CompleteRequest) error
	for _, tc := range []struct {
		name    string
		steps   []step // of which the last is looked at
		refused bool
		read    bool // its body is
	}{
		{"content that is there already", []step{put("x", x), put("x2", x)}, false, true},
		{"a part again", []step{part(1, x), part(1, x)}, false, true},
		{"another part of its number", []step{part(1, x), part(1, y)}, false, true},
		{"another part of another number", []step{part(1, x), part(2, y)}, true, true},
		{"of an object, another part", []step{put("x", x), part(2, x)}, false, true},
		{"in the place of the null version", []step{
			put("k", x), versioning(state.Versioned), put("k", "small"), versioning(state.Suspended), put("k", y),
		}, false, true},
		{"beside versions that stay", []step{put("k", x), versioning(state.Versioned), put("k", y+"y")}, true, false},
		{"more than is left", []step{put("x", x), put("y", y[:41])}, true, false},
		{"as much as is left", []step{put("x", x), put("y", y[:40])}, false, true},
		{"a part of more than is left", []step{put("x", x), part(1, y[:41])}, true, false},
		{"the most there can be", []step{put("x", y+y[:40])}, false, true},
		{"more than the most", []step{put("x", y+y[:41])}, true, false},
		{"less in the place of more, above the allowance", []step{put("x", x), put("y", "y"), allow(10), put("x", y[:59])}, false, true},
		{"more in the place of less, above the allowance", []step{put("x", x), put("y", "y"), allow(10), put("y", "yy")}, true, false},
		{"the same again, above the allowance", []step{put("x", x), allow(10), put("x", x)}, false, true},
		{"nothing, above the allowance", []step{put("x", x), allow(10), put("y", "")}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.bucket("bkt")
			w.state.Apply(t, &state.SetQuota{Account: w.account, Allowance: 100})
			id, err := w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: "up"})
			if err != nil {
				t.Fatal(err)
			}
			last := len(tc.steps) - 1
			r := &CompleteRequest{Key: "up", Upload: id}
			for _, do := range tc.steps[:last] {
				if err := do(w, r); err != nil {
					t.Fatal(err)
				}
			}
			stored := len(w.kept)
			err = tc.steps[last](w, r)
			if errors.Is(err, state.ErrQuota) != tc.refused || err != nil && !tc.refused {
				t.Errorf("refused %v: %v", tc.refused, err)
			}
			if (len(w.kept) > stored) != tc.read {
				t.Errorf("its body was read: %v", !tc.read)
			}
		})
	}
}
