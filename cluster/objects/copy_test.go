package objects

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A part that is copied from an object that is replaced meanwhile is of the new object, and the copy fails with
// ErrUnavailable if the object never stays.
func TestAPartOfAnObjectThatIsReplacedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	ctx, a := t.Context(), w.account
	w.put("bkt", "k", "before")
	id, err := w.objects.CreateUpload(ctx, a, "bkt", UploadRequest{Key: "c"})
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	r := PartCopyRequest{Key: "c", Upload: id, Number: 1, SourceBucket: "bkt", Source: "k", SourceIf: func(*state.Object) error {
		looks++
		return nil
	}}
	r.Range = func(size uint64) (uint64, uint64, error) {
		if looks == 1 {
			w.put("bkt", "k", "after")
		}
		return 0, size, nil
	}
	p, err := w.objects.CopyPart(ctx, a, "bkt", r)
	if err != nil || p.ETag != md5Of("after") || looks != 2 {
		t.Errorf("after %d looks: %+v, %v", looks, p, err)
	}
	r.Range = func(size uint64) (uint64, uint64, error) {
		w.put("bkt", "k", fmt.Sprint(w.objects.opts.NewID()))
		return 0, size, nil
	}
	if p, err := w.objects.CopyPart(ctx, a, "bkt", r); !errors.Is(err, state.ErrUnavailable) || strings.Contains(err.Error(), "no leader") {
		t.Errorf("of a source that never stays: %+v, %v", p, err)
	}
}

// A copy of an object that is replaced fewer than copyAttempts times meanwhile has the newest content, else the copy
// fails with ErrUnavailable.
func TestACopyOfAnObjectThatIsReplacedAgainAndAgain(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.put("bkt", "k", "0")
	newest := ""
	for n, want := range map[int]error{3: nil, copyAttempts / 2: nil, copyAttempts: state.ErrUnavailable} {
		left := n
		w.state.Before(func(cmd state.Command) {
			if _, copies := cmd.(*state.CopyObject); copies && left > 0 {
				left--
				newest = fmt.Sprint(n, left)
				w.put("bkt", "k", newest)
			}
		})
		copied, err := w.objects.Copy(t.Context(), w.account, "bkt", CopyRequest{Key: "c", SourceBucket: "bkt", Source: "k"})
		if !errors.Is(err, want) || err == nil && copied.ETag != md5Of(newest) {
			t.Errorf("overwritten %d times: %+v, %v", n, copied, err)
		}
	}
}

// A copy has the tags that its source has when the copy is applied, unless the request has tags of its own. The
// version that is copied keeps its id when its tags change.
func TestACopyKeepsTheTagsThatItsSourceHasThen(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.put("bkt", "k", "text")
	set := func(text string) {
		t.Helper()
		if err := w.objects.SetTags(t.Context(), w.account, "bkt", "k", "", []state.Tag{{Key: "t", Value: text}}); err != nil {
			t.Fatal(err)
		}
	}
	for i, tc := range []struct {
		r    CopyRequest
		want string
	}{
		{CopyRequest{Key: "k", Replace: &Attributes{Meta: map[string]string{"m": "1"}}, KeepTags: true}, "later 0"},
		{CopyRequest{Key: "other"}, "later 1"},
		{CopyRequest{Key: "k", Replace: &Attributes{Tags: []state.Tag{{Key: "t", Value: "mine"}}}}, "mine"},
	} {
		set("before")
		tc.r.SourceBucket, tc.r.Source = "bkt", "k"
		w.state.Before(func(cmd state.Command) {
			if _, copies := cmd.(*state.CopyObject); copies {
				set(fmt.Sprint("later ", i))
			}
		})
		if _, err := w.objects.Copy(t.Context(), w.account, "bkt", tc.r); err != nil {
			t.Fatal(err)
		}
		w.state.Before(nil)
		if obj, _ := w.read("bkt", tc.r.Key); len(obj.Tags) != 1 || obj.Tags[0].Value != tc.want {
			t.Errorf("%+v: the copy has %v, want %s", tc.r, obj.Tags, tc.want)
		}
	}
}

// A key has 1 to 1,024 bytes, whether an object comes by it with a put, a copy or an upload.
func TestBoundsOfAKey(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.put("bkt", "k", "x")
	for n, want := range map[int]error{0: state.ErrInvalid, 1: nil, state.MaxKeyBytes: nil, state.MaxKeyBytes + 1: state.ErrInvalid} {
		for way, ask := range map[string]func(key string) error{
			"p": func(key string) error {
				_, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: key, Body: bodyOf("x")})
				return err
			},
			"c": func(key string) error {
				_, err := w.objects.Copy(t.Context(), w.account, "bkt", CopyRequest{Key: key, SourceBucket: "bkt", Source: "k"})
				return err
			},
			"u": func(key string) error {
				_, err := w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: key})
				return err
			},
		} {
			if err := ask(strings.Repeat(way, n)); !errors.Is(err, want) {
				t.Errorf("%s of a key of %d bytes: %v, want %v", way, n, err, want)
			}
		}
	}
}

// A part whose source is replaced, and its content gone, before it was read is of the new object; without any content
// the copy fails with ErrUnavailable.
func TestAPartOfAnObjectWhoseContentGoesMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	ctx, a := t.Context(), w.account
	was := w.put("bkt", "k", "before")
	id, err := w.objects.CreateUpload(ctx, a, "bkt", UploadRequest{Key: "c"})
	if err != nil {
		t.Fatal(err)
	}
	r := PartCopyRequest{Key: "c", Upload: id, Number: 1, SourceBucket: "bkt", Source: "k"}
	r.Range = func(size uint64) (uint64, uint64, error) {
		if size == was.Size {
			w.put("bkt", "k", "after")
			delete(w.content, was.Root.Cid())
		}
		return 1, size - 1, nil // its bytes are read
	}
	if p, err := w.objects.CopyPart(ctx, a, "bkt", r); err != nil || p.ETag != md5Of("fter") {
		t.Errorf("%+v, %v", p, err)
	}
	now := w.put("bkt", "k", "content that is there")
	delete(w.content, now.Root.Cid()) // but nobody who has it is
	if p, err := w.objects.CopyPart(ctx, a, "bkt", r); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("%+v, %v", p, err)
	}
}
