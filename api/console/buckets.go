package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Objects is the application logic behind buckets and objects. For those of another account it
// returns the same errors as for missing ones.
type Objects interface {
	// Buckets returns the buckets of the account a, ordered by name.
	Buckets(ctx context.Context, a state.AccountID) ([]state.Bucket, error)
	// Bucket returns a bucket by a linearizable read, or state.ErrNoBucket.
	Bucket(ctx context.Context, a state.AccountID, name string) (state.Bucket, error)
	// CreateBucket creates a bucket, or returns state.ErrExists. Everybody can read the objects
	// of a public bucket by their CIDs.
	CreateBucket(ctx context.Context, a state.AccountID, name string, public bool) error
	// SetPublic makes a bucket public or private. Everybody can read the objects of a public
	// bucket by their CIDs.
	SetPublic(ctx context.Context, a state.AccountID, name string, public bool) error
	// DeleteBucket removes a bucket, or returns state.ErrNotEmpty if the bucket is not empty.
	DeleteBucket(ctx context.Context, a state.AccountID, name string) error
	// Copies returns how many nodes store the complete content of an object (held), and how many
	// should (wanted).
	Copies(ctx context.Context, obj *state.Object) (held, wanted int, err error)
	// List returns a page of the objects of a bucket, ordered by key.
	List(ctx context.Context, a state.AccountID, bucket string, q state.ObjectsQuery) (state.ObjectsPage, error)
	// Sorted returns a page of the objects of a bucket, ordered by size or time. many is true if
	// the bucket has too many objects to sort; the page is then empty.
	Sorted(ctx context.Context, a state.AccountID, bucket string, q objects.SortedQuery) (page state.ObjectsPage, many bool, err error)
	// Versions returns a page of the versions and delete markers of a bucket.
	Versions(ctx context.Context, a state.AccountID, bucket string, q state.VersionsQuery) (state.VersionsPage, error)
	// Object returns the version of a key with an id, or the newest version if id is empty. The
	// result may be a delete marker.
	Object(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID) (state.Object, error)
	// Lately returns the newest changes of objects of an account that this node knows of.
	Lately(a state.AccountID) []state.ObjectChange
	// Open opens the content of an object for reading.
	Open(ctx context.Context, a state.AccountID, o *state.Object) (io.ReadSeekCloser, error)
	// Put stores an object. When it returns, the object is durable.
	Put(ctx context.Context, a state.AccountID, bucket string, r objects.PutRequest) (state.Object, error)
	// Delete removes an object. If id is not empty, it permanently removes the version with this
	// id.
	Delete(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, c state.Condition) (objects.Deleted, error)
	// DeleteMany deletes up to state.MaxDeleteKeys objects. One that does not exist is no error.
	DeleteMany(ctx context.Context, a state.AccountID, bucket string, all []objects.Doomed) ([]objects.Deleted, error)
	// Copy creates an object with the content of another object of the same account. No content
	// is transferred.
	Copy(ctx context.Context, a state.AccountID, bucket string, r objects.CopyRequest) (state.Object, error)
	// SetTags replaces the tags of the version with an id, or of the current version if id is
	// empty.
	SetTags(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, tags []state.Tag) error
	// SetVersioning enables or suspends versioning of a bucket.
	SetVersioning(ctx context.Context, a state.AccountID, bucket string, to state.Versioning) error
	// Cors returns the CORS rules of a bucket. SetCors replaces them.
	Cors(ctx context.Context, a state.AccountID, bucket string) ([]state.CorsRule, error)
	SetCors(ctx context.Context, a state.AccountID, bucket string, rules []state.CorsRule) error
	// CreateUpload starts a multipart upload and returns its id.
	CreateUpload(ctx context.Context, a state.AccountID, bucket string, r objects.UploadRequest) (state.UploadID, error)
	// PutPart stores a part of an upload. It replaces an earlier part with the same number.
	PutPart(ctx context.Context, a state.AccountID, bucket string, r objects.PartRequest) (state.Part, error)
	// Parts returns up to limit parts of an upload whose number is above after. more is true if
	// there are further parts.
	Parts(ctx context.Context, a state.AccountID, bucket, key string, id state.UploadID, after, limit int) (parts []state.Part, more bool, err error)
	// Complete creates an object from the parts of an upload.
	Complete(ctx context.Context, a state.AccountID, bucket string, r objects.CompleteRequest) (state.Object, error)
	// Abort ends an upload and deletes its parts.
	Abort(ctx context.Context, a state.AccountID, bucket, key string, id state.UploadID) error
}

// objectRows is the number of folders and objects on a page of a bucket.
const objectRows = 100

// bucketsData is the data of the page /buckets.
type bucketsData struct {
	Buckets []state.Bucket
	Form    bucketForm
	Error   string
}

// bucketForm has the values of the form for a new bucket.
type bucketForm struct {
	Name   string
	Public bool
}

// bucketData is the data of the page of a bucket: the keys that begin with a prefix. Keys with
// another "/" after the prefix are shown as folders.
type bucketData struct {
	Endpoints
	Bucket   state.Bucket
	Prefix   string
	Folder   string // the part of Prefix up to and including its last "/"
	Here     string // name of the folder, or of the bucket if Folder is empty
	Above    []link // links to the bucket and to each folder above Here
	Folders  []folderRow
	Objects  []objectRow
	After    string // position after which this page begins
	Next     string // address of the next page; empty if there is none
	First    string // address of the first page
	Sort     sorting
	Unsorted bool  // the list is by name, because it has too many entries for the requested order
	Large    int64 // the script uploads files with more bytes in parts
	Part     int64 // bytes of a part
	Cors     corsForm
	Shares   []shareRow
	Lives    []life // choices for the validity of a new share
	// MoreShares is true if the bucket has more shares than Shares.
	MoreShares bool
	Error      string
	// SettingsOpen is true if Error is about a setting of the bucket. The page then shows the
	// settings.
	SettingsOpen bool
}

// link is the text and the address of a link in a page.
type link struct{ Name, Address string }

// folderRow is a folder in a list.
type folderRow struct {
	link

	Key string // the prefix of the keys in it
}

// objectRow is an object in a list.
type objectRow struct {
	Name, Address string
	Key           string
	Size          uint64
	Created       time.Time
}

// asking returns ctx with the session of the caller and the index of the state that this request
// has already read. With this context the cluster rejects changes if the session was revoked in
// the meantime, and reads need no further linearizable read.
func (c *call) asking(ctx context.Context) context.Context {
	return state.AsSession(objects.Seen(ctx, c.who.Index), c.who.Session)
}

// bucketName returns the segment {bucket} of the path.
func (c *call) bucketName() string { return c.r.PathValue("bucket") }

// bucketAddress returns the path and query of the page of a bucket for a prefix.
func bucketAddress(bucket, prefix string) string {
	return byName.address(bucket, prefix, nil)
}

// isAbsent reports whether an error means that a bucket, object, version or upload does not
// exist.
func isAbsent(err error) bool {
	return errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrNoBucket) || errors.Is(err, state.ErrNoKey) ||
		errors.Is(err, state.ErrNoVersion) || errors.Is(err, state.ErrNoUpload)
}

// bucketsPage serves GET /buckets, the list of the account's buckets.
func (s *surface) bucketsPage(c *call) error {
	return s.showBuckets(c, http.StatusOK, bucketForm{}, "")
}

func (s *surface) showBuckets(c *call, status int, form bucketForm, problem string) error {
	all, err := s.Objects.Buckets(c.asking(c.ctx), c.who.Account)
	if err != nil {
		return fmt.Errorf("list buckets: %w", err)
	}
	return s.show(c, status, "buckets", "Buckets", "buckets", bucketsData{all, form, problem})
}

// createBucket serves POST /buckets: it creates a bucket and redirects to its page. If the name
// is invalid or exists, it answers with the page /buckets and the problem.
func (s *surface) createBucket(c *call) error {
	form := bucketForm{Name: strings.TrimSpace(c.r.PostForm.Get("name")), Public: c.r.PostForm.Get("visibility") == "public"}
	if !web.ValidBucket(form.Name) {
		return s.showBuckets(c, http.StatusBadRequest, form, "The name of a bucket has 3 to 63 lower case letters, digits, dots and hyphens, begins and ends with a letter or a digit, and is no IP address.")
	}
	err := s.Objects.CreateBucket(c.asking(c.ctx), c.who.Account, form.Name, form.Public)
	if errors.Is(err, state.ErrExists) {
		return s.showBuckets(c, http.StatusConflict, form, "There is a bucket of that name already.")
	}
	if problem := refusal(err, state.CodeInvalid, state.CodeExists, state.CodeTooLarge, state.CodeQuota, state.CodeNoSpace, state.CodeNotEmpty); problem != "" {
		return s.showBuckets(c, http.StatusBadRequest, form, problem)
	}
	if err != nil {
		return fmt.Errorf("create bucket: %w", err)
	}
	return c.redirect(bucketAddress(form.Name, ""))
}

// bucketPage serves GET /buckets/{bucket}, the page with the objects, the shares and the settings
// of a bucket.
func (s *surface) bucketPage(c *call) error { return s.showBucket(c, http.StatusOK, "") }

func (s *surface) showBucket(c *call, status int, problem string) error {
	ctx, name, query := c.asking(c.ctx), c.bucketName(), c.r.URL.Query()
	b, err := s.Objects.Bucket(ctx, c.who.Account, name)
	if err != nil {
		return fmt.Errorf("show bucket: %w", err)
	}
	d := bucketData{
		Endpoints: s.endpoints(c), Bucket: b, Prefix: query.Get("prefix"), After: query.Get("after"), Sort: sortingOf(query.Get("sort")), Large: largeFile, Part: s.partSize(), Lives: shareLives, Error: problem,
	}
	rules, err := s.Objects.Cors(ctx, c.who.Account, name)
	if err != nil {
		return fmt.Errorf("show bucket: %w", err)
	}
	d.Cors = corsFormOf(rules)
	if form := c.r.PostForm; problem != "" && form.Has("origins") { // what was entered stays
		d.Cors.Origins, d.Cors.Write, d.SettingsOpen = form.Get("origins"), form.Get("write") != "", true
	}
	if d.Shares, d.MoreShares, err = s.sharesOf(c, name); err != nil {
		return err
	}
	page, err := s.listSorted(c, name, &d)
	if err != nil {
		return fmt.Errorf("list objects: %w", err)
	}
	d.Folder = d.Prefix[:strings.LastIndexByte(d.Prefix, '/')+1]
	path := above(name, d.Folder)
	d.Here, d.Above = path[len(path)-1].Name, path[:len(path)-1]
	for _, p := range page.Prefixes {
		d.Folders = append(d.Folders, folderRow{link{strings.TrimPrefix(p, d.Folder), d.Sort.address(name, p, nil)}, p})
	}
	for i := range page.Objects {
		o := &page.Objects[i]
		d.Objects = append(d.Objects, objectRow{below(o.Key, d.Folder), objectAddress(name, o.Key, ""), o.Key, o.Size, o.Created.Time()})
	}
	d.First = d.Sort.address(name, d.Prefix, nil)
	if page.Truncated {
		d.Next = d.Sort.address(name, d.Prefix, d.Sort.cursor(&page))
	}
	return s.show(c, status, "bucket", name, "buckets", d)
}

// above returns links to a bucket and to each folder of folder, which is empty or ends in "/".
func above(bucket, folder string) []link {
	all := []link{{bucket, bucketAddress(bucket, "")}}
	for at := 0; at < len(folder); {
		end := at + strings.IndexByte(folder[at:], '/') + 1
		all = append(all, link{folder[at:end], bucketAddress(bucket, folder[:end])})
		at = end
	}
	return all
}

// below returns the part of a key after folder, or the whole key if that part is empty.
func below(key, folder string) string {
	if name := strings.TrimPrefix(key, folder); name != "" {
		return name
	}
	return key
}

// setVisibility serves POST /buckets/{bucket}/visibility: it makes a bucket public or private.
func (s *surface) setVisibility(c *call) error {
	public := c.r.PostForm.Get("visibility") == "public"
	if err := s.Objects.SetPublic(c.asking(c.ctx), c.who.Account, c.bucketName(), public); err != nil {
		return fmt.Errorf("set visibility: %w", err)
	}
	return c.redirect(bucketAddress(c.bucketName(), ""))
}

// deleteBucket serves POST /buckets/{bucket}/delete: it deletes an empty bucket.
func (s *surface) deleteBucket(c *call) error {
	err := s.Objects.DeleteBucket(c.asking(c.ctx), c.who.Account, c.bucketName())
	if errors.Is(err, state.ErrNotEmpty) {
		return s.showBucket(c, http.StatusConflict, "The bucket is not empty. Delete its objects, their versions and delete markers first.")
	}
	if err != nil {
		return fmt.Errorf("delete bucket: %w", err)
	}
	return c.redirect("/buckets")
}
