package uploads

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

const allowance = 1000

var roots = []cid.Cid{
	cid.MustParse("bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"),
	cid.MustParse(anyCID),
}

// fake stores nothing, and creates pins as it is told.
type fake struct {
	t       *testing.T
	paths   []string
	running atomic.Int32
	most    int32         // uploads at a time
	hold    chan struct{} // uploads wait for it; nil: they do not
	created []pins.Request
	deleted []state.RequestID
	fail    func(root string) error
}

func (f *fake) read(r io.Reader) (uint64, error) {
	n := f.running.Add(1)
	defer f.running.Add(-1)
	f.most = max(f.most, n)
	if f.hold != nil {
		<-f.hold
	}
	got, err := io.Copy(io.Discard, r)
	return uint64(got), err
}

func (f *fake) AddPinned(_ context.Context, r io.Reader, _ content.Layout, pin content.Pin) (content.Imported, error) {
	n, err := f.read(r)
	if err == nil {
		err = pin(roots[:1], n)
	}
	return content.Imported{Root: roots[0], Size: n}, err
}

func (f *fake) AddFolderPinned(ctx context.Context, r io.Reader, as content.Layout, pin content.Pin) (content.Imported, error) {
	return f.AddPinned(ctx, r, as, pin)
}

func (f *fake) AddFilesPinned(_ context.Context, next content.NextFile, _ content.Layout, pin content.Pin) (content.Imported, error) {
	var size uint64
	for {
		path, r, err := next()
		if errors.Is(err, io.EOF) {
			return content.Imported{Root: roots[0], Size: size}, pin(roots[:1], size)
		}
		if err != nil {
			return content.Imported{}, err
		}
		f.paths = append(f.paths, path)
		n, err := f.read(r)
		if size += n; err != nil {
			return content.Imported{}, err
		}
	}
}

func (f *fake) ImportCARPinned(_ context.Context, r io.Reader, pin content.Pin) (content.CAR, error) {
	n, err := f.read(r)
	if err == nil {
		err = pin(roots, n)
	}
	return content.CAR{Roots: roots, Bytes: n}, err
}

func (f *fake) Create(_ context.Context, account state.AccountID, r pins.Request) (pins.Record, error) {
	if account != "alice" {
		f.t.Errorf("a pin of %q", account)
	}
	if f.fail != nil {
		if err := f.fail(r.CID); err != nil {
			return pins.Record{}, err
		}
	}
	f.created = append(f.created, r)
	var record pins.Record
	record.ID = state.RequestID(fmt.Sprintf("pin%d", len(f.created)))
	return record, nil
}

func (f *fake) Get(_ context.Context, _ state.AccountID, id state.RequestID) (pins.Record, error) {
	if slices.Contains(f.deleted, id) {
		return pins.Record{}, state.ErrNotFound
	}
	return pins.Record{}, nil
}

func (f *fake) Delete(_ context.Context, _ state.AccountID, id state.RequestID) error {
	f.deleted = append(f.deleted, id)
	return nil
}

func newUploads(t *testing.T) (*Uploads, *fake, *clustertest.State) {
	t.Helper()
	st := clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1")})
	st.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel}, &state.OpenAccount{Account: state.Account{ID: "alice", Email: "alice@example.org"}, Allowance: allowance})
	f := &fake{t: t}
	return New(st, f, f), f, st
}

// hold has the node report that it holds a pinned root of size bytes.
func hold(t *testing.T, st *clustertest.State, c cid.Cid, size uint64) {
	t.Helper()
	view, release := st.LocalView()
	defer release()
	root, err := view.Root(state.RootOf(c))
	if err != nil {
		t.Fatal(err)
	}
	st.Apply(t, &state.ReportCopies{Node: "n1", Items: []state.CopyReport{{Root: root.Key, Born: root.Born, Phase: state.Held, Size: size, Blocks: 1}}})
}

// files returns files with these paths, each of one byte.
func files(paths ...string) content.NextFile {
	return func() (string, io.Reader, error) {
		if len(paths) == 0 {
			return "", nil, io.EOF
		}
		path := paths[0]
		paths = paths[1:]
		return path, strings.NewReader("x"), nil
	}
}

// An upload of files is pinned under the name in the request, or else under that of the only file or folder, if a pin may
// have this name.
func TestAPinGetsTheNameOfWhatIsAlone(t *testing.T) {
	long := strings.Repeat("n", state.MaxNameRunes+1)
	for _, tc := range []struct {
		asked string
		paths []string
		want  string
	}{
		{"", []string{"notes.txt"}, "notes.txt"},
		{"", []string{"trip/a.jpg", "trip/b/c.jpg"}, "trip"},
		{"", []string{"a", "b"}, ""},
		{"", []string{"trip/a.jpg", "b"}, ""},
		{"mine", []string{"trip/a.jpg"}, "mine"},
		{"", []string{long}, ""},
	} {
		u, f, _ := newUploads(t)
		done, err := u.Files(t.Context(), Request{Account: "alice", Pin: pins.Request{Name: tc.asked}}, files(tc.paths...))
		if err != nil || done.Size != uint64(len(tc.paths)) || len(done.Pins) != 1 || len(f.created) != 1 {
			t.Fatalf("%q: %+v, %v", tc.paths, done, err)
		}
		if got := f.created[0]; got.Name != tc.want || got.CID != roots[0].String() || (got.Given&state.GivenName != 0) != (tc.want != "" && tc.asked == "") {
			t.Errorf("%q named %q: the pin is %+v", tc.paths, tc.asked, got)
		}
	}
}

// An upload without a file, with a bad name or for nobody is refused, and so is one with more bytes than the account may
// store, whatever its form. With credits an account may store more. The body is not read for a bad request.
func TestUploadsThatCannotBePinnedAreRefused(t *testing.T) {
	u, f, st := newUploads(t)
	r := Request{Account: "alice"}
	if _, err := u.Files(t.Context(), r, files()); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("without a file: %v", err)
	}
	bad := Request{Account: "alice", Pin: pins.Request{Name: strings.Repeat("n", state.MaxNameRunes+1)}}
	if _, err := u.File(t.Context(), bad, nil); !errors.Is(err, state.ErrInvalid) { // reading would panic
		t.Errorf("a bad name: %v", err)
	}
	large := strings.Repeat("x", allowance+1)
	if _, err := u.File(t.Context(), r, strings.NewReader(large)); !errors.Is(err, state.ErrQuota) {
		t.Errorf("a large file: %v", err)
	}
	if _, err := u.CAR(t.Context(), r, strings.NewReader(large)); !errors.Is(err, state.ErrQuota) {
		t.Errorf("a large CAR: %v", err)
	}
	paths := slices.Repeat([]string{"f"}, allowance+1)
	if _, err := u.Files(t.Context(), r, files(paths...)); !errors.Is(err, state.ErrQuota) {
		t.Errorf("many files: %v", err)
	}
	if len(f.created) > 0 {
		t.Errorf("pins: %+v", f.created)
	}
	if done, err := u.File(t.Context(), r, strings.NewReader(large[1:])); err != nil || done.Size != allowance {
		t.Errorf("what just fits: %+v, %v", done, err)
	}
	st.Apply(t, &state.CreatePin{Pin: state.Pin{ID: "1", Account: "alice", Created: 1, CID: roots[1].String()}, Nodes: []state.NodeID{"n1"}})
	hold(t, st, roots[1], allowance/2)
	if _, err := u.File(t.Context(), r, strings.NewReader(large[1:])); !errors.Is(err, state.ErrQuota) {
		t.Errorf("what does not fit beside a pin: %v", err)
	}
	if done, err := u.CAR(t.Context(), r, strings.NewReader(large[1:])); err != nil || len(done.Pins) != 2 {
		t.Errorf("what the account has already: %+v, %v", done, err)
	}
	st.Apply(t, &state.PostCredits{Posting: state.Posting{ID: "p", Account: "alice", Kind: state.Grant, Credits: 5}})
	if done, err := u.File(t.Context(), r, strings.NewReader(large)); err != nil || done.Size != allowance+1 {
		t.Errorf("with credits: %+v, %v", done, err)
	}
}

// If one root of a CAR cannot be pinned, none of its roots stays pinned.
func TestAllRootsOfACARArePinnedOrNone(t *testing.T) {
	u, f, _ := newUploads(t)
	f.fail = func(root string) error {
		if root == roots[1].String() {
			return state.ErrUnavailable
		}
		return nil
	}
	if done, err := u.CAR(t.Context(), Request{Account: "alice"}, strings.NewReader("x")); !errors.Is(err, state.ErrUnavailable) || len(done.Pins) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if len(f.created) != 1 || !slices.Equal(f.deleted, []state.RequestID{"pin1"}) {
		t.Errorf("created %+v and deleted %q", f.created, f.deleted)
	}
	f.fail = nil
	if done, err := u.CAR(t.Context(), Request{Account: "alice"}, strings.NewReader("x")); err != nil || len(done.Pins) != 2 || done.Size != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

// An account stores a few uploads at a time; more wait, up to a bound in number and time, and a caller that goes away
// waits no longer. Meanwhile another account stores its own.
func TestUploadsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, f, _ := newUploads(t)
		f.hold = make(chan struct{})
		done := make(chan error, 2*mostWaiting)
		send := func(ctx context.Context) {
			go func() {
				_, err := u.File(ctx, Request{Account: "alice"}, strings.NewReader("x"))
				done <- err
			}()
		}
		for range mostOfAccount + mostWaiting {
			send(t.Context())
		}
		synctest.Wait()
		if n := f.running.Load(); n != mostOfAccount {
			t.Errorf("%d uploads run", n)
		}
		send(t.Context())
		if err := <-done; !errors.Is(err, state.ErrLimited) {
			t.Errorf("one too many: %v", err)
		}
		if leave, err := u.enter(t.Context(), "bob"); err != nil {
			t.Errorf("another account: %v", err)
		} else {
			leave()
		}
		for range mostWaiting { // after queueTimeout
			if err := <-done; !errors.Is(err, state.ErrLimited) {
				t.Errorf("one that waited long: %v", err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		send(ctx)
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("one that was cancelled: %v", err)
		}
		send(t.Context())
		synctest.Wait()
		close(f.hold)
		for range mostOfAccount + 1 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if len(u.accounts) > 0 || f.most > mostOfAccount {
			t.Errorf("%d accounts remain, %d uploads ran at a time", len(u.accounts), f.most)
		}
	})
}
