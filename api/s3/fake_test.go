package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/bao"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"
	"lukechampine.com/blake3"
)

// fake is cluster/objects in memory: it keeps what it is given and judges
// conditions, in the order that the state machine does.
type fake struct {
	mu      sync.Mutex
	buckets map[state.AccountID]map[string]*fakeBucket
	content map[state.RootKey][]byte
	ticks   int64
	minPart uint64
	asked   int    // how often for CORS rules and checksums of parts
	seen    uint64 // what the last look for a bucket said

	// err, when it is set, is what every call ends in.
	err error
	// slow is how long the cluster takes for each Delete.
	slow time.Duration
	// going, when it is set, is called by Open, whose content is gone then.
	going func()
	// torn is how many bytes a reader gives before it fails; negative: all.
	torn int
}

type fakeBucket struct {
	state.Bucket
	cors    []state.CorsRule
	tags    []state.Tag
	objects map[string]state.Object   // that are current
	old     map[string][]state.Object // versions that are not, and delete markers, the newest first
	sums    map[state.VersionID]*state.PartSums
	uploads map[state.UploadID]*fakeUpload
}

type fakeUpload struct {
	state.Upload
	parts map[int]state.Part
}

func newFake() *fake {
	return &fake{buckets: map[state.AccountID]map[string]*fakeBucket{}, content: map[state.RootKey][]byte{}, minPart: 5, torn: -1}
}

// tick returns the time, a second later each time: HTTP has no finer one.
func (f *fake) tick() state.Millis {
	f.ticks++
	return state.Millis(1_767_323_045_678 + f.ticks*1000)
}

func (f *fake) id(kind string) string { return fmt.Sprintf("%s-%d", kind, f.ticks) }

func (f *fake) bucket(a state.AccountID, name string) (*fakeBucket, error) {
	if f.err != nil {
		return nil, f.err
	}
	b := f.buckets[a][name]
	if b == nil {
		return nil, fmt.Errorf("fake: %w", state.ErrNoBucket)
	}
	return b, nil
}

func (b *fakeBucket) object(key string) (state.Object, error) {
	o, ok := b.objects[key]
	if !ok {
		return state.Object{}, fmt.Errorf("fake: %w", state.ErrNoKey)
	}
	return o, nil
}

// judge is state.Condition's.
func (b *fakeBucket) judge(key string, c state.Condition) error {
	if o, there := b.objects[key]; there {
		return c.Judge(&o)
	}
	return c.Judge(nil)
}

func (f *fake) Buckets(_ context.Context, a state.AccountID) (all []state.Bucket, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.buckets[a])) {
		all = append(all, f.buckets[a][name].Bucket)
	}
	return all, f.err
}

func (f *fake) CreateBucket(ctx context.Context, a state.AccountID, name string, public bool) error {
	if err := objects.CheckAuth(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if f.buckets[a] == nil {
		f.buckets[a] = map[string]*fakeBucket{}
	}
	if f.buckets[a][name] != nil {
		return state.ErrExists
	}
	if len(f.buckets[a]) == state.MaxBucketsPerUser {
		return state.ErrTooLarge
	}
	f.buckets[a][name] = &fakeBucket{state.Bucket{Account: a, Name: name, Created: f.tick(), Public: public}, nil, nil, map[string]state.Object{}, map[string][]state.Object{}, map[state.VersionID]*state.PartSums{}, map[state.UploadID]*fakeUpload{}}
	return nil
}

func (f *fake) SetPublic(ctx context.Context, a state.AccountID, name string, public bool) error {
	if err := objects.CheckAuth(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, name)
	if err == nil {
		b.Public = public
	}
	return err
}

func (f *fake) Cors(_ context.Context, a state.AccountID, name string) ([]state.CorsRule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	b, err := f.bucket(a, name)
	if err != nil {
		return nil, err
	}
	return b.cors, nil
}

func (f *fake) SetCors(ctx context.Context, a state.AccountID, name string, rules []state.CorsRule) error {
	if err := objects.CheckAuth(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, name)
	if err == nil {
		b.cors = rules
	}
	return err
}

func (f *fake) DeleteBucket(ctx context.Context, a state.AccountID, name string) error {
	if err := objects.CheckAuth(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, name)
	if err != nil {
		return err
	}
	for _, old := range b.old {
		if len(old) > 0 {
			return state.ErrNotEmpty
		}
	}
	if len(b.objects) > 0 {
		return state.ErrNotEmpty
	}
	delete(f.buckets[a], name)
	return nil
}

func (f *fake) Bucket(ctx context.Context, a state.AccountID, name string) (state.Bucket, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = objects.SeenIndex(ctx)
	b, err := f.bucket(a, name)
	if err != nil {
		return state.Bucket{}, err
	}
	return b.Bucket, nil
}

// entry is a key or a prefix of a page.
type entry struct {
	name   string
	prefix bool
}

// page rolls sorted keys up and returns those above after, which may be what they are
// rolled up into.
func page(keys []string, prefix, delimiter, after string, limit int) (entries []entry, truncated bool) {
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		e := entry{name: key}
		if delimiter != "" {
			if at := strings.Index(key[len(prefix):], delimiter); at >= 0 {
				e = entry{key[:len(prefix)+at+len(delimiter)], true}
			}
		}
		if key <= after || e.prefix && e.name == after || len(entries) > 0 && entries[len(entries)-1] == e {
			continue
		}
		if len(entries) == limit {
			return entries, true
		}
		entries = append(entries, e)
	}
	return entries, false
}

func (f *fake) List(_ context.Context, a state.AccountID, bucket string, q state.ObjectsQuery) (p state.ObjectsPage, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return p, err
	}
	if q.Limit < 1 || q.Limit > state.MaxListLimit {
		return p, fmt.Errorf("fake: a limit of %d", q.Limit)
	}
	entries, truncated := page(slices.Sorted(maps.Keys(b.objects)), q.Prefix, q.Delimiter, q.After, q.Limit)
	for _, e := range entries {
		if e.prefix {
			p.Prefixes = append(p.Prefixes, e.name)
		} else {
			p.Objects = append(p.Objects, b.objects[e.name])
		}
		if truncated {
			p.Truncated, p.Next = true, e.name
		}
	}
	return p, nil
}

// store reads a body to its end and checks it.
func (f *fake) store(body objects.Body) (data []byte, etag string, sums []state.Checksum, err error) {
	data, err = io.ReadAll(body.Reader)
	if err != nil {
		return nil, "", nil, fmt.Errorf("fake: store: %w", err)
	}
	if body.Size >= 0 && int64(len(data)) != body.Size {
		return nil, "", nil, fmt.Errorf("fake: %d bytes, not %d", len(data), body.Size)
	}
	got := objects.Sums{MD5: md5.Sum(data), By: map[string][]byte{}}
	for _, name := range body.Sums {
		got.By[name] = digest(name, data)
	}
	if body.Check != nil {
		if sums, err = body.Check(got); err != nil {
			return nil, "", nil, fmt.Errorf("fake: check: %w", err)
		}
	}
	return data, hex.EncodeToString(got.MD5[:]), sums, nil
}

func digest(name string, data []byte) []byte {
	a, err := algorithmBy(name)
	if err != nil {
		panic(err)
	}
	h := objects.NewHash(a.name)
	h.Write(data)
	return h.Sum(nil)
}

func (f *fake) keep(data []byte) state.RootKey {
	sum := sha256.Sum256(data)
	hash, err := mh.Encode(sum[:], mh.SHA2_256)
	if err != nil {
		panic(err)
	}
	root := state.RootOf(cid.NewCidV1(cid.Raw, hash))
	f.content[root] = data
	return root
}

func (f *fake) Put(ctx context.Context, a state.AccountID, bucket string, r objects.PutRequest) (o state.Object, err error) {
	f.mu.Lock()
	_, err = f.bucket(a, bucket)
	f.mu.Unlock()
	if err != nil {
		return o, err
	}
	data, etag, sums, err := f.store(r.Body)
	if err == nil {
		err = objects.CheckAuth(ctx)
	}
	if err != nil {
		return o, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err == nil {
		err = b.judge(r.Key, r.If)
	}
	if err != nil {
		return o, err
	}
	o = state.Object{
		Key: r.Key, Root: f.keep(data), Size: uint64(len(data)), Created: f.tick(), ETag: etag,
		Headers: r.Attributes.Headers, Meta: r.Attributes.Meta, Tags: r.Attributes.Tags, Checksums: sums, StorageClass: r.Attributes.StorageClass,
	}
	o.ID = state.VersionID(f.id("version"))
	sum := blake3.Sum256(data)
	o.Blake3 = sum[:]
	return b.add(o), nil
}

// Bao is that of objects over content in memory.
func (f *fake) Bao(ctx context.Context, a state.AccountID, o *state.Object, s *objects.Slice) (*objects.Encoding, error) {
	content, err := f.Open(ctx, a, o)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := bao.NewIndex(bytes.NewReader(f.content[o.Root]), o.Size)
	if err != nil {
		return nil, err
	}
	return objects.NewEncoding(x, content, s), nil
}

func (f *fake) Object(_ context.Context, a state.AccountID, bucket, key string, id state.VersionID) (state.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return state.Object{}, err
	}
	return b.version(key, id)
}

func (f *fake) PartSums(_ context.Context, a state.AccountID, bucket string, o *state.Object) (*state.PartSums, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return nil, err
	}
	f.asked++
	return b.sums[o.ID], nil
}

var errTorn = errors.New("fake: the disk is gone")

type tornReader struct {
	io.ReadSeeker
	left int
}

func (t *tornReader) Read(p []byte) (int, error) {
	if t.left < 0 {
		return t.ReadSeeker.Read(p)
	}
	if t.left == 0 {
		return 0, errTorn
	}
	n, err := t.ReadSeeker.Read(p[:min(len(p), t.left)])
	t.left -= n
	return n, err
}

// WriteTo writes block by block, as content of the real one does.
func (t *tornReader) WriteTo(w io.Writer) (n int64, err error) {
	for block := make([]byte, 300_000); err == nil; {
		var read, written int
		read, err = t.Read(block)
		if read > 0 {
			var failed error
			written, failed = w.Write(block[:read])
			n, err = n+int64(written), errors.Join(err, failed)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (t *tornReader) Close() error { return nil }

func (f *fake) Open(_ context.Context, _ state.AccountID, o *state.Object) (io.ReadSeekCloser, error) {
	if f.going != nil {
		f.going()
		return nil, fmt.Errorf("fake: %w", state.ErrNotFound)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &tornReader{bytes.NewReader(f.content[o.Root]), f.torn}, f.err
}

func (f *fake) Delete(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, c state.Condition) (d objects.Deleted, err error) {
	if err := objects.CheckAuth(ctx); err != nil {
		return d, err
	}
	select {
	case <-time.After(f.slow):
	case <-ctx.Done():
		return d, state.ErrUnavailable
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return d, err
	}
	doomed, err := b.version(key, id)
	there := err == nil && (c.AbsentOK || !doomed.Marker)
	if err = c.Judge(nil); there {
		err = c.Judge(&doomed)
	}
	if err == nil && (there || id != "" || c.None()) {
		d = f.remove(b, key, id)
	}
	if d.Missed {
		err = state.ErrNoVersion
	}
	return d, err
}

func (f *fake) DeleteMany(ctx context.Context, a state.AccountID, bucket string, all []objects.Doomed) (gone []objects.Deleted, err error) {
	if err := objects.CheckAuth(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return nil, err
	}
	if len(all) > state.MaxDeleteKeys {
		return nil, state.ErrTooLarge
	}
	for _, d := range all {
		gone = append(gone, f.remove(b, d.Key, d.ID))
	}
	return gone, nil
}

func (f *fake) source(a state.AccountID, bucket, key string, version state.VersionID, judge func(*state.Object) error) (state.Object, error) {
	b, err := f.bucket(a, bucket)
	if err != nil {
		return state.Object{}, &objects.SourceError{Err: err}
	}
	o, err := b.version(key, version)
	if err == nil && o.Marker && version == "" {
		err = state.ErrNoKey
	}
	if err != nil {
		return o, &objects.SourceError{Err: err}
	}
	if judge != nil {
		err = judge(&o)
	}
	return o, err
}

func (f *fake) Copy(ctx context.Context, a state.AccountID, bucket string, r objects.CopyRequest) (o state.Object, err error) {
	if err := objects.CheckAuth(ctx); err != nil {
		return o, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return o, err
	}
	if o, err = f.source(a, r.SourceBucket, r.Source, r.SourceVersion, r.SourceIf); err != nil {
		return o, err
	}
	if err := b.judge(r.Key, r.If); err != nil {
		return o, err
	}
	if r.Replace != nil {
		o.Headers, o.Meta = r.Replace.Headers, r.Replace.Meta
		if !r.KeepTags {
			o.Tags = r.Replace.Tags
		}
	}
	o.Key, o.Created, o.Upload, o.StorageClass = r.Key, f.tick(), "", r.StorageClass
	if r.Algorithm != "" {
		h := objects.NewHash(r.Algorithm)
		h.Write(f.content[o.Root])
		o.Checksums = []state.Checksum{{Algorithm: r.Algorithm, Value: h.Sum(nil)}}
	}
	o.ID = state.VersionID(f.id("version"))
	return b.add(o), nil
}

func (f *fake) SetTags(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, tags []state.Tag) error {
	if err := objects.CheckAuth(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return err
	}
	for i := range b.old[key] {
		if id != "" && named(&b.old[key][i], id) {
			b.old[key][i].Tags = tags
			return nil
		}
	}
	o, err := b.object(key)
	switch {
	case err == nil && (id == "" || named(&o, id)):
		o.Tags = tags
		b.objects[key] = o
	case id != "" && b.Versioning != state.Unversioned:
		err = state.ErrNoVersion
	}
	return err
}

func (f *fake) CreateUpload(ctx context.Context, a state.AccountID, bucket string, r objects.UploadRequest) (state.UploadID, error) {
	if err := objects.CheckAuth(ctx); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return "", err
	}
	u := &fakeUpload{state.Upload{
		Key: r.Key, Created: f.tick(), Headers: r.Attributes.Headers, Meta: r.Attributes.Meta, Tags: r.Attributes.Tags, StorageClass: r.Attributes.StorageClass,
		Checksum: state.Checksum{Algorithm: r.Algorithm, Composite: r.Composite},
	}, map[int]state.Part{}}
	u.ID = state.UploadID(f.id("upload"))
	b.uploads[u.ID] = u
	return u.ID, nil
}

func (f *fake) upload(a state.AccountID, bucket, key string, id state.UploadID) (*fakeUpload, error) {
	b, err := f.bucket(a, bucket)
	if err != nil {
		return nil, err
	}
	u := b.uploads[id]
	if u == nil || u.Key != key {
		return nil, state.ErrNoUpload
	}
	return u, nil
}

func (f *fake) PutPart(ctx context.Context, a state.AccountID, bucket string, r objects.PartRequest) (p state.Part, err error) {
	data, etag, sums, err := f.store(r.Body)
	if err == nil {
		err = objects.CheckAuth(ctx)
	}
	if err != nil {
		return p, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addPart(a, bucket, r.Key, r.Upload, state.Part{Number: uint16(r.Number), ETag: etag, Checksums: sums}, data)
}

func (f *fake) addPart(a state.AccountID, bucket, key string, id state.UploadID, p state.Part, data []byte) (state.Part, error) {
	u, err := f.upload(a, bucket, key, id)
	if err != nil {
		return p, err
	}
	p.Root, p.Size, p.Created = f.keep(data), uint64(len(data)), f.tick()
	u.parts[int(p.Number)] = p
	return p, nil
}

func (f *fake) CopyPart(ctx context.Context, a state.AccountID, bucket string, r objects.PartCopyRequest) (p state.Part, err error) {
	if err := objects.CheckAuth(ctx); err != nil {
		return p, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	up, err := f.upload(a, bucket, r.Key, r.Upload)
	if err != nil {
		return p, err
	}
	o, err := f.source(a, r.SourceBucket, r.Source, r.SourceVersion, r.SourceIf)
	if err != nil {
		return p, err
	}
	first, count, err := r.Range(o.Size)
	if err != nil {
		return p, fmt.Errorf("fake: %w", err)
	}
	data := f.content[o.Root][first : first+count]
	sum := md5.Sum(data)
	p = state.Part{Number: uint16(r.Number), ETag: hex.EncodeToString(sum[:])}
	if wanted := up.Checksum.Algorithm; wanted != "" {
		h := objects.NewHash(wanted)
		h.Write(data)
		p.Checksums = []state.Checksum{{Algorithm: wanted, Value: h.Sum(nil)}}
	}
	return f.addPart(a, bucket, r.Key, r.Upload, p, data)
}

func (f *fake) Complete(ctx context.Context, a state.AccountID, bucket string, r objects.CompleteRequest) (o state.Object, err error) {
	if err := objects.CheckAuth(ctx); err != nil {
		return o, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return o, err
	}
	u, err := f.upload(a, bucket, r.Key, r.Upload)
	if err != nil {
		if o, ok := b.objects[r.Key]; ok && o.Upload == r.Upload {
			return o, nil
		}
		return o, err
	}
	var data, md5s, composed []byte
	for i, listed := range r.Parts {
		p, ok := u.parts[listed.Number]
		if !ok || p.ETag != listed.ETag {
			return o, state.ErrInvalidPart
		}
		for _, sum := range p.Checksums {
			if want, given := listed.Checksums[sum.Algorithm]; given && !bytes.Equal(want, sum.Value) {
				return o, state.ErrInvalidPart
			}
			composed = append(composed, sum.Value...)
		}
		if p.Size < f.minPart && i < len(r.Parts)-1 {
			return o, state.ErrTooSmall
		}
		raw, err := hex.DecodeString(p.ETag)
		if err != nil {
			return o, err
		}
		data, md5s = append(data, f.content[p.Root]...), append(md5s, raw...)
		if n := len(o.Parts); n > 0 && o.Parts[n-1].Size == p.Size {
			o.Parts[n-1].Count++
		} else {
			o.Parts = append(o.Parts, state.PartRun{Size: p.Size, Count: 1})
		}
	}
	sum := md5.Sum(md5s)
	o.ETag = fmt.Sprintf("%x-%d", sum, len(r.Parts))
	o.StorageClass = u.StorageClass
	o.Key, o.Size, o.Upload, o.Headers, o.Meta, o.Tags = r.Key, uint64(len(data)), u.ID, u.Headers, u.Meta, u.Tags
	if c := u.Checksum; c.Algorithm != "" {
		if c.Value = digest(c.Algorithm, data); c.Composite {
			c.Value = digest(c.Algorithm, composed)
		}
		o.Checksums = []state.Checksum{c}
	}
	if r.Check != nil {
		if err := r.Check(&o); err != nil {
			return o, err
		}
	}
	if err := b.judge(r.Key, r.If); err != nil {
		return o, err
	}
	o.Root, o.Created = f.keep(data), f.tick()
	o.ID = state.VersionID(f.id("version"))
	if u.Checksum.Algorithm != "" {
		b.sums[o.ID] = &state.PartSums{Algorithm: u.Checksum.Algorithm, Values: composed}
	}
	delete(b.uploads, u.ID)
	return b.add(o), nil
}

func (f *fake) Abort(ctx context.Context, a state.AccountID, bucket, key string, id state.UploadID) error {
	if err := objects.CheckAuth(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.upload(a, bucket, key, id); err != nil {
		return err
	}
	delete(f.buckets[a][bucket].uploads, id)
	return nil
}

func (f *fake) Upload(_ context.Context, a state.AccountID, bucket, key string, id state.UploadID) (state.Upload, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, err := f.upload(a, bucket, key, id)
	if err != nil {
		return state.Upload{}, err
	}
	return u.Upload, nil
}

func (f *fake) Uploads(_ context.Context, a state.AccountID, bucket string, q state.UploadsQuery) (p state.UploadsPage, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return p, err
	}
	var all []state.Upload
	for _, u := range b.uploads {
		behind := u.Key > q.AfterKey || u.Key == q.AfterKey && q.AfterID != "" && u.ID > q.AfterID
		if behind && strings.HasPrefix(u.Key, q.Prefix) {
			all = append(all, u.Upload)
		}
	}
	slices.SortFunc(all, func(x, y state.Upload) int {
		return cmp.Or(strings.Compare(x.Key, y.Key), strings.Compare(string(x.ID), string(y.ID)))
	})
	for _, u := range all {
		if q.Delimiter != "" {
			if at := strings.Index(u.Key[len(q.Prefix):], q.Delimiter); at >= 0 {
				prefix := u.Key[:len(q.Prefix)+at+len(q.Delimiter)]
				if !slices.Contains(p.Prefixes, prefix) && prefix != q.AfterKey {
					p.Prefixes = append(p.Prefixes, prefix)
				}
				continue
			}
		}
		if len(p.Uploads) == q.Limit {
			last := p.Uploads[q.Limit-1]
			p.Truncated, p.NextKey, p.NextID = true, last.Key, last.ID
			return p, nil
		}
		p.Uploads = append(p.Uploads, u)
	}
	return p, nil
}

func (f *fake) Parts(_ context.Context, a state.AccountID, bucket, key string, id state.UploadID, after, limit int) (parts []state.Part, more bool, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, err := f.upload(a, bucket, key, id)
	if err != nil {
		return nil, false, err
	}
	for _, n := range slices.Sorted(maps.Keys(u.parts)) {
		if n <= after {
			continue
		}
		if len(parts) == limit {
			return parts, true, nil
		}
		parts = append(parts, u.parts[n])
	}
	return parts, false, nil
}

func md5Sum(text string) [md5.Size]byte { return md5.Sum([]byte(text)) }
