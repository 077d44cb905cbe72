package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// fakeNode is an operator API in memory. What it lacks fails the call.
type fakeNode struct {
	operator

	status  client.Status
	pins    []client.PinStatus // newest first
	filters []client.PinFilter // of the lists of pins that were asked for
	files   map[string]fakeFile
	keys    []client.NewKey // asked for
	shares  []client.ShareRow

	readers []string        // of files: the users
	imports []client.Import // of files and folders

	tickets []error  // errors of the next calls of CreateTicket
	changes []string // that were asked for
	counts  int      // of what a removal takes away

	drainLooks int

	quorum    client.Quorum
	quorumErr error
}

// fakeFile breaks off with err after data.
type fakeFile struct {
	data   string
	err    error
	folder bool // data is a tar stream
}

var errNotFound = errors.New("not found")

func (f *fakeNode) Status(context.Context) (client.Status, error) { return f.status, nil }
func (f *fakeNode) Peers(context.Context) ([]client.Peer, error)  { return f.status.Peers, nil }
func (f *fakeNode) SetDisabled(_ context.Context, email string, on bool) error {
	f.changes = append(f.changes, fmt.Sprint("disable ", email, " ", on))
	return nil
}

func (f *fakeNode) Users(context.Context) ([]client.User, error) { return nil, nil }

func (f *fakeNode) Quorum(context.Context) (client.Quorum, error) {
	q := f.quorum
	q.Writable = q.Why == ""
	return q, f.quorumErr
}

func (f *fakeNode) Leaving(_ context.Context, node string, count bool) (client.Leaving, error) {
	if count {
		f.counts++
	}
	for _, p := range f.status.Peers {
		if p.ID == node || p.Name == node {
			return client.Leaving{Peer: p, Leader: p.ID == f.status.Leader, Roots: 1100, Sole: 2, Votes: 2, Answering: 1}, nil
		}
	}
	return client.Leaving{}, errNotFound
}

func (f *fakeNode) RemovePeer(_ context.Context, node string, force bool) error {
	f.changes = append(f.changes, fmt.Sprint("peer ", node, " ", force))
	return nil
}

// DrainPlan says that each look finds 600 roots fewer than the one before.
func (f *fakeNode) DrainPlan(_ context.Context, node string) (client.DrainPlan, error) {
	for _, p := range f.status.Peers {
		if p.ID == node || p.Name == node {
			left := uint64(max(0, 1100-600*f.drainLooks))
			if f.drainLooks++; f.drainLooks > 1 {
				bytes, rate, bytesRate, seconds := uint64(5<<20), 600.0, 60.0*(1<<20), int64(50)
				p.Drain = &client.Drain{RootsLeft: left, BytesLeft: &bytes, RootsPerMinute: &rate, BytesPerMinute: &bytesRate, SecondsLeft: &seconds}
			}
			return client.DrainPlan{Peer: p, Roots: left, Others: 2, OthersFree: 7 << 30, Copies: 3, CopiesThen: 2, Tight: true}, nil
		}
	}
	return client.DrainPlan{}, errNotFound
}

func (f *fakeNode) DrainPeer(_ context.Context, node string, on bool) error {
	f.changes = append(f.changes, fmt.Sprint("drain ", node, " ", on))
	return nil
}

func (f *fakeNode) User(_ context.Context, who string) (client.UserDetail, error) {
	allowance := uint64(7 << 30)
	u := client.UserDetail{User: client.User{ID: "id-of-a", Email: who, StoredBytes: 5 << 20, AllowanceBytes: &allowance, Credits: 1100}, Buckets: 1, Objects: 12, Versions: 30, Keys: 2}
	u.Pins.Pinned, u.Pins.Failed = 1099, 1
	return u, nil
}

// Key has two. To list all keys fails: nothing that is about one of them reads the others.
func (f *fakeNode) Key(_ context.Context, jti string) (client.KeyRow, bool, error) {
	keys := map[string]client.KeyRow{"k0": {ID: "k0"}, "k1": {ID: "k1", User: "a@b", Name: "lap\x1btop", Scope: "storage:read"}}
	key, found := keys[jti]
	return key, found, nil
}

func (f *fakeNode) AddApp(_ context.Context, v client.NewApp) (client.App, error) {
	f.changes = append(f.changes, fmt.Sprintf("add app %s %q %q", v.Name, v.Redirects, v.Scopes))
	return client.App{Name: v.Name, Redirects: v.Redirects}, nil
}

func (f *fakeNode) Shares(context.Context) ([]client.ShareRow, error) { return f.shares, nil }

func (f *fakeNode) Apps(context.Context) ([]client.App, error) {
	return []client.App{{Name: "photos", Redirects: []string{"https://photos.example/done"}, Scope: "storage:read", Created: "2026-01-02T03:04:05Z"}}, nil
}

func (f *fakeNode) RemoveApp(_ context.Context, name string) error {
	f.changes = append(f.changes, "remove app "+name)
	return nil
}

func (f *fakeNode) CreateUserLink(_ context.Context, email string) (client.Link, error) {
	f.changes = append(f.changes, "link "+email)
	return client.Link{URL: "https://console.example.org/link?t=hfo_x", Purpose: "password", Email: email, Expires: "2026-01-02T03:04:05Z"}, nil
}

func (f *fakeNode) CreateConsoleLink(context.Context) (client.Link, error) {
	f.changes = append(f.changes, "console link")
	return client.Link{URL: "http://127.0.0.1:9001/link?t=hfo_y", Purpose: "session", Email: "operator@localhost"}, nil
}

func (f *fakeNode) Links(context.Context) ([]client.OpenLink, error) {
	return []client.OpenLink{{ID: "l-1", Purpose: "invitation", Email: "ann@example.org", Expires: "2026-01-02T03:04:05Z"}}, nil
}

func (f *fakeNode) RevokeLink(_ context.Context, id string) error {
	f.changes = append(f.changes, "revoke link "+id)
	return nil
}

func (f *fakeNode) RevokeKey(_ context.Context, jti string) error {
	f.changes = append(f.changes, "revoke "+jti)
	return nil
}

func (f *fakeNode) RemovePin(_ context.Context, user, id string) error {
	f.changes = append(f.changes, "unpin "+user+" "+id)
	return nil
}

func (f *fakeNode) CreateTicket(_ context.Context, ttl time.Duration) (string, error) {
	if len(f.tickets) > 0 {
		err := f.tickets[0]
		f.tickets = f.tickets[1:]
		return "", err
	}
	return "ticket-" + ttl.String(), nil
}

func (f *fakeNode) CreateUser(_ context.Context, email, password string) (client.User, error) {
	return client.User{Email: email + password}, nil
}

func (f *fakeNode) RemoveUser(_ context.Context, email string) error {
	f.changes = append(f.changes, "rm "+email)
	return nil
}

func (f *fakeNode) SetPassword(_ context.Context, email, password string) error {
	f.changes = append(f.changes, "passwd "+email+" "+password)
	return nil
}

func (f *fakeNode) SetQuota(_ context.Context, email string, bytes uint64) error {
	f.changes = append(f.changes, fmt.Sprint("quota ", email, " ", bytes))
	return nil
}

func (f *fakeNode) Post(_ context.Context, email string, p client.NewCredits) (client.Posting, error) {
	f.changes = append(f.changes, strings.Join(strings.Fields(fmt.Sprint(p.Kind, " ", email, " ", p.Posting, " ", p.Credits, " ", p.Corrects, " ", p.Note)), " "))
	return client.Posting{}, nil
}

func (f *fakeNode) Ledger(context.Context, string, url.Values) (client.LedgerPage, error) {
	return client.LedgerPage{}, nil
}

func (f *fakeNode) CreateKey(_ context.Context, k client.NewKey) (client.Key, error) {
	f.keys = append(f.keys, k)
	return client.Key{ID: "k1", Token: "a.b.c", Scope: strings.Join(k.Scopes, " ")}, nil
}

func (f *fakeNode) Pins(_ context.Context, _ string, filter client.PinFilter) iter.Seq2[client.PinStatus, error] {
	f.filters = append(f.filters, filter)
	return func(yield func(client.PinStatus, error) bool) {
		for _, p := range f.pins {
			if len(filter.Statuses) > 0 && !slices.Contains(filter.Statuses, p.Status) {
				continue
			}
			if !yield(p, nil) {
				return
			}
		}
	}
}

func (f *fakeNode) Pin(_ context.Context, _, id string) (client.PinStatus, error) {
	for _, p := range f.pins {
		if p.RequestID == id {
			return p, nil
		}
	}
	return client.PinStatus{}, errNotFound
}

// AddPin pins what is there and fails the rest.
func (f *fakeNode) AddPin(_ context.Context, _ string, p client.Pin) (client.PinStatus, error) {
	s := client.PinStatus{RequestID: "r" + p.CID, Status: "queued", Pin: p}
	done := s
	if done.Status = "pinned"; f.files[p.CID].data == "" {
		done.Status, done.Info = "failed", map[string]string{"status_details": "nobody has it"}
	}
	f.pins = append([]client.PinStatus{done}, f.pins...)
	return s, nil
}

func (f *fakeNode) WaitPin(ctx context.Context, user, id string, seen func(client.PinStatus)) (client.PinStatus, error) {
	p, err := f.Pin(ctx, user, id)
	seen(p)
	return p, err
}

func (f *fakeNode) AddContent(_ context.Context, r io.Reader) (client.Content, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return client.Content{}, err
	}
	f.files["bafyadded"] = fakeFile{data: string(data)}
	return client.Content{CID: "bafyadded", Size: uint64(len(data))}, nil
}

// Import remembers the bytes and how they were to be imported.
func (f *fakeNode) Import(ctx context.Context, r io.Reader, how client.Import) (client.Content, error) {
	f.imports = append(f.imports, how)
	added, err := f.AddContent(ctx, r)
	if how.Entries {
		added.Entries = []client.ContentEntry{{Name: "a", CID: "bafya"}, {Name: "b", CID: "bafyb"}}
	}
	return added, err
}

// OpenFileOrFolder returns a folder if the file is one.
func (f *fakeNode) OpenFileOrFolder(ctx context.Context, user, cid string) (client.Opened, error) {
	body, size, err := f.OpenContent(ctx, user, cid)
	return client.Opened{Body: body, Size: size, Folder: f.files[cid].folder}, err
}

func (f *fakeNode) OpenContent(_ context.Context, user, cid string) (io.ReadCloser, int64, error) {
	f.readers = append(f.readers, user)
	file, ok := f.files[cid]
	if !ok {
		return nil, 0, errNotFound
	}
	r := io.Reader(strings.NewReader(file.data))
	if file.err != nil {
		r = io.MultiReader(r, broken{file.err})
	}
	return io.NopCloser(r), int64(len(file.data)), nil
}

// broken is a reader that only fails.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// outcome is what a call of the program left.
type outcome struct {
	code        int
	out, errOut string
}

// written is what a call of the program writes.
type written struct{ out, errs bytes.Buffer }

func testApp(t *testing.T, node operator, stdin string) (*app, *written) {
	t.Helper()
	w := new(written)
	return &app{
		version: "v1.2.3", environ: []string{"HOLDFAST_DATA=" + t.TempDir()},
		stdin: strings.NewReader(stdin), stdout: &w.out, stderr: &w.errs,
		connect: func(string) operator { return node },
	}, w
}

// call runs the program against node.
func call(t *testing.T, node operator, stdin string, args ...string) outcome {
	t.Helper()
	a, w := testApp(t, node, stdin)
	code := a.execute(t.Context(), args)
	return outcome{code, w.out.String(), w.errs.String()}
}

// absent is the API of a data folder that does not exist.
type absent struct{ operator }

func (absent) Pins(context.Context, string, client.PinFilter) iter.Seq2[client.PinStatus, error] {
	return func(yield func(client.PinStatus, error) bool) {
		yield(client.PinStatus{}, fmt.Errorf("%w: /x", client.ErrNoFolder))
	}
}
