package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const self, second, third state.NodeID = "n1", "n2", "n3"

// world is a cluster of three whose content is kept in memory.
type world struct {
	t       *testing.T
	state   *clustertest.State
	objects *Objects
	account state.AccountID
	now     time.Time
	agreed  time.Time     // what most clocks say; zero: not known
	unheard time.Duration // what they may say beside it, while others are silent
	nodes   []placement.Node

	mu      sync.Mutex
	content map[cid.Cid][]byte
	places  []ingest.Placement
	kept    []*fakeKept
	epoch   uint64
	refuse  error  // of Store
	joining func() // called by Join; nil: nothing is
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, state: clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members(self, second, third)}), account: clustertest.Operator,
		now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), content: map[cid.Cid][]byte{},
	}
	w.agreed = w.now
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	for _, id := range []state.NodeID{self, second, third} {
		w.nodes = append(w.nodes, placement.Node{ID: id, Free: 1 << 40, Alive: true})
	}
	n := 0
	w.objects = New(Options{
		Self: self, State: w.state, Nodes: w, Content: w, Files: w, MinPart: 10, UploadAge: time.Hour,
		Now: func() time.Time { return w.now }, Agreed: w.clocks, NewID: func() string { n++; return fmt.Sprintf("id-%d", n) },
	})
	return w
}

// clocks is Agreed of the options.
func (w *world) clocks() (early, late state.Millis, ok bool) {
	if w.agreed.IsZero() {
		return 0, 0, false
	}
	return state.MillisOf(w.agreed), state.MillisOf(w.agreed.Add(w.unheard)), true
}

// Candidates implements Nodes.
func (w *world) Candidates() []placement.Node { return w.nodes }

// Store implements Content.
func (w *world) Store(_ context.Context, body io.Reader, place ingest.Placement) (Kept, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	if w.refuse != nil {
		return nil, w.refuse
	}
	return w.keep(data, place), nil
}

// Join implements Content.
func (w *world) Join(_ context.Context, parts []ingest.File, place ingest.Placement) (Kept, error) {
	if w.joining != nil {
		w.joining()
	}
	var all []byte
	for _, p := range parts {
		w.mu.Lock()
		data, ok := w.content[p.Root]
		w.mu.Unlock()
		if !ok || uint64(len(data)) != p.Size {
			return nil, state.Errorf(state.CodeUnavailable, "no part %s of %d bytes", p.Root, p.Size)
		}
		all = append(all, data...)
	}
	return w.keep(all, place), nil
}

func (w *world) keep(data []byte, place ingest.Placement) *fakeKept {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum, err := multihash.Sum(data, multihash.SHA2_256, -1)
	if err != nil {
		w.t.Fatal(err)
	}
	c := cid.NewCidV1(cid.Raw, sum)
	w.content[c] = data
	w.places = append(w.places, place)
	k := &fakeKept{world: w, root: state.RootOf(c), size: uint64(len(data)), place: place, epoch: w.epoch}
	w.kept = append(w.kept, k)
	return k
}

// Open implements Files.
func (w *world) Open(_ context.Context, root cid.Cid, _ []state.NodeID) (io.ReadSeekCloser, uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, ok := w.content[root]
	if !ok {
		return nil, 0, state.ErrNotFound
	}
	return struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(data), io.NopCloser(nil)}, uint64(len(data)), nil
}

type fakeKept struct {
	world   *world
	root    state.RootKey
	size    uint64
	place   ingest.Placement
	epoch   uint64
	renewed int
	said    []string
}

func (k *fakeKept) Content() state.Content {
	c := state.Content{Root: k.root, Bytes: k.size, Blocks: 1, Nodes: k.place.Nodes}
	for _, n := range k.place.Nodes[:k.place.Copies] {
		c.Held = append(c.Held, state.Holding{Node: n, Epoch: k.epoch})
	}
	return c
}
func (k *fakeKept) Size() uint64 { return k.size }
func (k *fakeKept) Renew(context.Context) error {
	k.renewed++
	k.epoch = k.world.epoch
	return nil
}
func (k *fakeKept) Done(committed bool) { k.said = append(k.said, fmt.Sprint(committed)) }
func (k *fakeKept) Unknown()            { k.said = append(k.said, "unknown") }

// told fails the test unless everything that was kept was told once, the last time
// what is wanted.
func (w *world) told(want string) {
	w.t.Helper()
	for _, k := range w.kept {
		if len(k.said) != 1 {
			w.t.Errorf("content was told %v", k.said)
		}
	}
	if last := w.kept[len(w.kept)-1]; !slices.Equal(last.said, []string{want}) {
		w.t.Errorf("told %v, want %s", last.said, want)
	}
}

func (w *world) bucket(name string) {
	w.t.Helper()
	if err := w.objects.CreateBucket(w.t.Context(), w.account, name, false); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) put(bucket, key, body string) state.Object {
	w.t.Helper()
	obj, err := w.objects.Put(w.t.Context(), w.account, bucket, PutRequest{Key: key, Body: bodyOf(body)})
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func bodyOf(text string) Body { return Body{Reader: strings.NewReader(text), Size: int64(len(text))} }

func (w *world) read(bucket, key string) (state.Object, string) {
	w.t.Helper()
	obj, err := w.objects.Object(w.t.Context(), w.account, bucket, key, "")
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := w.objects.Open(w.t.Context(), w.account, &obj)
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		w.t.Fatal(err)
	}
	return obj, string(data)
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// An object is read and listed with the body and the attributes of its put, and this node is among those that keep
// it.
func TestPutIsReadAgain(t *testing.T) {
	w := newWorld(t)
	w.bucket("photos")
	put, err := w.objects.Put(t.Context(), w.account, "photos", PutRequest{
		Key: "a//b", Body: Body{Reader: strings.NewReader("hello"), Size: -1, Sums: []string{SHA256}, Check: func(s Sums) ([]state.Checksum, error) {
			return []state.Checksum{{Algorithm: SHA256, Value: s.By[SHA256]}}, nil
		}},
		Attributes: Attributes{Headers: map[string]string{"Content-Type": "x/y"}, Meta: map[string]string{"m": "1"}, Tags: []state.Tag{{Key: "t", Value: "2"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.told("true")
	got, body := w.read("photos", "a//b")
	if body != "hello" || got.ETag != md5Of("hello") || got.Headers["Content-Type"] != "x/y" || got.Meta["m"] != "1" || len(got.Tags) != 1 ||
		len(got.Checksums) != 1 || got.ID != put.ID || got.Size != 5 {
		t.Errorf("%+v %q", got, body)
	}
	// This node keeps what arrives here, and as many as the cluster wants.
	if p := w.places[0]; !slices.Contains(p.Nodes, self) || len(p.Nodes) != 3 || p.Copies != 2 || len(p.Spare) != 0 {
		t.Errorf("placed %+v", p)
	}
	page, err := w.objects.List(t.Context(), w.account, "photos", state.ObjectsQuery{Limit: 10})
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != "a//b" {
		t.Errorf("%+v %v", page, err)
	}
}

// A put that is refused leaves the object as it was, and its body is not read unless only the body can tell.
func TestAPutThatIsRefusedChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.put("bkt", "k", "before")
	stored := len(w.kept)
	bad := errors.New("bad digest")
	for name, r := range map[string]struct {
		bucket string
		put    PutRequest
		want   error
		reads  bool // the body is read before it is refused
	}{
		"no bucket":        {"absent", PutRequest{Key: "k", Body: bodyOf("x")}, state.ErrNoBucket, false},
		"no key":           {"bkt", PutRequest{Body: bodyOf("x")}, state.ErrInvalid, false},
		"key too long":     {"bkt", PutRequest{Key: strings.Repeat("k", 1025), Body: bodyOf("x")}, state.ErrInvalid, false},
		"is there":         {"bkt", PutRequest{Key: "k", Body: bodyOf("x"), If: state.Condition{Absent: true}}, state.ErrPrecondition, false},
		"another one":      {"bkt", PutRequest{Key: "k", Body: bodyOf("x"), If: state.Condition{Match: []string{"other"}}}, state.ErrPrecondition, false},
		"check":            {"bkt", PutRequest{Key: "k", Body: Body{Reader: strings.NewReader("x"), Check: func(Sums) ([]state.Checksum, error) { return nil, bad }}}, bad, true},
		"body":             {"bkt", PutRequest{Key: "k", Body: Body{Reader: iotest.ErrReader(bad)}}, bad, false},
		"unknown checksum": {"bkt", PutRequest{Key: "k", Body: Body{Reader: strings.NewReader("x"), Sums: []string{"CRC16"}}}, state.ErrInvalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := w.objects.Put(t.Context(), w.account, r.bucket, r.put); !errors.Is(err, r.want) {
				t.Errorf("%v, want %v", err, r.want)
			}
			if r.reads {
				stored++
				w.told("false")
			}
			if len(w.kept) != stored {
				t.Errorf("%d bodies were stored, want %d", len(w.kept), stored)
			}
		})
	}
	if _, body := w.read("bkt", "k"); body != "before" {
		t.Errorf("the object holds %q", body)
	}
}

// A put with a condition that no longer holds when it is applied fails with ErrPrecondition.
func TestAConditionIsJudgedWhenItCounts(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.state.Before(func(cmd state.Command) {
		if _, ok := cmd.(*state.PutObject); ok { // somebody was faster, after this one had looked
			w.put("bkt", "k", "the other")
		}
	})
	_, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: "k", Body: bodyOf("mine"), If: state.Condition{Absent: true}})
	if !errors.Is(err, state.ErrPrecondition) {
		t.Errorf("%v", err)
	}
	w.state.Before(nil)
	if _, body := w.read("bkt", "k"); body != "the other" {
		t.Errorf("the object holds %q", body)
	}
}

// A put whose holders were fenced meanwhile renews them once and succeeds, and fails with ErrUnavailable if that
// happens every time.
func TestAPutRenewsHoldersThatWereFencedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	fenced := false
	w.state.Before(func(cmd state.Command) {
		if _, ok := cmd.(*state.PutObject); ok && !fenced { // the nodes began again meanwhile
			fenced = true
			w.epoch = 7
			for _, n := range []state.NodeID{self, second, third} {
				w.state.Apply(t, &state.Fence{Node: n, Epoch: 7})
			}
		}
	})
	w.put("bkt", "k", "hello")
	if w.kept[0].renewed != 1 {
		t.Errorf("renewed %d times", w.kept[0].renewed)
	}
	w.told("true")
	if _, body := w.read("bkt", "k"); body != "hello" {
		t.Errorf("%q", body)
	}
	// Who never can vouch for it is not asked for ever.
	w.state.Before(func(cmd state.Command) {
		if _, ok := cmd.(*state.PutObject); ok {
			w.epoch++
			for _, n := range []state.NodeID{self, second, third} {
				w.state.Apply(t, &state.Fence{Node: n, Epoch: w.epoch})
			}
		}
	})
	if _, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: "k2", Body: bodyOf("x")}); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	w.told("false")
}

// A put whose proposal has no answer fails with ErrUnavailable and reports an unknown outcome to the nodes.
func TestNobodyKnowsWhatBecameOfAPut(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.state.Before(func(cmd state.Command) {
		if _, ok := cmd.(*state.PutObject); ok {
			w.state.Fail(state.ErrUnavailable)
		}
	})
	w.objects.opts.State = failing{w.state}
	_, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: "k", Body: bodyOf("x")})
	if !errors.Is(err, state.ErrUnavailable) {
		t.Fatal(err)
	}
	w.told("unknown")
}

// failing loses every PutObject on its way.
type failing struct{ *clustertest.State }

func (f failing) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	if _, ok := cmd.(*state.PutObject); ok {
		return state.Result{}, state.ErrUnavailable
	}
	return f.State.Propose(ctx, cmd)
}

// A put whose bucket is deleted and created again meanwhile is in the new bucket.
func TestABucketThatWasMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	again := false
	w.state.Before(func(cmd state.Command) {
		if _, ok := cmd.(*state.PutObject); ok && !again {
			again = true
			if err := w.objects.DeleteBucket(t.Context(), w.account, "bkt"); err != nil {
				t.Fatal(err)
			}
			w.bucket("bkt")
		}
	})
	w.put("bkt", "k", "hello")
	if _, body := w.read("bkt", "k"); body != "hello" {
		t.Errorf("%q", body)
	}
	w.state.Before(nil)
	if err := w.objects.DeleteBucket(t.Context(), w.account, "bkt"); !errors.Is(err, state.ErrNotEmpty) {
		t.Error(err)
	}
}

// A copy stores no bytes, is of the source as it is when the copy is applied, and an error says whether it is about
// the source.
func TestCopies(t *testing.T) {
	w := newWorld(t)
	w.bucket("from")
	w.bucket("into")
	src, err := w.objects.Put(t.Context(), w.account, "from", PutRequest{Key: "k", Body: bodyOf("hello"), Attributes: Attributes{
		Headers: map[string]string{"Content-Type": "x/y"}, Tags: []state.Tag{{Key: "a", Value: "1"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	stored := len(w.kept)
	changed := false
	w.state.Before(func(cmd state.Command) {
		if _, ok := cmd.(*state.CopyObject); ok && !changed { // the source is replaced at that moment
			changed = true
			w.put("from", "k", "newer")
		}
	})
	got, err := w.objects.Copy(t.Context(), w.account, "into", CopyRequest{Key: "c", SourceBucket: "from", Source: "k", KeepTags: true})
	if err != nil || got.ETag != md5Of("newer") || got.ID == src.ID {
		t.Fatalf("%+v %v", got, err)
	}
	w.state.Before(nil)
	if len(w.kept) != stored+1 {
		t.Error("a copy stored bytes")
	}
	w.state.Before(func(cmd state.Command) {
		if _, ok := cmd.(*state.CopyObject); ok {
			w.put("from", "k", fmt.Sprint(w.objects.opts.NewID()))
		}
	})
	if got, err := w.objects.Copy(t.Context(), w.account, "into", CopyRequest{Key: "e", SourceBucket: "from", Source: "k"}); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("of a source that never stays: %+v, %v", got, err)
	}
	w.state.Before(nil)
	got, err = w.objects.Copy(t.Context(), w.account, "into", CopyRequest{
		Key: "d", SourceBucket: "from", Source: "k", Replace: &Attributes{Meta: map[string]string{"m": "1"}, Tags: []state.Tag{{Key: "b", Value: "2"}}},
	})
	if err != nil || got.Meta["m"] != "1" || len(got.Tags) != 1 || got.Tags[0].Key != "b" {
		t.Errorf("%+v %v", got, err)
	}
	refused := errors.New("not this one")
	for _, r := range []struct {
		copy     CopyRequest
		want     error
		ofSource bool
	}{
		{CopyRequest{Key: "x", SourceBucket: "from", Source: "absent"}, state.ErrNoKey, true},
		{CopyRequest{Key: "x", SourceBucket: "absent", Source: "k"}, state.ErrNoBucket, true},
		{CopyRequest{Key: "x", SourceBucket: "from", Source: "k", SourceVersion: "other"}, state.ErrNoVersion, true},
		{CopyRequest{Key: "x", SourceBucket: "from", Source: "k", SourceIf: func(*state.Object) error { return refused }}, refused, false},
		{CopyRequest{Key: "c", SourceBucket: "from", Source: "k", If: state.Condition{Absent: true}}, state.ErrPrecondition, false},
		{CopyRequest{Key: "x", SourceBucket: "from", Source: "k", If: state.Condition{Match: []string{"*"}}}, state.ErrNoKey, false},
		{CopyRequest{SourceBucket: "from", Source: "k"}, state.ErrInvalid, false},
	} {
		_, err := w.objects.Copy(t.Context(), w.account, "into", r.copy)
		if of := new(SourceError); !errors.Is(err, r.want) || errors.As(err, &of) != r.ofSource {
			t.Errorf("%+v: %v, want %v", r.copy, err, r.want)
		}
	}
	if _, err := w.objects.Copy(t.Context(), w.account, "absent", CopyRequest{Key: "x", SourceBucket: "from", Source: "k"}); !errors.Is(err, state.ErrNoBucket) || errors.As(err, new(*SourceError)) {
		t.Errorf("into a bucket that is not there: %v", err)
	}
	if _, err := w.objects.DeleteMany(t.Context(), w.account, "from", []Doomed{{Key: "k"}, {Key: "absent"}}); err != nil {
		t.Fatal(err)
	}
	if _, body := w.read("into", "c"); body != "newer" {
		t.Errorf("%q", body)
	}
}

// An upload gives an object of its listed parts, whose answer is the same when it is completed again; wrong parts are
// refused and nothing is seen before.
func TestUploads(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	ctx, a := t.Context(), w.account
	id, err := w.objects.CreateUpload(ctx, a, "bkt", UploadRequest{Key: "k", Algorithm: CRC32, Attributes: Attributes{Meta: map[string]string{"m": "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	crc := func(s Sums) ([]state.Checksum, error) {
		return []state.Checksum{{Algorithm: CRC32, Value: s.By[CRC32]}}, nil
	}
	part := func(n int, text string) state.Part {
		t.Helper()
		p, err := w.objects.PutPart(ctx, a, "bkt", PartRequest{Key: "k", Upload: id, Number: n, Body: Body{Reader: strings.NewReader(text), Size: int64(len(text)), Sums: []string{CRC32}, Check: crc}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first, last := strings.Repeat("a", 10), "end"
	part(3, "overwritten")
	p3, p1 := part(3, last), part(1, first)
	part(7, "not listed")
	for _, p := range w.places[1:] {
		if fmt.Sprint(p.Nodes) != fmt.Sprint(w.places[0].Nodes) {
			t.Error("parts are kept on other nodes each")
		}
	}
	if parts, more, err := w.objects.Parts(ctx, a, "bkt", "k", id, 0, 2); err != nil || len(parts) != 2 || !more || parts[1].ETag != md5Of(last) {
		t.Errorf("%+v %v %v", parts, more, err)
	}
	complete := func(parts ...CompletePart) (state.Object, error) {
		return w.objects.Complete(ctx, a, "bkt", CompleteRequest{Key: "k", Upload: id, Parts: parts})
	}
	for _, r := range []struct {
		parts []CompletePart
		want  error
	}{
		{[]CompletePart{{Number: 1, ETag: p1.ETag}, {Number: 2, ETag: p1.ETag}}, state.ErrInvalidPart},
		{[]CompletePart{{Number: 1, ETag: p3.ETag}}, state.ErrInvalidPart},
		{[]CompletePart{{Number: 1, ETag: p1.ETag, Checksums: map[string][]byte{CRC32: {1, 2, 3, 4}}}}, state.ErrInvalidPart},
		{[]CompletePart{{Number: 3, ETag: p3.ETag}, {Number: 7, ETag: md5Of("not listed")}}, state.ErrTooSmall},
		{nil, state.ErrInvalid},
	} {
		if _, err := complete(r.parts...); !errors.Is(err, r.want) {
			t.Errorf("%+v: %v, want %v", r.parts, err, r.want)
		}
	}
	if _, err := w.objects.Object(ctx, a, "bkt", "k", ""); !errors.Is(err, state.ErrNoKey) {
		t.Error("an upload that is not complete is seen:", err)
	}
	var made state.Object
	for i := range 2 { // a client that did not hear the answer asks again
		obj, err := complete(CompletePart{Number: 1, ETag: p1.ETag}, CompletePart{Number: 3, ETag: p3.ETag})
		if err != nil || i == 1 && obj.ID != made.ID {
			t.Fatalf("%+v %v", obj, err)
		}
		made = obj
	}
	h := NewHash(CRC32)
	io.WriteString(h, first+last)
	obj, body := w.read("bkt", "k")
	if body != first+last || !strings.HasSuffix(obj.ETag, "-2") || obj.Meta["m"] != "1" || len(obj.Checksums) != 1 || !bytes.Equal(obj.Checksums[0].Value, h.Sum(nil)) {
		t.Errorf("%+v %q", obj, body)
	}
	if _, err := w.objects.PutPart(ctx, a, "bkt", PartRequest{Key: "k", Upload: id, Number: 1, Body: bodyOf("x")}); !errors.Is(err, state.ErrNoUpload) {
		t.Error(err)
	}
}

// A part can be copied from a range of an object, its number is 1 to 10,000, and an upload that is too old by the
// agreed time is discarded.
func TestPartsOfObjectsAndOldUploads(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	ctx, a := t.Context(), w.account
	w.put("bkt", "k", "aaaaaaaaaaend")
	id, err := w.objects.CreateUpload(ctx, a, "bkt", UploadRequest{Key: "c"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.objects.CopyPart(ctx, a, "bkt", PartCopyRequest{
		Key: "c", Upload: id, Number: 1, SourceBucket: "bkt", Source: "k",
		Range: func(size uint64) (uint64, uint64, error) { return 5, size - 5, nil },
	})
	if err != nil || p.ETag != md5Of("aaaaaend") {
		t.Errorf("%+v %v", p, err)
	}
	for _, n := range []int{0, 10_001} {
		if _, err := w.objects.PutPart(ctx, a, "bkt", PartRequest{Key: "c", Upload: id, Number: n, Body: bodyOf("x")}); !errors.Is(err, state.ErrInvalid) {
			t.Error(err)
		}
	}
	if err := w.objects.Abort(ctx, a, "bkt", "other", id); !errors.Is(err, state.ErrNoUpload) {
		t.Error(err)
	}
	if err := w.objects.SweepUploads(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.objects.Upload(ctx, a, "bkt", "c", id); err != nil {
		t.Error("an upload that is young was discarded:", err)
	}
	w.agreed = w.now.Add(2 * time.Hour)
	if err := w.objects.SweepUploads(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.objects.Upload(ctx, a, "bkt", "c", id); !errors.Is(err, state.ErrNoUpload) {
		t.Error("an upload that is old was kept:", err)
	}
}

// A part that is a whole object refers to its content and moves no bytes, if the object has the hashes that a part
// needs. Otherwise its bytes are read.
func TestAPartOfAWholeObjectMovesNoBytes(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	ctx, a := t.Context(), w.account
	const text = "aaaaaaaaaaend"
	plain := w.put("bkt", "plain", text)
	_, err := w.objects.Put(ctx, a, "bkt", PutRequest{Key: "summed", Body: Body{
		Reader: strings.NewReader(text), Size: int64(len(text)), Sums: []string{CRC32},
		Check: func(s Sums) ([]state.Checksum, error) {
			return []state.Checksum{{Algorithm: CRC32, Value: s.By[CRC32]}}, nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(key, algorithm string) state.UploadID {
		t.Helper()
		id, err := w.objects.CreateUpload(ctx, a, "bkt", UploadRequest{Key: key, Algorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	joined := begin("joined", "")
	p, err := w.objects.PutPart(ctx, a, "bkt", PartRequest{Key: "joined", Upload: joined, Number: 1, Body: bodyOf(text)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.objects.Complete(ctx, a, "bkt", CompleteRequest{Key: "joined", Upload: joined, Parts: []CompletePart{{Number: 1, ETag: p.ETag}}}); err != nil {
		t.Fatal(err)
	}
	all := func(size uint64) (uint64, uint64, error) { return 0, size, nil }
	h := NewHash(CRC32)
	io.WriteString(h, text)
	for _, tc := range []struct {
		name, source, algorithm string
		of                      func(uint64) (uint64, uint64, error)
		want                    string
		moves                   bool
	}{
		{"without range", "plain", "", nil, text, false},
		{"with a range of all", "plain", "", all, text, false},
		{"with a range", "plain", "", func(size uint64) (uint64, uint64, error) { return 0, size - 1, nil }, text[:len(text)-1], true},
		{"with a checksum that the source has", "summed", CRC32, nil, text, false},
		{"with a checksum that it does not have", "plain", CRC32, nil, text, true},
		{"of an object of parts", "joined", "", nil, text, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id := begin("c", tc.algorithm)
			stored := len(w.kept)
			p, err := w.objects.CopyPart(ctx, a, "bkt", PartCopyRequest{
				Key: "c", Upload: id, Number: 2, SourceBucket: "bkt", Source: tc.source, Range: tc.of,
			})
			if err != nil || p.ETag != md5Of(tc.want) || p.Size != uint64(len(tc.want)) {
				t.Fatalf("%+v, %v", p, err)
			}
			if moved := len(w.kept) > stored; moved != tc.moves {
				t.Errorf("bytes were moved: %v", moved)
			}
			if !tc.moves && p.Root != plain.Root {
				t.Errorf("it names %s", p.Root)
			}
			if sum := checksum(p.Checksums, CRC32); (tc.algorithm != "") != bytes.Equal(sum, h.Sum(nil)) {
				t.Errorf("its CRC32 is %x", sum)
			}
			parts, _, err := w.objects.Parts(ctx, a, "bkt", "c", id, 0, 10)
			if err != nil || len(parts) != 1 || parts[0].ID != p.ID || parts[0].Number != 2 {
				t.Errorf("%+v, %v", parts, err)
			}
			if _, err := w.objects.Complete(ctx, a, "bkt", CompleteRequest{Key: "c", Upload: id, Parts: []CompletePart{{Number: 2, ETag: p.ETag}}}); err != nil {
				t.Fatal(err)
			}
			obj, body := w.read("bkt", "c")
			if body != tc.want || hex.EncodeToString(obj.Blake3) != blake3Of(tc.want) {
				t.Errorf("%q with the hash %x", body, obj.Blake3)
			}
		})
	}
}

// A put may replace an object if the net change fits the quota, and a body that cannot fit is refused before it is
// read if its length is known.
func TestAnAccountPaysForTheNetChange(t *testing.T) {
	w := newWorld(t)
	w.state.Apply(t, &state.SetQuota{Account: w.account, Allowance: 100})
	w.bucket("bkt")
	w.put("bkt", "k", strings.Repeat("a", 80))
	stored := len(w.kept)
	if _, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: "other", Body: bodyOf(strings.Repeat("b", 30))}); !errors.Is(err, state.ErrQuota) {
		t.Error(err)
	}
	if len(w.kept) != stored {
		t.Error("a body was read that has no room")
	}
	unknown := Body{Reader: strings.NewReader(strings.Repeat("b", 30)), Size: -1}
	if _, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: "other", Body: unknown}); !errors.Is(err, state.ErrQuota) {
		t.Error(err)
	}
	w.told("false")
	w.put("bkt", "k", strings.Repeat("c", 90))
	if _, err := w.objects.Delete(t.Context(), w.account, "bkt", "k", "", state.Condition{}); err != nil {
		t.Fatal(err)
	}
	w.put("bkt", "other", strings.Repeat("b", 100))
}

// A node that is full keeps no content of a put, and a put fails with ErrNoSpace if too few nodes have room.
func TestANodeWithoutRoomKeepsNothing(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.nodes[0].Full = true
	w.put("bkt", "k", "x")
	if p := w.places[len(w.places)-1]; slices.Contains(p.Nodes, self) || len(p.Nodes) != 2 {
		t.Errorf("placed %+v", p)
	}
	w.nodes[1].Full = true
	if _, err := w.objects.Put(t.Context(), w.account, "bkt", PutRequest{Key: "k", Body: bodyOf("y")}); !errors.Is(err, state.ErrNoSpace) {
		t.Error(err)
	}
}

// A read needs no majority if this node has applied the entry that the caller has seen.
func TestAReadAsksTheClusterOnlyIfItHasTo(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.put("bkt", "k", "x")
	view, release := w.state.LocalView()
	index := view.Index()
	release()
	w.state.Fail(state.ErrUnavailable)
	for seen, want := range map[uint64]error{0: state.ErrUnavailable, index: nil, index + 1: state.ErrUnavailable} {
		if _, err := w.objects.Object(Seen(t.Context(), seen), w.account, "bkt", "k", ""); !errors.Is(err, want) {
			t.Errorf("having seen %d of %d: %v, want %v", seen, index, err, want)
		}
	}
}

// Puts, reads, copies, lists, uploads, deletions, tags and versioning answer another account with ErrNoBucket for
// this account's bucket, and change nothing.
func TestNothingCrossesAccounts(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	w.put("bkt", "k", "mine")
	const other state.AccountID = "other"
	ctx := t.Context()
	_, put := w.objects.Put(ctx, other, "bkt", PutRequest{Key: "k", Body: bodyOf("theirs")})
	_, got := w.objects.Object(ctx, other, "bkt", "k", "")
	_, copied := w.objects.Copy(ctx, other, "bkt", CopyRequest{Key: "x", SourceBucket: "bkt", Source: "k"})
	_, listed := w.objects.List(ctx, other, "bkt", state.ObjectsQuery{Limit: 10})
	_, upload := w.objects.CreateUpload(ctx, other, "bkt", UploadRequest{Key: "k"})
	_, dropped := w.objects.Delete(ctx, other, "bkt", "k", "", state.Condition{})
	_, versions := w.objects.Versions(ctx, other, "bkt", state.VersionsQuery{Limit: 10})
	for i, err := range []error{
		put, got, copied, listed, upload, dropped, w.objects.SetTags(ctx, other, "bkt", "k", "", nil),
		versions, w.objects.SetVersioning(ctx, other, "bkt", state.Versioned),
		w.objects.DeleteBucket(ctx, other, "bkt"), w.objects.Abort(ctx, other, "bkt", "k", "id"),
	} {
		if !errors.Is(err, state.ErrNoBucket) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, body := w.read("bkt", "k"); body != "mine" {
		t.Errorf("%q", body)
	}
}
