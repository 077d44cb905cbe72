package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// State is the part of consensus that this package uses.
type State interface {
	// View returns a linearizable view of the state. The caller must call release. View returns
	// state.ErrUnavailable without a majority.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the state after the entries that this node has applied. The
	// caller must call release.
	LocalView() (view state.View, release func())
	// Propose commits a command. When Propose returns a result, this node has applied the
	// command.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
}

// Nodes lists the members with their load, for the choice of nodes for content.
type Nodes interface {
	Candidates() []placement.Node
}

// Content stores content before a record in the state references it.
type Content interface {
	// Store stores body on as many nodes as place requests.
	Store(ctx context.Context, body io.Reader, place ingest.Placement) (Kept, error)
	// Join makes one file from stored files, in the order of parts.
	Join(ctx context.Context, parts []ingest.File, place ingest.Placement) (Kept, error)
}

// Kept is content that is stored durably on several nodes. These nodes do not delete it until
// they know the outcome of the command that references it.
type Kept interface {
	// Content returns the content as it must be in the command that references it. Renew may
	// change the result.
	Content() state.Content
	// Size returns the number of bytes of the file.
	Size() uint64
	// Renew asks the nodes for their current epochs again. An epoch changes if a node may have
	// lost the content; it fails if too few nodes still have the content.
	Renew(ctx context.Context) error
	// Done reports to the nodes whether the command was committed. Unknown reports that the
	// outcome is unknown. The caller must call one of the two, once.
	Done(committed bool)
	Unknown()
}

// Files reads content.
type Files interface {
	// Open opens the file whose root block is root, on this node or on members. It asks the
	// members in holders first. size is the file size in bytes.
	Open(ctx context.Context, root cid.Cid, holders []state.NodeID) (f io.ReadSeekCloser, size uint64, err error)
}

// Options are the settings and dependencies of Objects. Watch, HashRate, Now, NewID and Logger
// may be zero.
type Options struct {
	Self    state.NodeID
	State   State
	Watch   *state.Watch // nil means that Lately returns nothing
	Nodes   Nodes
	Content Content
	Files   Files
	// MinPart is the smallest size in bytes of a part that is not the last one.
	MinPart uint64
	// UploadAge is how long an upload may stay open.
	UploadAge time.Duration
	// HashRate is the number of bytes a second that this node reads to compute missing hashes. 0
	// means DefaultHashRate.
	HashRate uint64
	Now      func() time.Time
	// Agreed returns two times: early, which the clocks of most members have reached, and late,
	// which they have not passed. ok is false while these are unknown. The clock of one node is
	// not reliable enough to delete content.
	Agreed func() (early, late state.Millis, ok bool)
	NewID  func() string // returns a unique id for a version or a part
	Logger *slog.Logger
}

// Objects manages the buckets and objects of all accounts.
type Objects struct {
	opts    Options
	hashing hashing
	trees   *trees
	hashed  Hashing
	sums    chan struct{} // semaphore for checksums of copies that are computed while a client waits
}

// New returns an Objects. It sets the defaults of Options.
func New(o Options) *Objects {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.HashRate == 0 {
		o.HashRate = DefaultHashRate
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Objects{opts: o, trees: newTrees(maxTrees), sums: make(chan struct{}, maxCopySums)}
}

// Lately returns the latest changes of the objects of an account, the newest first. It returns
// only changes that this node has applied since its start. It only reads memory.
func (o *Objects) Lately(a state.AccountID) []state.ObjectChange {
	if o.opts.Watch == nil {
		return nil
	}
	return o.opts.Watch.ObjectChanges(a)
}

// maxAttempts is how often a change is tried if the state changes each time between its read and
// its commit.
const maxAttempts = 4

// copyAttempts replaces maxAttempts for a copy. If a client overwrites the source all the time,
// two to four attempts of a copy fail before one succeeds.
const copyAttempts = 32

func (o *Objects) now() state.Millis { return state.MillisOf(o.opts.Now()) }

// read calls fn with a state that is at least as new as the beginning of the request. This is the
// local state if it includes the index of Seen, otherwise a linearizable view.
func (o *Objects) read(ctx context.Context, fn func(state.View) error) error {
	if seen := SeenIndex(ctx); seen > 0 {
		view, release := o.opts.State.LocalView()
		if view.Index() >= seen {
			defer release()
			return fn(view)
		}
		release()
	}
	view, release, err := o.opts.State.View(ctx)
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	defer release()
	return fn(view)
}

// Buckets returns the buckets of an account, in the order of their names.
func (o *Objects) Buckets(ctx context.Context, a state.AccountID) (all []state.Bucket, err error) {
	err = o.read(ctx, func(v state.View) error {
		all, err = v.Buckets(a)
		return err
	})
	return all, err
}

// CreateBucket creates a bucket. If public is true, every IPFS peer may get the content of its
// objects.
//
// Errors: state.ErrExists; state.ErrInvalid; state.ErrTooLarge if the account has the maximum
// number of buckets.
func (o *Objects) CreateBucket(ctx context.Context, a state.AccountID, name string, public bool) error {
	_, err := o.propose(ctx, &state.CreateBucket{
		Bucket: state.Bucket{Account: a, Name: name, Created: o.now(), Public: public},
	})
	return wrap("create bucket", err)
}

// SetPublic makes the objects of a bucket public or private. New objects are affected at once.
// Existing objects are changed one after the other in the background.
//
// Errors: state.ErrNoBucket.
func (o *Objects) SetPublic(ctx context.Context, a state.AccountID, name string, public bool) error {
	b, err := o.Bucket(ctx, a, name)
	if err != nil {
		return err
	}
	_, err = o.propose(ctx, &state.SetBucketPublic{Account: a, Name: name, Born: b.Born, Public: public})
	return wrap("set bucket public", err)
}

// DeleteBucket deletes a bucket without objects, together with its open uploads.
//
// Errors: state.ErrNoBucket, state.ErrNotEmpty.
func (o *Objects) DeleteBucket(ctx context.Context, a state.AccountID, name string) error {
	b, err := o.Bucket(ctx, a, name)
	if err != nil {
		return err
	}
	_, err = o.propose(ctx, &state.DeleteBucket{Account: a, Name: name, Born: b.Born})
	return wrap("delete bucket", err)
}

// Bucket returns a bucket of an account. It returns state.ErrNoBucket for a missing bucket and
// for a bucket of another account.
func (o *Objects) Bucket(ctx context.Context, a state.AccountID, name string) (b state.Bucket, err error) {
	err = o.read(ctx, func(v state.View) error {
		b, err = v.Bucket(a, name)
		return err
	})
	return b, err
}

// Cors returns the CORS rules of a bucket; nil if it has none. Errors: state.ErrNoBucket.
func (o *Objects) Cors(ctx context.Context, a state.AccountID, bucket string) (rules []state.CorsRule, err error) {
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		rules, err = v.Cors(&b)
		return err
	})
	return rules, err
}

// SetCors replaces the CORS rules of a bucket. Empty rules delete the existing ones. Errors:
// state.ErrNoBucket, state.ErrInvalid, state.ErrTooLarge.
func (o *Objects) SetCors(ctx context.Context, a state.AccountID, bucket string, rules []state.CorsRule) error {
	return wrap("set CORS rules", o.change(ctx, a, bucket, func(b state.Bucket) state.Command {
		return &state.SetBucketCors{Account: a, Bucket: bucket, Born: b.Born, Cors: state.Cors{Rules: rules}}
	}))
}

// BucketTags returns the tags of a bucket; nil if it has none. Errors: state.ErrNoBucket.
func (o *Objects) BucketTags(ctx context.Context, a state.AccountID, bucket string) (tags []state.Tag, err error) {
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		tags, err = v.BucketTags(&b)
		return err
	})
	return tags, err
}

// SetBucketTags replaces the tags of a bucket. Empty tags delete the existing ones. Errors:
// state.ErrNoBucket, state.ErrInvalid.
func (o *Objects) SetBucketTags(ctx context.Context, a state.AccountID, bucket string, tags []state.Tag) error {
	return wrap("set tags of bucket", o.change(ctx, a, bucket, func(b state.Bucket) state.Command {
		return &state.SetBucketTags{Account: a, Bucket: bucket, Born: b.Born, Tags: state.BucketTags{Tags: tags}}
	}))
}

// known returns a bucket for a change of its content. It reads the local state, which is fast,
// and the linearizable state only if the local state has no such bucket. The bucket may be
// outdated, but Apply checks it again.
func (o *Objects) known(ctx context.Context, a state.AccountID, name string) (state.Bucket, error) {
	view, release := o.opts.State.LocalView()
	b, err := view.Bucket(a, name)
	release()
	if errors.Is(err, state.ErrNoBucket) {
		return o.Bucket(ctx, a, name)
	}
	return b, err
}

// change proposes the command that make returns for the bucket name. If that bucket was deleted
// and a new one with the name exists, change calls make again with the new bucket.
func (o *Objects) change(ctx context.Context, a state.AccountID, name string, make func(state.Bucket) state.Command) error {
	_, err := o.changed(ctx, a, name, make)
	return err
}

// changed is change that also returns the result of the command.
func (o *Objects) changed(ctx context.Context, a state.AccountID, name string, make func(state.Bucket) state.Command) (state.Result, error) {
	b, err := o.known(ctx, a, name)
	if err != nil {
		return state.Result{}, err
	}
	result, err := o.propose(ctx, make(b))
	if !errors.Is(err, state.ErrNoBucket) {
		return result, err
	}
	born := b.Born
	if b, err = o.Bucket(ctx, a, name); err != nil {
		return state.Result{}, err
	}
	if b.Born == born {
		return state.Result{}, state.Errorf(state.CodeNoBucket, "the bucket has just been deleted")
	}
	return o.propose(ctx, make(b))
}

// List returns one page of a bucket's objects and common prefixes. Errors: state.ErrNoBucket.
func (o *Objects) List(ctx context.Context, a state.AccountID, bucket string, q state.ObjectsQuery) (page state.ObjectsPage, err error) {
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		page, err = v.Objects(&b, q)
		return err
	})
	return page, err
}

// Object returns a version of a key: the one with the given id, or the current version if id is
// "". The result may be a delete marker. Errors: state.ErrNoBucket, state.ErrNoKey,
// state.ErrNoVersion.
func (o *Objects) Object(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID) (obj state.Object, err error) {
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		obj, err = v.Version(&b, key, id)
		obj = shown(&b, obj)
		return err
	})
	return obj, err
}

// Copies returns how many nodes store the complete content of an object, and how many should.
// Both are 0 for a delete marker, and after the object was deleted.
func (o *Objects) Copies(ctx context.Context, obj *state.Object) (held, wanted int, err error) {
	if obj.Marker {
		return 0, 0, nil
	}
	err = o.read(ctx, func(v state.View) error {
		root, err := v.Root(obj.Root)
		if errors.Is(err, state.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		held = root.In(state.Held)
		wanted, err = v.Copies()
		return err
	})
	return held, wanted, err
}

// PartSums returns the checksums of the parts of obj, which Object has returned. It returns nil
// if none are stored or if obj was replaced meanwhile. Errors: state.ErrNoBucket.
func (o *Objects) PartSums(ctx context.Context, a state.AccountID, bucket string, obj *state.Object) (sums *state.PartSums, err error) {
	if !obj.HasPartSums() {
		return nil, nil
	}
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		sums, err = v.PartSums(&b, obj)
		return err
	})
	return sums, err
}

// Open opens the content of an object. The caller must close it. If the object is deleted
// meanwhile, the reader still returns all bytes if this node has the content. Otherwise a read
// may fail, but it never returns wrong bytes. Errors: state.ErrUnavailable if no reachable node
// has the content, state.ErrNotFound if no record references it any more.
func (o *Objects) Open(ctx context.Context, _ state.AccountID, obj *state.Object) (io.ReadSeekCloser, error) {
	view, release := o.opts.State.LocalView()
	record, err := view.Root(obj.Root)
	release()
	var holders []state.NodeID
	if err == nil {
		holders = record.Holders()
	}
	f, size, err := o.opts.Files.Open(ctx, obj.Root.Cid(), holders)
	if errors.Is(err, state.ErrNotFound) && o.wants(obj.Root) {
		err = state.Errorf(state.CodeUnavailable, "the members that have the content of this object cannot be reached")
	}
	if err != nil {
		return nil, fmt.Errorf("open content of object: %w", err)
	}
	if size != obj.Size {
		return nil, errors.Join(fmt.Errorf("objects: content of %s has %d bytes, its object %d", obj.Root, size, obj.Size), f.Close())
	}
	return f, nil
}

// wants returns whether a record in the local state references a root. It returns true if the
// state cannot be read.
func (o *Objects) wants(root state.RootKey) bool {
	view, release := o.opts.State.LocalView()
	defer release()
	_, err := view.Root(root)
	return !errors.Is(err, state.ErrNotFound)
}

// SetTags replaces the tags of a version of a key. If id is "", it changes the current version.
// Errors: state.ErrNoBucket, state.ErrNoKey, state.ErrNoVersion.
func (o *Objects) SetTags(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, tags []state.Tag) error {
	return wrap("set tags", o.change(ctx, a, bucket, func(b state.Bucket) state.Command {
		return &state.SetObjectTags{Account: a, Bucket: bucket, Born: b.Born, Key: key, ID: id, Tags: tags}
	}))
}

// wrap adds the name of the failed operation to an error. It returns nil for nil.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
