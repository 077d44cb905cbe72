package objects

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // what S3 calls an ETag
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// CreateUpload starts a multipart upload and returns its id. Errors: state.ErrNoBucket,
// state.ErrInvalid, state.ErrTooLarge if the bucket has its maximum of open uploads, and
// state.ErrNoSpace or state.ErrUnavailable if too few nodes can store the parts.
func (o *Objects) CreateUpload(ctx context.Context, a state.AccountID, bucket string, r UploadRequest) (state.UploadID, error) {
	if err := checkKey(r.Key); err != nil {
		return "", err
	}
	created, since := o.begun()
	id := newUploadID(created)
	place, err := o.place(string(id), nil)
	if err != nil {
		return "", err
	}
	u := state.Upload{
		ID: id, Key: r.Key, Created: created, Since: since, Nodes: place.Nodes,
		Headers: r.Attributes.Headers, Meta: r.Attributes.Meta, Tags: r.Attributes.Tags, StorageClass: r.Attributes.StorageClass,
		Checksum: state.Checksum{Algorithm: r.Algorithm, Composite: r.Composite},
	}
	err = o.change(ctx, a, bucket, func(b state.Bucket) state.Command {
		return &state.CreateUpload{Account: a, Bucket: bucket, Born: b.Born, Upload: u}
	})
	if err != nil {
		return "", fmt.Errorf("create upload: %w", err)
	}
	return u.ID, nil
}

// newUploadID returns a new id with the creation time t, a UUID of version 7. Uploads of a key
// are listed in the order of their ids, so the time comes first in the id. 74 of its bits are
// random.
func newUploadID(t state.Millis) state.UploadID {
	id := uuid.New()
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(t))
	copy(id[:6], ms[2:])
	id[6] = id[6]&0x0f | 0x70
	return state.UploadID(id.String())
}

// Upload returns an open upload. Errors: state.ErrNoBucket, state.ErrNoUpload.
func (o *Objects) Upload(ctx context.Context, a state.AccountID, bucket, key string, id state.UploadID) (u state.Upload, err error) {
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		u, err = v.Upload(&b, key, id)
		return err
	})
	return u, err
}

// Uploads returns one page of a bucket's open uploads. Errors: state.ErrNoBucket.
func (o *Objects) Uploads(ctx context.Context, a state.AccountID, bucket string, q state.UploadsQuery) (page state.UploadsPage, err error) {
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		page, err = v.Uploads(&b, q)
		return err
	})
	return page, err
}

// Parts returns up to limit parts of an upload, in the order of their numbers, beginning after
// the number after. more is true if further parts follow. Errors: state.ErrNoBucket,
// state.ErrNoUpload.
func (o *Objects) Parts(ctx context.Context, a state.AccountID, bucket, key string, id state.UploadID, after, limit int) (parts []state.Part, more bool, err error) {
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		u, err := v.Upload(&b, key, id)
		if err != nil {
			return err
		}
		parts, more, err = v.Parts(&b, u.ID, uint16(min(max(after, 0), state.MaxPartNumber)), limit)
		return err
	})
	return parts, more, err
}

// PutPart stores one part of an upload. It replaces the part with the same number, if there is
// one. Errors: state.ErrNoBucket, state.ErrNoUpload, and those of Put.
func (o *Objects) PutPart(ctx context.Context, a state.AccountID, bucket string, r PartRequest) (state.Part, error) {
	b, err := o.known(ctx, a, bucket)
	if err != nil {
		return state.Part{}, err
	}
	u, err := o.open(ctx, a, &b, r.Key, r.Upload, r.Number)
	if err != nil {
		return state.Part{}, err
	}
	if r.Body.Size > 0 {
		if err := o.roomForPart(ctx, &b, &r); err != nil {
			return state.Part{}, err
		}
	}
	return o.putPart(ctx, a, &b, &u, r.Number, &r.Body)
}

// open returns an open upload. It rejects a part number out of range with state.ErrInvalid.
func (o *Objects) open(ctx context.Context, a state.AccountID, b *state.Bucket, key string, id state.UploadID, number int) (state.Upload, error) {
	if number < 1 || number > state.MaxPartNumber {
		return state.Upload{}, state.Errorf(state.CodeInvalid, "a part has a number from 1 to %d", state.MaxPartNumber)
	}
	view, release := o.opts.State.LocalView()
	u, err := view.Upload(b, key, id)
	release()
	if errors.Is(err, state.ErrNoUpload) {
		return o.Upload(ctx, a, b.Name, key, id)
	}
	return u, err
}

// roomForPart returns state.ErrQuota if the quota of the account has no room for a part.
func (o *Objects) roomForPart(ctx context.Context, b *state.Bucket, r *PartRequest) error {
	fits := func(v state.View) error {
		return hasRoom(r.Body.Size, func(in state.Incoming) error { return v.RoomForPart(b, r.Upload, uint16(r.Number), in) })
	}
	view, release := o.opts.State.LocalView()
	err := fits(view)
	release()
	if !errors.Is(err, state.ErrQuota) {
		return err
	}
	return o.read(ctx, fits)
}

func (o *Objects) putPart(ctx context.Context, a state.AccountID, in *state.Bucket, u *state.Upload, number int, body *Body) (state.Part, error) {
	at := o.partAt(in, u, number, body.Size)
	kept, err := o.store(ctx, string(u.ID), u.Nodes, body, at)
	if err != nil {
		return state.Part{}, err
	}
	part := state.Part{
		Number: uint16(number), ID: state.VersionID(o.opts.NewID()), Root: kept.stored.Content().Root, Size: kept.stored.Size(),
		Created: o.now(), ETag: hex.EncodeToString(kept.sums.MD5[:]), Checksums: kept.checksums,
		Blake3: kept.digests.Blake3(), Trees: kept.digests.trees(),
	}
	if part.Trees != nil {
		part.At = at
	}
	var result state.Result
	err = o.name(ctx, kept.stored, func(c state.Content) error {
		result, err = o.changed(ctx, a, in.Name, func(b state.Bucket) state.Command {
			return &state.PutPart{Account: a, Bucket: in.Name, Born: b.Born, Key: u.Key, Upload: u.ID, Part: part, Content: c}
		})
		return err
	})
	if err != nil {
		return state.Part{}, fmt.Errorf("put part: %w", err)
	}
	part.Created = result.Created
	return part, nil
}

// CopyPart stores one part of an upload, copied from a range of an object of the same account. If
// the range is a whole object whose record has the ETag and checksum that a part needs, the part
// shares the stored content. Otherwise CopyPart reads the range and stores it again.
//
// Errors: those of PutPart, SourceError, and those of r.SourceIf and r.Range.
func (o *Objects) CopyPart(ctx context.Context, a state.AccountID, bucket string, r PartCopyRequest) (state.Part, error) {
	id := state.VersionID(o.opts.NewID())
	for attempt := 1; ; attempt++ {
		part, err := o.copyPart(ctx, a, bucket, &r, id)
		switch {
		case !errors.Is(err, state.ErrConflict):
			return part, err
		case attempt == copyAttempts: // the source has changed each time
			return part, unsettled(err)
		}
	}
}

func (o *Objects) copyPart(ctx context.Context, a state.AccountID, bucket string, r *PartCopyRequest, id state.VersionID) (state.Part, error) {
	b, err := o.known(ctx, a, bucket)
	if err != nil {
		return state.Part{}, err
	}
	u, err := o.open(ctx, a, &b, r.Key, r.Upload, r.Number)
	if err != nil {
		return state.Part{}, err
	}
	var from state.Bucket
	var source state.Object
	err = o.read(ctx, func(v state.View) error {
		from, source, err = o.source(v, a, r.SourceBucket, r.Source, r.SourceVersion, r.SourceIf)
		return err
	})
	if err != nil {
		return state.Part{}, err
	}
	first, count := uint64(0), source.Size
	if r.Range != nil {
		if first, count, err = r.Range(source.Size); err != nil {
			return state.Part{}, err
		}
	}
	if part := partOf(&u, &source); part != nil && count == source.Size {
		part.Number, part.ID, part.Created = uint16(r.Number), id, o.now()
		result, err := o.changed(ctx, a, bucket, func(b state.Bucket) state.Command {
			return &state.CopyPart{
				Account: a, Bucket: bucket, Born: b.Born, Key: u.Key, Upload: u.ID, Part: *part,
				SourceBucket: from.Name, SourceBorn: from.Born, SourceKey: source.Key, SourceID: source.ID,
			}
		})
		if err != nil {
			return state.Part{}, fmt.Errorf("copy part: %w", err)
		}
		part.Created = result.Created
		return *part, nil
	}
	part, err := o.readPart(ctx, a, &b, &u, r.Number, &source, first, count)
	if err != nil && ctx.Err() == nil && !o.wants(source.Root) {
		err = state.Errorf(state.CodeConflict, "the source was replaced while it was read: %v", err)
	}
	return part, err
}

// partOf returns a part that shares the content of source, without number, id and time. It
// returns nil if the content must be read instead: the ETag of a part is the MD5 of its bytes,
// and an upload with a checksum algorithm needs that checksum. If the upload has no algorithm,
// the part gets the source's checksum by DefaultAlgorithm, if any. The part has no BLAKE3 tree,
// because its offset in the new object is unknown.
func partOf(u *state.Upload, source *state.Object) *state.Part {
	if sum, err := hex.DecodeString(source.ETag); err != nil || len(sum) != md5.Size || len(source.Parts) > 0 {
		return nil
	}
	part := &state.Part{Root: source.Root, Size: source.Size, ETag: source.ETag, Blake3: source.Blake3}
	want := cmp.Or(u.Checksum.Algorithm, DefaultAlgorithm)
	i := slices.IndexFunc(source.Checksums, func(c state.Checksum) bool { return c.Algorithm == want && !c.Composite })
	if i >= 0 {
		part.Checksums = source.Checksums[i : i+1]
	} else if u.Checksum.Algorithm != "" {
		return nil
	}
	return part
}

// readPart reads count bytes of source from the offset first and stores them as a part of an
// upload.
func (o *Objects) readPart(ctx context.Context, a state.AccountID, b *state.Bucket, u *state.Upload, number int, source *state.Object, first, count uint64) (state.Part, error) {
	f, err := o.Open(ctx, a, source)
	if err != nil {
		return state.Part{}, err
	}
	defer f.Close()
	if _, err := f.Seek(int64(first), io.SeekStart); err != nil {
		return state.Part{}, fmt.Errorf("copy part: %w", err)
	}
	body := Body{Reader: io.LimitReader(f, int64(count)), Size: int64(count)}
	algorithm := cmp.Or(u.Checksum.Algorithm, DefaultAlgorithm)
	body.Sums = []string{algorithm}
	body.Check = func(s Sums) ([]state.Checksum, error) {
		return []state.Checksum{{Algorithm: algorithm, Value: s.By[algorithm]}}, nil
	}
	part, err := o.putPart(ctx, a, b, u, number, &body)
	if err == nil && part.Size != count {
		err = fmt.Errorf("objects: copied %d of %d bytes of a part", part.Size, count)
	}
	return part, err
}

// Abort deletes an upload with its parts. Errors: state.ErrNoBucket, state.ErrNoUpload.
func (o *Objects) Abort(ctx context.Context, a state.AccountID, bucket, key string, id state.UploadID) error {
	return wrap("abort upload", o.change(ctx, a, bucket, func(b state.Bucket) state.Command {
		return &state.AbortUpload{Account: a, Bucket: bucket, Born: b.Born, Key: key, ID: id}
	}))
}

// Complete makes an object from the listed parts of an upload, in order, and deletes the other
// parts. A repeated request with the same list, also through another node, returns the object
// that the first one made, as long as that exists. It calls r.Check again, but does not check
// r.If again, because the condition was about the state before the object. Errors:
// state.ErrNoBucket, state.ErrNoUpload, state.ErrInvalidPart (also if the first request had
// another list), state.ErrTooSmall, and those of Put.
func (o *Objects) Complete(ctx context.Context, a state.AccountID, bucket string, r CompleteRequest) (state.Object, error) {
	for attempt := 1; ; attempt++ {
		obj, err := o.complete(ctx, a, bucket, &r)
		if !errors.As(err, new(*raced)) || attempt == maxAttempts {
			return obj, err
		}
	}
}

// raced is an error about a part or an upload that existed when it was read and is gone now.
// Complete tries again after it.
type raced struct{ error }

// Unwrap returns the wrapped error.
func (r *raced) Unwrap() error { return r.error }

func (o *Objects) complete(ctx context.Context, a state.AccountID, bucket string, r *CompleteRequest) (state.Object, error) {
	b, u, parts, done, err := o.gather(ctx, a, bucket, r)
	if err != nil {
		return state.Object{}, err
	}
	if done != nil {
		if r.Check != nil {
			if err := r.Check(done); err != nil {
				return state.Object{}, err
			}
		}
		return *done, nil
	}
	obj, err := o.assemble(&u, r.Parts, parts)
	if err != nil {
		return state.Object{}, err
	}
	if r.Check != nil {
		if err := r.Check(&obj); err != nil {
			return state.Object{}, err
		}
	}
	obj.Blake3 = o.blake3(ctx, a, parts)
	place, err := o.place(string(u.ID), u.Nodes)
	if err != nil {
		return state.Object{}, err
	}
	files := make([]ingest.File, len(parts))
	for i, p := range parts {
		files[i] = ingest.File{Root: p.Root.Cid(), Size: p.Size}
	}
	stored, err := o.opts.Content.Join(ctx, files, place)
	if err != nil {
		err = fmt.Errorf("join parts: %w", err)
		if o.ended(ctx, a, bucket, r) {
			err = &raced{err}
		}
		return state.Object{}, err
	}
	obj.Root = stored.Content().Root
	list := state.ListParts(parts)
	var result state.Result
	err = o.name(ctx, stored, func(c state.Content) error {
		result, err = o.propose(ctx, &state.CompleteUpload{
			Account: a, Bucket: bucket, Born: b.Born, Object: obj, Content: c, Parts: list, If: r.If,
		})
		return err
	})
	if errors.Is(err, state.ErrInvalidPart) {
		err = &raced{err}
	}
	if err != nil {
		return state.Object{}, fmt.Errorf("complete upload: %w", err)
	}
	return made(&result, obj), nil
}

// ended returns whether an upload does not exist any more, because it was completed or aborted,
// also through another node, or because its bucket was deleted. Then its parts are deleted too.
func (o *Objects) ended(ctx context.Context, a state.AccountID, bucket string, r *CompleteRequest) bool {
	err := o.read(Seen(ctx, 0), func(v state.View) error { // what the request has seen is from before
		b, err := v.Bucket(a, bucket)
		if err == nil {
			_, err = v.Upload(&b, r.Key, r.Upload)
		}
		return err
	})
	return errors.Is(err, state.ErrNoUpload) || errors.Is(err, state.ErrNoBucket)
}

// gather reads the bucket, the upload and its listed parts from the state. If the upload is
// completed already, it returns the resulting object in done instead.
func (o *Objects) gather(ctx context.Context, a state.AccountID, bucket string, r *CompleteRequest) (b state.Bucket, u state.Upload, parts []state.Part, done *state.Object, err error) {
	err = o.read(ctx, func(v state.View) error {
		if b, err = v.Bucket(a, bucket); err != nil {
			return err
		}
		u, err = v.Upload(&b, r.Key, r.Upload)
		if errors.Is(err, state.ErrNoUpload) {
			done, err = became(v, &b, r)
			return err
		}
		if err != nil {
			return err
		}
		parts, err = listed(v, &b, &u, r.Parts)
		return err
	})
	return b, u, parts, done, err
}

// became returns the object that a completed upload has become. It returns state.ErrNoUpload if
// there is none, and state.ErrInvalidPart if the object has other parts than the listed ones. The
// object may be a noncurrent version now.
func became(v state.View, b *state.Bucket, r *CompleteRequest) (*state.Object, error) {
	made, err := v.Version(b, r.Key, state.VersionOf(r.Upload))
	switch {
	case errors.Is(err, state.ErrNoKey), errors.Is(err, state.ErrNoVersion):
		return nil, state.ErrNoUpload
	case err != nil:
		return nil, err
	case made.Upload == "" || made.Upload != r.Upload:
		return nil, state.ErrNoUpload
	}
	parts := make([]state.Part, len(r.Parts))
	for i, p := range r.Parts {
		parts[i] = state.Part{Number: uint16(p.Number), ETag: p.ETag}
	}
	if state.HashList(parts) != made.Listed {
		return nil, state.Errorf(state.CodeInvalidPart, "the upload was completed with other parts")
	}
	sums, err := v.PartSums(b, &made)
	if err != nil {
		return nil, err
	}
	for i, p := range r.Parts {
		if sums == nil { // none are kept of copies; the ETags are the same
			break
		}
		for algorithm, sum := range p.Checksums {
			if algorithm != sums.Algorithm && sums.Algorithm == DefaultAlgorithm {
				continue // of an upload without an algorithm, whose parts had others; they are not kept
			}
			if sums.Algorithm != algorithm || !bytes.Equal(sums.Of(i+1), sum) {
				return nil, state.Errorf(state.CodeInvalidPart, "part %d has another %s", p.Number, algorithm)
			}
		}
	}
	made = shown(b, made)
	return &made, nil
}

// listed returns the parts of an upload that are in the client's list, in the order of their
// numbers. It returns state.ErrInvalidPart if a part is missing or has another ETag or checksum
// than in the list.
func listed(v state.View, b *state.Bucket, u *state.Upload, list []CompletePart) ([]state.Part, error) {
	if len(list) == 0 || len(list) > state.MaxPartNumber {
		return nil, state.Errorf(state.CodeInvalid, "an upload is completed with 1 to %d parts", state.MaxPartNumber)
	}
	parts := make([]state.Part, 0, len(list))
	var after uint16
	for more := true; more && len(parts) < len(list); {
		page, next, err := v.Parts(b, u.ID, after, state.MaxListLimit)
		if err != nil {
			return nil, err
		}
		for _, p := range page {
			if len(parts) < len(list) && list[len(parts)].Number == int(p.Number) {
				parts = append(parts, p)
			}
			after = p.Number
		}
		more = next
	}
	if len(parts) < len(list) {
		return nil, state.Errorf(state.CodeInvalidPart, "part %d was not uploaded", list[len(parts)].Number)
	}
	for i, want := range list {
		if parts[i].ETag != want.ETag {
			return nil, state.Errorf(state.CodeInvalidPart, "part %d has another ETag", want.Number)
		}
		for algorithm, sum := range want.Checksums {
			if have := checksum(parts[i].Checksums, algorithm); !bytes.Equal(have, sum) {
				return nil, state.Errorf(state.CodeInvalidPart, "part %d has another %s", want.Number, algorithm)
			}
		}
	}
	return parts, nil
}

func checksum(all []state.Checksum, algorithm string) []byte {
	for _, c := range all {
		if c.Algorithm == algorithm {
			return c.Value
		}
	}
	return nil
}

// assemble returns the record of the object that consists of parts, without its root and BLAKE3
// hash. It returns state.ErrTooSmall if a part other than the last one is smaller than
// Options.MinPart.
func (o *Objects) assemble(u *state.Upload, list []CompletePart, parts []state.Part) (state.Object, error) {
	obj := state.Object{
		ID: state.VersionOf(u.ID), Key: u.Key, Created: o.now(), Upload: u.ID, Listed: state.HashList(parts),
		Headers: u.Headers, Meta: u.Meta, Tags: u.Tags, StorageClass: u.StorageClass,
	}
	sum := md5.New()
	for i, p := range parts {
		if i < len(parts)-1 && p.Size < o.opts.MinPart {
			return obj, state.Errorf(state.CodeTooSmall, "part %d has %d bytes, and all but the last need %d", p.Number, p.Size, o.opts.MinPart)
		}
		digest, err := hex.DecodeString(p.ETag)
		if err != nil {
			return obj, fmt.Errorf("objects: part with ETag %q: %w", p.ETag, err)
		}
		sum.Write(digest)
		obj.Size += p.Size
		if n := len(obj.Parts); n > 0 && obj.Parts[n-1].Size == p.Size {
			obj.Parts[n-1].Count++
		} else {
			obj.Parts = append(obj.Parts, state.PartRun{Size: p.Size, Count: 1})
		}
	}
	obj.ETag = fmt.Sprintf("%x-%d", sum.Sum(nil), len(list))
	whole, err := wholeChecksum(u.Checksum, parts)
	if whole != nil {
		obj.Checksums = []state.Checksum{*whole}
	}
	return obj, err
}

// wholeChecksum computes the checksum of an object from the checksums of its parts. want has the
// algorithm of the upload; if it is "", DefaultAlgorithm applies. It returns nil if a part has no
// such checksum, or if the checksum cannot be computed from those of the parts.
func wholeChecksum(want state.Checksum, parts []state.Part) (*state.Checksum, error) {
	if want.Algorithm == "" {
		want.Algorithm = DefaultAlgorithm
	}
	if !want.Composite && !linear(want.Algorithm) {
		return nil, nil
	}
	all := combined{algorithm: want.Algorithm}
	composite := NewHash(want.Algorithm)
	for _, p := range parts {
		sum := checksum(p.Checksums, want.Algorithm)
		if sum == nil {
			return nil, nil
		}
		if want.Composite {
			composite.Write(sum)
		} else if err := all.add(sum, p.Size); err != nil {
			return nil, err
		}
	}
	if want.Composite {
		want.Value = composite.Sum(nil)
	} else {
		want.Value = all.bytes()
	}
	return &want, nil
}

// Limits for deleting abandoned uploads.
const (
	// DefaultUploadAge is how long an upload may stay open.
	DefaultUploadAge = 7 * 24 * time.Hour
	staleEvery       = time.Minute
	stalePage        = 256
)

// Run deletes uploads that have been open for longer than Options.UploadAge, until ctx ends. It
// runs on all nodes; the node that comes second finds the upload deleted.
func (o *Objects) Run(ctx context.Context) error {
	tick := time.NewTicker(staleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := o.SweepUploads(ctx); err != nil && ctx.Err() == nil {
			o.opts.Logger.WarnContext(ctx, "cannot discard old uploads", "err", err)
		}
	}
}

// begun returns two times for a new upload. created is its creation time: the time of this node's
// clock, or that of most members if this clock is slow. since is a time at which the upload is
// certainly open already, whichever of these clocks is right; 0 if the clocks of the members are
// unknown.
func (o *Objects) begun() (created, since state.Millis) {
	early, late, known := o.opts.Agreed()
	created = max(o.now(), early)
	if known {
		since = max(created, late)
	}
	return created, since
}

// SweepUploads does one pass of Run. It computes the age of uploads by the clocks of most
// members, and deletes none while these are unknown. If the clock at the creation of an upload
// was fast or the time of most members was unknown, the age counts from the first pass that finds
// the upload.
func (o *Objects) SweepUploads(ctx context.Context) error {
	early, late, known := o.opts.Agreed()
	if !known {
		return nil
	}
	since := max(o.now(), late)
	undated := func(v state.View) ([]state.OpenUpload, error) { return v.UploadsUndated(since, stalePage) }
	err := o.eachUpload(ctx, undated, func(u state.OpenUpload) error {
		_, err := o.propose(ctx, &state.DateUpload{Account: u.Account, Bucket: u.Bucket, Born: u.Born, Key: u.Key, ID: u.ID, Since: since})
		return err
	})
	if err != nil {
		return fmt.Errorf("date open uploads: %w", err)
	}
	before := early - state.Millis(o.opts.UploadAge.Milliseconds())
	old := func(v state.View) ([]state.OpenUpload, error) { return v.UploadsBefore(before, stalePage) }
	err = o.eachUpload(ctx, old, func(u state.OpenUpload) error {
		_, err := o.propose(ctx, &state.AbortUpload{Account: u.Account, Bucket: u.Bucket, Born: u.Born, Key: u.Key, ID: u.ID})
		if err == nil {
			o.opts.Logger.InfoContext(ctx, "old upload discarded", "account", u.Account, "bucket", u.Bucket, "upload", u.ID)
		}
		return err
	})
	return wrap("discard old uploads", err)
}

// eachUpload calls find repeatedly, and fn for each upload found, until find returns none. fn
// must change the upload so that find does not return it again. Errors of fn that mean that the
// upload is gone are ignored.
func (o *Objects) eachUpload(ctx context.Context, find func(state.View) ([]state.OpenUpload, error), fn func(state.OpenUpload) error) error {
	for {
		view, release := o.opts.State.LocalView()
		found, err := find(view)
		release()
		if err != nil || len(found) == 0 {
			return err
		}
		for _, u := range found {
			if err := fn(u); err != nil && !errors.Is(err, state.ErrNoUpload) && !errors.Is(err, state.ErrNoBucket) {
				return err
			}
		}
	}
}
