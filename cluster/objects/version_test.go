package objects

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// versioned makes a bucket that keeps versions.
func (w *world) versioned(name string) {
	w.t.Helper()
	w.bucket(name)
	w.versioning(name, state.Versioned)
}

func (w *world) versioning(bucket string, to state.Versioning) {
	w.t.Helper()
	if err := w.objects.SetVersioning(w.t.Context(), w.account, bucket, to); err != nil {
		w.t.Fatal(err)
	}
}

// holds fails the test unless a version has a body.
func (w *world) holds(bucket, key string, id state.VersionID, body string) {
	w.t.Helper()
	obj, err := w.objects.Object(w.t.Context(), w.account, bucket, key, id)
	if err != nil {
		w.t.Fatalf("version %s: %v", id, err)
	}
	if obj.ETag != md5Of(body) || id != "" && obj.ID != id {
		w.t.Errorf("version %s is %+v", id, obj)
	}
}

// Each version of a key is found, listed and deleted by its id, and the object from before versioning by the id
// "null" too.
func TestVersionsGoByTheirNames(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	before := w.put("bkt", "k", "before")
	w.holds("bkt", "k", before.ID, "before")
	w.versioning("bkt", state.Versioned)
	w.holds("bkt", "k", state.NullVersion, "before")
	if obj, err := w.objects.Object(t.Context(), w.account, "bkt", "k", before.ID); err != nil || obj.ID != state.NullVersion {
		t.Errorf("by the id of its put: %+v, %v", obj, err)
	}
	one, two := w.put("bkt", "k", "one"), w.put("bkt", "k", "two")
	w.holds("bkt", "k", one.ID, "one")
	w.holds("bkt", "k", "", "two")

	gone, err := w.objects.Delete(t.Context(), w.account, "bkt", "k", "", state.Condition{})
	if err != nil || !gone.Marker || !gone.Versioned || gone.ID == "" {
		t.Errorf("%+v, %v", gone, err)
	}
	if obj, err := w.objects.Object(t.Context(), w.account, "bkt", "k", ""); err != nil || !obj.Marker || obj.ID != gone.ID {
		t.Errorf("%+v, %v", obj, err)
	}
	w.versioning("bkt", state.Suspended)
	if null := w.put("bkt", "k", "null"); null.ID != state.NullVersion {
		t.Errorf("%+v", null)
	}
	w.holds("bkt", "k", state.NullVersion, "null")
	if _, err := w.objects.Object(t.Context(), w.account, "bkt", "k", before.ID); !errors.Is(err, state.ErrNoVersion) {
		t.Errorf("the null version before: %v", err)
	}
	page, err := w.objects.Versions(t.Context(), w.account, "bkt", state.VersionsQuery{Limit: 1})
	if err != nil || len(page.Versions) != 1 || page.Versions[0].ID != state.NullVersion || page.NextID != state.NullVersion || !page.Truncated {
		t.Errorf("%+v, %v", page, err)
	}
	page, err = w.objects.Versions(t.Context(), w.account, "bkt", state.VersionsQuery{Limit: 10, AfterKey: page.NextKey, AfterID: page.NextID})
	var ids []state.VersionID
	for _, v := range page.Versions {
		ids = append(ids, v.ID)
	}
	if err != nil || !slices.Equal(ids, []state.VersionID{gone.ID, two.ID, one.ID}) || page.Truncated || page.Latest[0] {
		t.Errorf("%v, %+v, %v", ids, page, err)
	}
	all, err := w.objects.DeleteMany(t.Context(), w.account, "bkt", []Doomed{{"k", two.ID}, {"k", gone.ID}, {"k", "none"}, {"k", ""}, {"k", state.NullVersion}})
	want := []Deleted{
		{Versioned: true, ID: two.ID},
		{Versioned: true, ID: gone.ID, Marker: true},
		{Versioned: true, ID: "none"},
		{Versioned: true, ID: state.NullVersion, Marker: true},
		{Versioned: true, ID: state.NullVersion, Marker: true},
	}
	if err != nil || !slices.Equal(all, want) {
		t.Errorf("%+v, %v", all, err)
	}
	w.holds("bkt", "k", "", "one")
}

// In a bucket without versioning an object has the id of its put alone; another id is ErrNoVersion and deletes
// nothing.
func TestWithoutVersioningAnotherVersionIsNotFound(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	obj := w.put("bkt", "k", "x")
	if _, err := w.objects.Delete(t.Context(), w.account, "bkt", "k", "other", state.Condition{}); !errors.Is(err, state.ErrNoVersion) {
		t.Errorf("%v", err)
	}
	all, err := w.objects.DeleteMany(t.Context(), w.account, "bkt", []Doomed{{"k", "other"}, {"absent", "other"}})
	if err != nil || !slices.Equal(all, []Deleted{{ID: "other", Missed: true}, {}}) {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := w.objects.Object(t.Context(), w.account, "bkt", "k", "other"); !errors.Is(err, state.ErrNoVersion) {
		t.Errorf("%v", err)
	}
	if gone, err := w.objects.Delete(t.Context(), w.account, "bkt", "k", obj.ID, state.Condition{}); err != nil || gone != (Deleted{}) {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := w.objects.Object(t.Context(), w.account, "bkt", "k", ""); !errors.Is(err, state.ErrNoKey) {
		t.Errorf("%v", err)
	}
}

// An old version can be copied and tagged, also one that becomes old while it is copied, and a delete marker cannot.
func TestOldVersionsAreCopied(t *testing.T) {
	w := newWorld(t)
	w.versioned("bkt")
	one, two := w.put("bkt", "k", "one"), w.put("bkt", "k", "two")
	var seen []state.VersionID
	judge := func(obj *state.Object) error { seen = append(seen, obj.ID); return nil }
	again, err := w.objects.Copy(t.Context(), w.account, "bkt", CopyRequest{Key: "k", SourceBucket: "bkt", Source: "k", SourceVersion: one.ID, SourceIf: judge})
	if err != nil || again.ID == one.ID || !again.Versioned {
		t.Fatalf("%+v, %v", again, err)
	}
	w.holds("bkt", "k", "", "one")
	// The source becomes an old version while it is copied: it is still there.
	w.state.Before(func(cmd state.Command) {
		if _, ok := cmd.(*state.CopyObject); ok {
			w.put("bkt", "k", "newer")
		}
	})
	if _, err := w.objects.Copy(t.Context(), w.account, "bkt", CopyRequest{Key: "copy", SourceBucket: "bkt", Source: "k", SourceIf: judge}); err != nil {
		t.Fatal(err)
	}
	w.state.Before(nil)
	w.holds("bkt", "copy", "", "one")
	if !slices.Equal(seen, []state.VersionID{one.ID, again.ID}) {
		t.Errorf("judged %v", seen)
	}
	gone, err := w.objects.Delete(t.Context(), w.account, "bkt", "k", "", state.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("a delete marker")
	for _, r := range []struct {
		copy CopyRequest
		want error
	}{
		{CopyRequest{Source: "k"}, state.ErrNoKey},
		{CopyRequest{Source: "k", SourceVersion: gone.ID}, state.ErrInvalid},
		{CopyRequest{Source: "k", SourceVersion: gone.ID, SourceIf: func(*state.Object) error { return refused }}, refused},
		{CopyRequest{Source: "k", SourceVersion: "none"}, state.ErrNoVersion},
	} {
		r.copy.Key, r.copy.SourceBucket = "x", "bkt"
		if _, err := w.objects.Copy(t.Context(), w.account, "bkt", r.copy); !errors.Is(err, r.want) {
			t.Errorf("%+v: %v, want %v", r.copy, err, r.want)
		}
	}
	tags := []state.Tag{{Key: "a", Value: "b"}}
	if err := w.objects.SetTags(t.Context(), w.account, "bkt", "k", two.ID, tags); err != nil {
		t.Fatal(err)
	}
	if obj, err := w.objects.Object(t.Context(), w.account, "bkt", "k", two.ID); err != nil || !slices.Equal(obj.Tags, tags) {
		t.Errorf("%+v, %v", obj, err)
	}
	if err := w.objects.SetTags(t.Context(), w.account, "bkt", "k", "", tags); !errors.Is(err, state.ErrNoKey) {
		t.Errorf("tags of a delete marker: %v", err)
	}
}

// An old version that is kept counts against the quota when a body is refused before it is read; one that is replaced
// does not.
func TestOldVersionsTakeRoom(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.state.Apply(t, &state.SetQuota{Account: w.account, Allowance: 10})
	w.put("bkt", "k", "12345678")
	w.put("bkt", "k", "87654321") // in its place
	w.versioning("bkt", state.Versioned)
	stored := len(w.kept)
	if _, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: "k", Body: bodyOf("abcdefg")}); !errors.Is(err, state.ErrQuota) || len(w.kept) != stored {
		t.Errorf("%v, %d bodies were stored", err, len(w.kept)-stored)
	}
	w.versioning("bkt", state.Suspended)
	w.put("bkt", "k", "abcdefgh") // the null version goes
}

// A put returns the version id that Apply gave it, also if versioning changes after this node has looked.
func TestAPutTellsWhatItMade(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	n := 0
	w.state.Before(func(cmd state.Command) {
		if _, ok := cmd.(*state.PutObject); ok {
			to := []state.Versioning{state.Versioned, state.Suspended}[n%2]
			n++
			w.versioning("bkt", to)
		}
	})
	if obj := w.put("bkt", "k", "one"); obj.ID == state.NullVersion || !obj.Versioned {
		t.Errorf("%+v", obj)
	}
	if obj := w.put("bkt", "k", "two"); obj.ID != state.NullVersion || obj.Versioned {
		t.Errorf("%+v", obj)
	}
}

// A completed upload is a new version if the bucket is versioned and the null version if versioning is suspended, and
// its old version stays.
func TestUploadsMakeVersions(t *testing.T) {
	w := newWorld(t)
	w.versioned("bkt")
	old := w.put("bkt", "k", "old")
	complete := func() (state.Object, CompleteRequest) {
		t.Helper()
		id, err := w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		part, err := w.objects.CopyPart(t.Context(), w.account, "bkt", PartCopyRequest{
			Key: "k", Upload: id, Number: 1, SourceBucket: "bkt", Source: "k", SourceVersion: old.ID,
		})
		if err != nil {
			t.Fatal(err)
		}
		r := CompleteRequest{Key: "k", Upload: id, Parts: []CompletePart{{Number: 1, ETag: part.ETag}}}
		obj, err := w.objects.Complete(t.Context(), w.account, "bkt", r)
		if err != nil {
			t.Fatal(err)
		}
		return obj, r
	}
	one, _ := complete()
	if one.ID == old.ID || !one.Versioned {
		t.Errorf("%+v", one)
	}
	w.holds("bkt", "k", old.ID, "old")
	w.versioning("bkt", state.Suspended)
	two, r := complete()
	again, err := w.objects.Complete(t.Context(), w.account, "bkt", r)
	if err != nil || two.ID != state.NullVersion || fmt.Sprint(again) == fmt.Sprint(one) || again.ID != two.ID || again.ETag != two.ETag {
		t.Errorf("%+v, then %+v, %v", two, again, err)
	}
}

// uploaded begins an upload of parts and returns what completes it.
func (w *world) uploaded(bucket, key string, bodies ...string) CompleteRequest {
	w.t.Helper()
	id, err := w.objects.CreateUpload(w.t.Context(), w.account, bucket, UploadRequest{Key: key, Algorithm: SHA256, Composite: true})
	if err != nil {
		w.t.Fatal(err)
	}
	r := CompleteRequest{Key: key, Upload: id}
	for i, text := range bodies {
		r.Parts = append(r.Parts, w.part(bucket, &r, i+1, text))
	}
	return r
}

func (w *world) part(bucket string, r *CompleteRequest, number int, text string) CompletePart {
	w.t.Helper()
	body := bodyOf(text)
	body.Sums = []string{SHA256}
	body.Check = func(s Sums) ([]state.Checksum, error) {
		return []state.Checksum{{Algorithm: SHA256, Value: s.By[SHA256]}}, nil
	}
	p, err := w.objects.PutPart(w.t.Context(), w.account, bucket, PartRequest{Key: r.Key, Upload: r.Upload, Number: number, Body: body})
	if err != nil {
		w.t.Fatal(err)
	}
	return CompletePart{Number: number, ETag: p.ETag}
}

// Of two clients that complete one upload at the same time, the second gets the object of the first, or
// ErrInvalidPart if its parts are others.
func TestAnUploadIsCompletedOnce(t *testing.T) {
	for _, to := range []state.Versioning{state.Unversioned, state.Versioned, state.Suspended} {
		t.Run(fmt.Sprint("versioning ", to), func(t *testing.T) {
			w := newWorld(t)
			w.bucket("bkt")
			if to != state.Unversioned {
				w.versioning("bkt", to)
			}
			// meet completes an upload right before another does, and a moment before it.
			meet := func(winner, loser CompleteRequest) (won, lost state.Object, err error) {
				t.Helper()
				met := false
				w.state.Before(func(cmd state.Command) {
					if _, completes := cmd.(*state.CompleteUpload); !completes || met {
						return
					}
					met = true
					if won, err = w.objects.Complete(t.Context(), w.account, "bkt", winner); err != nil {
						t.Fatal(err)
					}
					w.now = w.now.Add(time.Minute)
				})
				lost, err = w.objects.Complete(t.Context(), w.account, "bkt", loser)
				w.state.Before(nil)
				return won, lost, err
			}
			same := func(a, b state.Object) bool {
				return a.ID == b.ID && a.ETag == b.ETag && a.Root == b.Root && a.Size == b.Size && a.Created == b.Created
			}
			r := w.uploaded("bkt", "k", "the first part", "the second part")
			won, lost, err := meet(r, r)
			if err != nil || !same(won, lost) {
				t.Errorf("told %+v and %+v, %v", won, lost, err)
			}
			w.holdsIt("bkt", won)
			other := w.uploaded("bkt", "k", "the first part", "the second part")
			less := other
			less.Parts = other.Parts[:1]
			if won, lost, err = meet(less, other); !errors.Is(err, state.ErrInvalidPart) {
				t.Errorf("told %+v and %+v, %v", won, lost, err)
			}
			w.holdsIt("bkt", won)
			w.told("true")
		})
	}
}

// An upload that is completed while its parts are joined answers with that object, and one that is aborted meanwhile
// with ErrNoUpload. The node that ends an upload has its parts dropped.
func TestAnUploadThatEndsWhileItsPartsAreJoinedIsSaidToHaveEnded(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	r := w.uploaded("bkt", "k", "the first part", "the second part")
	lose := func(end func()) (state.Object, error) {
		t.Helper()
		w.joining = func() {
			w.joining = nil
			end()
			w.mu.Lock()
			clear(w.content)
			w.mu.Unlock()
		}
		return w.objects.Complete(t.Context(), w.account, "bkt", r)
	}
	if obj, err := lose(func() {}); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("parts that nobody reaches: %+v, %v", obj, err)
	}
	r = w.uploaded("bkt", "k", "the first part", "the second part")
	var won state.Object
	obj, err := lose(func() {
		var err error
		if won, err = w.objects.Complete(t.Context(), w.account, "bkt", r); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil || obj.ID != won.ID {
		t.Errorf("completed at the same time: %+v and %+v, %v", obj, won, err)
	}
	r = w.uploaded("bkt", "k", "the first part", "the second part")
	obj, err = lose(func() {
		if err := w.objects.Abort(t.Context(), w.account, "bkt", r.Key, r.Upload); err != nil {
			t.Fatal(err)
		}
	})
	if !errors.Is(err, state.ErrNoUpload) {
		t.Errorf("aborted meanwhile: %+v, %v", obj, err)
	}
}

// holdsIt fails the test unless a version is there as it was answered.
func (w *world) holdsIt(bucket string, want state.Object) {
	w.t.Helper()
	got, err := w.objects.Object(w.t.Context(), w.account, bucket, want.Key, want.ID)
	if err != nil || got.ID != want.ID || got.ETag != want.ETag || got.Root != want.Root || got.Created != want.Created {
		w.t.Errorf("answered was %+v, and there is %+v, %v", want, got, err)
	}
}

// A finished upload answers a second completion with its object only for the same parts and checks, wherever the
// object is among the versions. An upload whose object was replaced or deleted is ErrNoUpload.
func TestAFinishedUploadAnswersOnlyWhoAsksForIt(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	complete := func(r CompleteRequest) (state.Object, error) {
		return w.objects.Complete(t.Context(), w.account, "bkt", r)
	}
	judge := func(r CompleteRequest, made state.Object) {
		t.Helper()
		if again, err := complete(r); err != nil || again.ID != made.ID || again.Root != made.Root || again.Created != made.Created {
			t.Errorf("again with the same parts: %+v, %v, want %+v", again, err, made)
		}
		first, second := r.Parts[0], r.Parts[1]
		renumbered, summed := second, second
		renumbered.Number = 7
		summed.Checksums = map[string][]byte{SHA256: make([]byte, 32)}
		for _, parts := range [][]CompletePart{
			{second}, {first}, {{Number: 7, ETag: "deadbeef"}}, {second, first}, {first, renumbered}, {first, {Number: 2, ETag: first.ETag}}, {first, summed}, {},
		} {
			wrong := r
			wrong.Parts = parts
			if obj, err := complete(wrong); !errors.Is(err, state.ErrInvalidPart) {
				t.Errorf("with the parts %+v: %+v, %v", parts, obj, err)
			}
		}
		refused := errors.New("another size")
		r.Check = func(o *state.Object) error {
			if o.Size != made.Size || len(o.Checksums) != 1 {
				t.Errorf("judged is %+v", o)
			}
			return refused
		}
		if obj, err := complete(r); !errors.Is(err, refused) {
			t.Errorf("of another size: %+v, %v", obj, err)
		}
	}
	plain := w.uploaded("bkt", "k", "the first part", "the second part")
	made, err := complete(plain)
	if err != nil {
		t.Fatal(err)
	}
	judge(plain, made)
	w.versioning("bkt", state.Versioned)
	made.ID = state.NullVersion
	judge(plain, made)
	kept := w.uploaded("bkt", "k", "the first part", "the second part")
	version, err := complete(kept)
	if err != nil {
		t.Fatal(err)
	}
	w.put("bkt", "k", "newer")
	judge(plain, made)
	judge(kept, version)
	w.versioning("bkt", state.Suspended)
	null := w.uploaded("bkt", "k", "the first part", "the second part")
	replaced, err := complete(null)
	if err != nil || replaced.ID != state.NullVersion {
		t.Fatalf("%+v, %v", replaced, err)
	}
	judge(null, replaced)
	if obj, err := complete(plain); !errors.Is(err, state.ErrNoUpload) {
		t.Errorf("an upload whose object was replaced: %+v, %v", obj, err)
	}
	if _, err := w.objects.Delete(t.Context(), w.account, "bkt", "k", version.ID, state.Condition{}); err != nil {
		t.Fatal(err)
	}
	if obj, err := complete(kept); !errors.Is(err, state.ErrNoUpload) {
		t.Errorf("an upload whose object was deleted: %+v, %v", obj, err)
	}
}

// An upload without an algorithm whose parts are listed with checksums has the same answer when it is completed
// again. No checksums are kept by which to judge them.
func TestAnUploadWithoutAnAlgorithmIsCompletedAgain(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	id, err := w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	r := CompleteRequest{Key: "k", Upload: id}
	part, sum := w.part("bkt", &r, 1, "the only part"), sha256.Sum256([]byte("the only part"))
	part.Checksums = map[string][]byte{SHA256: sum[:]}
	r.Parts = []CompletePart{part}
	made, err := w.objects.Complete(t.Context(), w.account, "bkt", r)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.objects.Complete(t.Context(), w.account, "bkt", r); err != nil || again.ID != made.ID {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// The checksums of an object's parts are found by whatever id clients know the object, "null" included.
func TestChecksumsOfPartsAreFoundByTheNullVersion(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	check := func(id state.VersionID) {
		t.Helper()
		obj, err := w.objects.Object(t.Context(), w.account, "bkt", "k", id)
		if err != nil {
			t.Fatal(err)
		}
		sums, err := w.objects.PartSums(t.Context(), w.account, "bkt", &obj)
		if want := sha256.Sum256([]byte("the second part")); err != nil || sums == nil || !bytes.Equal(sums.Of(2), want[:]) {
			t.Errorf("version %q of %+v has %+v, %v", id, obj, sums, err)
		}
	}
	complete := func() {
		t.Helper()
		if _, err := w.objects.Complete(t.Context(), w.account, "bkt", w.uploaded("bkt", "k", "the first part", "the second part")); err != nil {
			t.Fatal(err)
		}
	}
	complete()
	check("")
	w.versioning("bkt", state.Versioned)
	check("")
	check(state.NullVersion)
	w.put("bkt", "k", "newer")
	check(state.NullVersion)
	w.versioning("bkt", state.Suspended)
	complete()
	check("")
	check(state.NullVersion)
}

// The uploads of a key are listed by the time at which they began, and a page starts behind the upload that it names.
func TestUploadsOfAKeyAreListedByTime(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	var want, got []state.UploadID
	for range 12 {
		w.now = w.now.Add(time.Millisecond)
		id, err := w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if u, err := uuid.Parse(string(id)); err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
			t.Errorf("%s is no UUID of version 7: %v", id, err)
		}
		want = append(want, id)
	}
	q := state.UploadsQuery{Limit: 5}
	for more := true; more; {
		page, err := w.objects.Uploads(t.Context(), w.account, "bkt", q)
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range page.Uploads {
			if got = append(got, u.ID); i > 0 && u.Created <= page.Uploads[i-1].Created {
				t.Errorf("%d comes behind %d", u.Created, page.Uploads[i-1].Created)
			}
		}
		more, q.AfterKey, q.AfterID = page.Truncated, page.NextKey, page.NextID
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A deletion with a condition of a key that does not exist succeeds, and is ErrNoKey as in older releases until all
// members are upgraded.
func TestADeletionWithAConditionOfWhatIsNotThere(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	c := state.Condition{Match: []string{"x"}, AbsentOK: true}
	if d, err := w.objects.Delete(t.Context(), w.account, "bkt", "k", "", c); err != nil || d != (Deleted{}) {
		t.Errorf("%+v, %v", d, err)
	}
	w.put("bkt", "k", "hello")
	if _, err := w.objects.Delete(t.Context(), w.account, "bkt", "k", "", c); !errors.Is(err, state.ErrPrecondition) {
		t.Errorf("%v", err)
	}
	w.objects.opts.State = ofLevel{w.state, 4}
	if _, err := w.objects.Delete(t.Context(), w.account, "bkt", "absent", "", c); !errors.Is(err, state.ErrNoKey) {
		t.Errorf("%v", err)
	}
}

// ofLevel is a state that says it is of a level.
type ofLevel struct {
	State
	level byte
}

func (s ofLevel) LocalView() (state.View, func()) {
	return state.NewView(leveled{s.level}, 1), func() {}
}

type leveled struct{ level byte }

func (l leveled) Get(k []byte) ([]byte, bool, error) {
	return []byte{7: l.level}, string(k) == "Mlevel", nil
}

func (leveled) Scan([]byte, []byte, bool, func(k, v []byte) (bool, error)) error { return nil }
