package objects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Put stores an object. If it returns no error, the content is durable on write_copies nodes, and
// the object is visible on every node. Errors: state.ErrNoBucket, state.ErrPrecondition,
// state.ErrNoKey if r.If requires an existing object, state.ErrQuota, state.ErrInvalid,
// state.ErrNoSpace, state.ErrUnavailable, and the errors of r.Body.Reader and r.Body.Check. After
// ErrUnavailable the object may exist nevertheless; after other errors nothing has changed.
func (o *Objects) Put(ctx context.Context, a state.AccountID, bucket string, r PutRequest) (state.Object, error) {
	held, err := o.Hold(ctx, a, bucket, r)
	if err != nil {
		return state.Object{}, err
	}
	obj := held.Object()
	var result state.Result
	err = held.Commit(ctx, func(c state.Content) error {
		result, err = o.changed(ctx, a, bucket, func(b state.Bucket) state.Command {
			return &state.PutObject{Account: a, Bucket: bucket, Born: b.Born, Object: obj, Content: c, If: r.If}
		})
		return err
	})
	if err != nil {
		return state.Object{}, fmt.Errorf("put object: %w", err)
	}
	return made(&result, obj), nil
}

// checkKey returns state.ErrInvalid if no object can have the key, because the key is empty or
// too long for a command.
func checkKey(key string) error {
	if len(key) == 0 || len(key) > state.MaxKeyBytes {
		return state.Errorf(state.CodeInvalid, "a key has 1 to %d bytes", state.MaxKeyBytes)
	}
	return nil
}

// precheckQuota returns an error before the body is read if Apply would reject the put: for an
// invalid key, for a condition that is not met, or if the quota has no room for size bytes. size
// is -1 if unknown. The state may change after the check, so Apply decides.
func (o *Objects) precheckQuota(ctx context.Context, a state.AccountID, b *state.Bucket, key string, size int64, c state.Condition) error {
	if err := checkKey(key); err != nil {
		return err
	}
	fits := func(v state.View, b *state.Bucket) error {
		return hasRoom(size, func(in state.Incoming) error { return v.RoomForObject(b, key, in) })
	}
	if c.None() {
		view, release := o.opts.State.LocalView()
		err := fits(view, b)
		release()
		if !errors.Is(err, state.ErrQuota) {
			return err
		}
	}
	return o.read(ctx, func(v state.View) error {
		now, err := v.Bucket(a, b.Name)
		if err != nil {
			return err
		}
		old, err := v.Object(&now, key)
		if err != nil && !errors.Is(err, state.ErrNoKey) {
			return err
		}
		current := &old
		if err != nil {
			current = nil
		}
		if err := c.Judge(current); err != nil {
			return err
		}
		return fits(v, &now)
	})
}

// hasRoom returns state.ErrQuota if content of size bytes certainly exceeds the quota. size is -1
// if unknown. ask is the check of the state, RoomForObject or RoomForPart. hasRoom never rejects
// content that Apply would accept. An account is not charged again for content that it has
// already, and whether that is so is known only after the content has arrived. So ask rejects
// content only if the account has no content of the same size.
func hasRoom(size int64, ask func(state.Incoming) error) error {
	in := state.Incoming{Size: uint64(max(size, 0))}
	if in.Most = in.Size; in.Size > ingest.ChunkSize {
		in.Most += nodeBytes * (in.Size/ingest.ChunkSize + 1)
	}
	err := ask(in)
	if errors.Is(err, state.ErrNotFound) {
		return state.Errorf(state.CodeUnavailable, "not every member of the cluster has been upgraded to a release with an object gateway")
	}
	return err
}

// nodeBytes is an upper limit for the bytes of inner DAG nodes per leaf, in a DAG of several
// blocks.
const nodeBytes = 128

// kept is a body that is stored durably, but that no record references yet.
type kept struct {
	stored    Kept
	sums      Sums
	digests   *digester // computed the sums; hashing has ended
	checksums []state.Checksum
}

// store stores a body on nodes and calls body.Check. id is the id of the version or upload, nodes
// are preferred nodes or nil, and at is the offset of the body in its object, or unplaced. If
// Check fails, store discards the content.
func (o *Objects) store(ctx context.Context, id string, nodes []state.NodeID, body *Body, at uint64) (*kept, error) {
	place, err := o.place(id, nodes)
	if err != nil {
		return nil, err
	}
	d, err := newDigester(&o.hashing, body.Reader, body.Sums, at)
	if err != nil {
		return nil, err
	}
	defer d.end()
	stored, err := o.opts.Content.Store(ctx, d, place)
	if err != nil {
		return nil, fmt.Errorf("store content: %w", err)
	}
	k := &kept{stored: stored, sums: d.sums(), digests: d}
	if body.Check != nil {
		if k.checksums, err = body.Check(k.sums); err != nil {
			stored.Done(false)
			return nil, err
		}
	}
	return k, nil
}

// name does the work of Held.Commit for stored.
func (o *Objects) name(ctx context.Context, stored Kept, propose func(state.Content) error) error {
	for attempt := 1; ; attempt++ {
		err := propose(stored.Content())
		var outcome *state.Error
		switch {
		case err == nil:
			stored.Done(true)
			return nil
		case errors.Is(err, state.ErrConflict) && attempt < maxAttempts:
			if err := stored.Renew(ctx); err != nil {
				stored.Done(false)
				return fmt.Errorf("content is kept by too few nodes: %w", err)
			}
			continue
		case errors.Is(err, state.ErrConflict):
			err = unsettled(err)
			stored.Done(false)
		case errors.As(err, &outcome) && outcome.Code != state.CodeUnavailable:
			stored.Done(false)
		default: // it may be committed yet
			stored.Unknown()
		}
		return err
	}
}

// unsettled returns a state.ErrUnavailable for a change whose attempts all failed with conflict,
// because the state changed each time. The client has made no mistake and may try again.
func unsettled(conflict error) error {
	return state.Errorf(state.CodeUnavailable, "what this is made of has changed each time: %v", conflict)
}

// Copy makes an object from another object of the same account. Both share the stored content.
// Errors: those of Put; a SourceError with state.ErrNoBucket, state.ErrNoKey or
// state.ErrNoVersion about the source; and those of r.SourceIf.
func (o *Objects) Copy(ctx context.Context, a state.AccountID, bucket string, r CopyRequest) (state.Object, error) {
	id := state.VersionID(o.opts.NewID())
	for attempt := 1; ; attempt++ {
		cmd, err := o.copyOf(ctx, a, bucket, &r)
		if err != nil {
			return state.Object{}, err
		}
		cmd.Object.ID = id
		if err := o.sumCopy(ctx, a, cmd, r.Algorithm); err != nil {
			return state.Object{}, err
		}
		result, err := o.propose(ctx, cmd)
		switch {
		case err == nil:
			return made(&result, cmd.Object), nil
		case !errors.Is(err, state.ErrConflict):
			return state.Object{}, fmt.Errorf("copy object: %w", err)
		case attempt == copyAttempts: // the source has changed each time
			return state.Object{}, unsettled(err)
		}
	}
}

// copySum is the largest size in bytes of a copy that Copy reads to compute a missing checksum
// before it returns.
const copySum = 8 << 20

// Limits for checksums of copies that are computed while a client waits: their number at a time,
// each with up to 2 MiB of memory, and their duration. Beyond these limits the checksum is
// computed later.
const (
	maxCopySums    = 8
	copySumTimeout = 3 * time.Second
)

// sumCopy sets the checksum of a copy by the algorithm in the request, "" for none. If the source
// has no such checksum and the content is small, sumCopy computes it. Otherwise it records the
// algorithm as wanted in the copy, and a node that has the content computes the checksum later,
// see RunHashes.
func (o *Objects) sumCopy(ctx context.Context, a state.AccountID, cmd *state.CopyObject, algorithm string) error {
	obj := &cmd.Object
	if algorithm == "" {
		return nil
	}
	if sum := obj.WholeSum(algorithm); sum != nil {
		obj.Checksums, obj.Wanted = []state.Checksum{*sum}, ""
		return nil
	}
	obj.Checksums, obj.Wanted = nil, algorithm
	if obj.Size <= copySum {
		blake3, sum, err := o.sumNow(ctx, a, obj, algorithm)
		switch {
		case err == nil:
			obj.Checksums, obj.Wanted, obj.Blake3 = []state.Checksum{{Algorithm: algorithm, Value: sum}}, "", blake3
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("copy object: %w", err)
		}
		o.opts.Logger.DebugContext(ctx, "checksum of a copy is computed later", "version", obj.ID, "err", err)
	}
	level, err := o.level()
	if level < 5 { // members that are to be upgraded yet know no wishes
		obj.Wanted = ""
	}
	return wrap("read the level", err)
}

// sumNow reads an object and returns its BLAKE3 hash and its checksum. It returns an error if
// maxCopySums such computations are running already, or after copySumTimeout.
func (o *Objects) sumNow(ctx context.Context, a state.AccountID, obj *state.Object, algorithm string) (blake3, sum []byte, err error) {
	select {
	case o.sums <- struct{}{}:
		defer func() { <-o.sums }()
	default:
		return nil, nil, state.ErrUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, copySumTimeout)
	defer cancel()
	return o.digest(ctx, a, obj, algorithm, func(uint64) error { return ctx.Err() })
}

func (o *Objects) copyOf(ctx context.Context, a state.AccountID, bucket string, r *CopyRequest) (cmd *state.CopyObject, err error) {
	if err := checkKey(r.Key); err != nil {
		return nil, err
	}
	err = o.read(ctx, func(v state.View) error {
		to, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		from, source, err := o.source(v, a, r.SourceBucket, r.Source, r.SourceVersion, r.SourceIf)
		if err != nil {
			return err
		}
		obj := source
		obj.Key, obj.Created, obj.Upload, obj.Listed = r.Key, o.now(), "", state.Hash{}
		obj.Tags = nil // Apply takes those that are kept
		obj.StorageClass = r.StorageClass
		if r.Replace != nil {
			obj.Headers, obj.Meta = r.Replace.Headers, r.Replace.Meta
			if !r.KeepTags {
				obj.Tags = r.Replace.Tags
			}
		}
		cmd = &state.CopyObject{
			Account: a, Bucket: bucket, Born: to.Born, Object: obj, If: r.If,
			SourceBucket: from.Name, SourceBorn: from.Born, SourceKey: source.Key, SourceID: source.ID,
			KeepTags: r.Replace == nil || r.KeepTags,
		}
		return nil
	})
	return cmd, err
}

// source returns the version that is to be copied, and its bucket. id "" means the current
// version. If the source does not exist, it returns a SourceError. Then it calls judge, which may
// be nil, and returns its error. A delete marker is rejected with state.ErrInvalid.
func (o *Objects) source(v state.View, a state.AccountID, bucket, key string, id state.VersionID, judge func(*state.Object) error) (state.Bucket, state.Object, error) {
	b, err := v.Bucket(a, bucket)
	if err != nil {
		return b, state.Object{}, &SourceError{Err: err}
	}
	obj, err := v.Version(&b, key, id)
	if err == nil && obj.Marker && id == "" {
		err = state.ErrNoKey
	}
	switch {
	case err != nil:
		err = &SourceError{Err: err}
	case judge != nil:
		seen := shown(&b, obj)
		err = judge(&seen)
	}
	if err == nil && obj.Marker {
		err = state.Errorf(state.CodeInvalid, "the source of a copy is a delete marker")
	}
	return b, obj, err
}
