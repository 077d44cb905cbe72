package objects

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// While the parts of an aborted upload are freed, a put without room fails with ErrLimited after its body was read,
// and not with ErrQuota. There may be room when the body has come.
func TestAnAccountHasRoomWhenThePartsOfAnUploadAreFreed(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.put("bkt", "k", strings.Repeat("a", 80))
	ctx := t.Context()
	id, err := w.objects.CreateUpload(ctx, w.account, "bkt", UploadRequest{Key: "up"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range state.MaxFreed + 1 {
		if _, err := w.objects.PutPart(ctx, w.account, "bkt", PartRequest{Key: "up", Upload: id, Number: n + 1, Body: bodyOf(strings.Repeat("p", 20))}); err != nil {
			t.Fatal(err)
		}
	}
	w.state.Apply(t, &state.SetQuota{Account: w.account, Allowance: 100})
	put := func() error {
		_, err := w.objects.Put(ctx, w.account, "bkt", PutRequest{Key: "more", Body: bodyOf(strings.Repeat("b", 20))})
		return err
	}
	if err := put(); !errors.Is(err, state.ErrQuota) {
		t.Error("while the upload is open:", err)
	}
	if err := w.objects.Abort(ctx, w.account, "bkt", "up", id); err != nil {
		t.Fatal(err)
	}
	if err := put(); !errors.Is(err, state.ErrLimited) {
		t.Error("while its parts are freed:", err)
	}
	w.told("false")
	view, release := w.state.LocalView()
	left, err := view.Ended(10)
	release()
	if err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	for range 2 {
		w.state.Apply(t, &state.ClearUploads{Items: left})
	}
	if err := put(); err != nil {
		t.Error("when they are freed:", err)
	}
}

// A put or a new upload fails with ErrNoSpace if a full disk is among the reasons for too few nodes, else with
// ErrUnavailable. A client that is told that disks are full does not try again; a member that is down comes back.
func TestAMemberThatIsDownIsNoFullDisk(t *testing.T) {
	for name, tc := range map[string]struct {
		down, full int // so many of three
		want       error
	}{
		"down":           {down: 2, want: state.ErrUnavailable},
		"full":           {full: 2, want: state.ErrNoSpace},
		"down, and full": {down: 1, full: 1, want: state.ErrNoSpace},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bucket("bkt")
			for i := range w.nodes {
				w.nodes[i].Alive, w.nodes[i].Full = i >= tc.down, i >= tc.down && i < tc.down+tc.full
			}
			_, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: "k", Body: bodyOf("x")})
			if !errors.Is(err, tc.want) {
				t.Errorf("put: %v, want %v", err, tc.want)
			}
			_, err = w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: "k"})
			if !errors.Is(err, tc.want) {
				t.Errorf("new upload: %v, want %v", err, tc.want)
			}
		})
	}
}
