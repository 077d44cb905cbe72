package webapi

import (
	"cmp"
	"context"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/uploads"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// fake are use cases that all end in one error, for an administrator's session unless told
// otherwise.
type fake struct {
	err, refused error
	who          accounts.Principal
}

func (f *fake) Authenticate(context.Context, string) (accounts.Principal, error) {
	return f.who, f.refused
}
func (f *fake) SignOut(context.Context, string) error { return f.err }
func (f *fake) CheckPassword(context.Context, string, string, netip.Addr) error {
	return f.err
}

func (f *fake) Ways(context.Context, state.AccountID) (accounts.Ways, error) {
	return accounts.Ways{Password: true}, nil
}

func (f *fake) CreateKey(context.Context, string, string, []string, time.Duration) (accounts.Key, error) {
	return accounts.Key{}, f.err
}
func (f *fake) Keys(context.Context, string) ([]accounts.Key, error) { return nil, f.err }
func (f *fake) Key(context.Context, state.KeyID) (accounts.Key, error) {
	return accounts.Key{Email: f.who.Email, Scope: state.ScopeRead}, f.err
}

func (f *fake) Show(context.Context, state.KeyID) (accounts.Key, error) {
	return accounts.Key{}, f.err
}
func (f *fake) Revoke(context.Context, state.KeyID) error { return f.err }
func (f *fake) AuthenticateS3(context.Context, string) (accounts.Principal, error) {
	return f.who, f.refused
}

func (f *fake) CreateShare(context.Context, state.AccountID, accounts.ShareRequest) (accounts.Share, error) {
	return accounts.Share{}, f.err
}

func (f *fake) Shares(context.Context, state.AccountID, string, state.SharePlace, int) (accounts.SharePage, error) {
	return accounts.SharePage{}, f.err
}

func (f *fake) RevokeShare(context.Context, state.AccountID, string, state.ShareID) error {
	return f.err
}

func (f *fake) Holdings(context.Context, string) (accounts.Holdings, error) {
	return accounts.Holdings{}, f.err
}
func (f *fake) Links(context.Context) ([]accounts.OpenLink, error) { return nil, f.err }
func (f *fake) RevokeLink(context.Context, state.LinkID) error     { return f.err }

func (f *fake) Page(context.Context, accounts.UserQuery) (accounts.UserPage, error) {
	return accounts.UserPage{}, f.err
}

func (f *fake) CreateAccount(context.Context, string, string) (accounts.User, error) {
	return accounts.User{}, f.err
}
func (f *fake) SetAllowance(context.Context, string, uint64) error { return f.err }
func (f *fake) SetDisabled(context.Context, string, bool) error    { return f.err }
func (f *fake) SetAdmin(context.Context, string, bool) error       { return f.err }
func (f *fake) RemoveAccount(context.Context, string) error        { return f.err }
func (f *fake) Status(context.Context) (members.Status, error)     { return members.Status{}, f.err }
func (f *fake) Quorum() members.Quorum                             { return members.Quorum{} }
func (f *fake) Ready(context.Context) error                        { return f.err }

// fakePins are those of a fake.
type fakePins struct{ *fake }

func (f fakePins) Create(context.Context, state.AccountID, pins.Request) (pins.Record, error) {
	return pins.Record{}, f.err
}

func (f fakePins) Get(context.Context, state.AccountID, state.RequestID) (pins.Record, error) {
	return pins.Record{}, f.err
}

func (f fakePins) List(context.Context, state.AccountID, state.PinQuery) (uint64, []pins.Record, error) {
	return 0, nil, f.err
}
func (f fakePins) Delete(context.Context, state.AccountID, state.RequestID) error { return f.err }

// fakeUploads are those of a fake. They read the body first.
type fakeUploads struct{ *fake }

func (f fakeUploads) File(_ context.Context, _ uploads.Request, body io.Reader) (uploads.Result, error) {
	_, err := io.Copy(io.Discard, body)
	return uploads.Result{Pins: make([]pins.Record, 1)}, cmp.Or(err, f.err)
}

func (f fakeUploads) Folder(ctx context.Context, r uploads.Request, body io.Reader) (uploads.Result, error) {
	return f.File(ctx, r, body)
}

func (f fakeUploads) Files(context.Context, uploads.Request, content.NextFile) (uploads.Result, error) {
	return uploads.Result{Pins: make([]pins.Record, 1)}, f.err
}

func (f fakeUploads) CAR(ctx context.Context, r uploads.Request, body io.Reader) (uploads.Result, error) {
	return f.File(ctx, r, body)
}

// fakeContent is that of a fake: a file.
type fakeContent struct{ *fake }

func (f fakeContent) OpenFor(context.Context, state.AccountID, string) (io.ReadSeekCloser, uint64, error) {
	file, err := fakeObjects(f).Open(context.Background(), "", nil)
	return file, 4, err
}

func (f fakeContent) OpenFolderFor(context.Context, state.AccountID, string) (content.Folder, error) {
	return nil, f.err
}

func (f fakeContent) ExportCARFor(context.Context, io.Writer, state.AccountID, string) error {
	return f.err
}

// fakeAudit is that of a fake.
type fakeAudit struct{ *fake }

func (f fakeAudit) List(context.Context, audit.Query) (audit.Page, error) {
	return audit.Page{Next: 7, Rows: []state.AuditEntry{{AuditRow: state.AuditRow{Seq: 7, Action: state.ActionKeyShow, Count: 1}}}}, f.err
}

func (f fakeAudit) Verify(context.Context) (audit.Verification, error) {
	return audit.Verification{First: 1, Last: 7, Count: 4, Broken: 5, Reason: "it is missing"}, f.err
}

// fakeLedger is that of a fake.
type fakeLedger struct{ *fake }

func (f fakeLedger) Post(context.Context, string, credits.Request) (state.Posting, error) {
	return state.Posting{ID: "g", Kind: state.Correction, Credits: 3, Takes: true, Corrects: "f", Note: "n", Made: 7, Seq: 8, Balance: 9}, f.err
}

func (f fakeLedger) List(context.Context, string, uint64, int) (credits.Page, error) {
	return credits.Page{Next: 7, Balance: 9, Rows: []state.Posting{{ID: "g", Kind: state.Grant, Credits: 9, Made: 7, Seq: 7, Balance: 9}}}, f.err
}

func (f fakeLedger) ContentEnds(state.AccountID) (time.Time, bool, error) {
	return time.UnixMilli(7), true, nil
}

// fakeObjects are those of a fake.
type fakeObjects struct{ *fake }

func (f fakeObjects) Buckets(context.Context, state.AccountID) ([]state.Bucket, error) {
	return nil, f.err
}

func (f fakeObjects) Bucket(context.Context, state.AccountID, string) (state.Bucket, error) {
	return state.Bucket{}, f.err
}

func (f fakeObjects) CreateBucket(context.Context, state.AccountID, string, bool) error {
	return f.err
}
func (f fakeObjects) DeleteBucket(context.Context, state.AccountID, string) error { return f.err }
func (f fakeObjects) List(context.Context, state.AccountID, string, state.ObjectsQuery) (state.ObjectsPage, error) {
	return state.ObjectsPage{}, f.err
}

func (f fakeObjects) Object(context.Context, state.AccountID, string, string, state.VersionID) (state.Object, error) {
	return state.Object{Key: "cat.txt", ETag: "e", Size: 4}, f.err
}

func (f fakeObjects) Open(context.Context, state.AccountID, *state.Object) (io.ReadSeekCloser, error) {
	return struct {
		io.ReadSeeker
		io.Closer
	}{strings.NewReader("purr"), io.NopCloser(nil)}, f.err
}

func (f fakeObjects) Delete(context.Context, state.AccountID, string, string, state.VersionID, state.Condition) (objects.Deleted, error) {
	return objects.Deleted{}, f.err
}
