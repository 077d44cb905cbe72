package objects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Put stores an object. When it returns without an error, the content is durable on
// write_copies nodes, and every node shows the object. Errors: state.ErrNoBucket,
// state.ErrPrecondition, state.ErrNoKey (a condition on a missing key), state.ErrQuota,
// state.ErrInvalid, state.ErrNoSpace, state.ErrUnavailable, and those of the body and of
// its Check. After an error nothing has changed; only after ErrUnavailable the change may
// have been committed.
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

// checkKey refuses a key that no object can have, before a command with the key is encoded.
func checkKey(key string) error {
	if len(key) == 0 || len(key) > state.MaxKeyBytes {
		return state.Errorf(state.CodeInvalid, "a key has 1 to %d bytes", state.MaxKeyBytes)
	}
	return nil
}

// precheckQuota rejects a put that Apply would reject, before the body is read. It rejects a
// put whose condition does not hold, or whose known size exceeds the account's quota. The
// result is valid for that moment only.
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

// hasRoom returns the quota pre-check for content of size bytes; -1 is an unknown size. It never
// refuses a put that Apply would accept. The hash of the content arrives after it, so the
// content may be one that the account has already and is not charged for again. It refuses
// content that is larger than the free part of the quota plus the replaced version or part, if
// the account has no content of that size.
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

// nodeBytes is an upper bound for the bytes of inner DAG nodes for each leaf, in a DAG of
// several blocks.
const nodeBytes = 128

// kept is a body that is durable but has no name yet.
type kept struct {
	stored    Kept
	sums      Sums
	digests   *digester // the computed sums; hashing has ended
	checksums []state.Checksum
}

// store stores and checks a body, whose bytes are at offset at of their object or unplaced.
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

// name calls propose with the content and reports the outcome to its holders. If Apply
// rejects the content because the epoch of a holder is too old, it renews the epochs and
// tries once more.
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

// unsettled returns the error if the state has changed before each attempt. The client has made
// no mistake and may try again.
func unsettled(conflict error) error {
	return state.Errorf(state.CodeUnavailable, "what this is made of has changed each time: %v", conflict)
}

// Copy makes an object from another one of the same account without moving bytes. Errors:
// those of Put, state.ErrNoBucket and state.ErrNoKey also for the source, and those of
// SourceIf.
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

// copySum is the largest size in bytes of a copy that is read for its checksum before the
// answer.
const copySum = 8 << 20

// Bounds of the checksums of copies that are computed while a client waits: their number at a
// time, each with up to 2 MiB of memory, and their duration. Beyond the bounds they are
// computed later.
const (
	maxCopySums    = 8
	copySumTimeout = 3 * time.Second
)

// sumCopy sets the checksum of a copy that the request asks for. If the source lacks it and the
// content is small, sumCopy computes it now. Otherwise the copy records the wanted checksum,
// and a node that holds the content computes it later, see RunHashes.
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

// sumNow computes the hash and a checksum of an object. It computes nothing if the maximum
// number of such computations runs already, and gives up if it takes too long.
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

// source returns the version to copy after its check. A missing source is a SourceError.
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
