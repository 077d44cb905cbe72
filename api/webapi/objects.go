package webapi

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// bucketBody is a bucket.
type bucketBody struct {
	Name       string `json:"name"`
	Created    string `json:"created"`
	Public     bool   `json:"public"`
	Versioning string `json:"versioning"` // off, enabled or suspended
}

func bodyOfBucket(b *state.Bucket) bucketBody {
	versioning := "off"
	switch b.Versioning {
	case state.Versioned:
		versioning = "enabled"
	case state.Suspended:
		versioning = "suspended"
	}
	return bucketBody{b.Name, timeText(b.Created.Time()), b.Public, versioning}
}

// bucketsBody has all buckets of an account. There are at most state.MaxBucketsPerUser, so the
// list has no pages.
type bucketsBody struct {
	Results []bucketBody `json:"results"`
}

// bucket returns the segment {bucket} of the path.
func (c *call) bucket() string { return c.r.PathValue("bucket") }

// listBuckets answers GET /buckets, ordered by name.
func (s *surface) listBuckets(c *call) error {
	all, err := s.Objects.Buckets(c.ctx, c.who.Account)
	if err != nil {
		return fmt.Errorf("list buckets: %w", err)
	}
	body := bucketsBody{Results: []bucketBody{}}
	for i := range all {
		body.Results = append(body.Results, bodyOfBucket(&all[i]))
	}
	return c.ok(body)
}

// createBucket answers POST /buckets: it creates a bucket and returns it.
func (s *surface) createBucket(c *call) error {
	name, err := c.text("name")
	if err != nil {
		return err
	}
	public, _, err := c.fields.Bool("public")
	if err != nil {
		return err
	}
	if !web.ValidBucket(name) {
		return web.BadRequest("the name of a bucket has 3 to 63 lower case letters, digits, dots and hyphens, begins and ends with a letter or a digit, and is no IP address")
	}
	if err := s.Objects.CreateBucket(c.ctx, c.who.Account, name, public); err != nil {
		return fmt.Errorf("create bucket: %w", err)
	}
	b, err := s.Objects.Bucket(c.ctx, c.who.Account, name)
	if err != nil {
		return fmt.Errorf("find bucket: %w", err)
	}
	return c.created(bodyOfBucket(&b))
}

// deleteBucket answers DELETE /buckets/{bucket}: it deletes an empty bucket.
func (s *surface) deleteBucket(c *call) error {
	if err := s.Objects.DeleteBucket(c.ctx, c.who.Account, c.bucket()); err != nil {
		return fmt.Errorf("delete bucket: %w", err)
	}
	return c.done()
}

// rowBody is an object in a list.
type rowBody struct {
	Key     string `json:"key"`
	Size    uint64 `json:"size"`
	ETag    string `json:"etag"`
	Created string `json:"created"`
	CID     string `json:"cid"`
}

// objectsBody is a page of a bucket's objects.
type objectsBody struct {
	Results  []rowBody `json:"results"`
	Prefixes []string  `json:"prefixes"`       // common prefixes as in S3, which end with the delimiter
	Next     string    `json:"next,omitempty"` // cursor of the next page
}

// listObjects answers GET /buckets/{bucket}/objects and GET /shared/{bucket}, ordered by key.
func (s *surface) listObjects(c *call) (err error) {
	q := state.ObjectsQuery{Prefix: c.query.Get("prefix"), Delimiter: c.query.Get("delimiter")}
	if q.Limit, err = c.limit(); err != nil {
		return err
	}
	if q.After, err = c.cursor(); err != nil {
		return err
	}
	for _, text := range []string{q.Prefix, q.Delimiter, q.After} {
		if len(text) > state.MaxKeyBytes {
			return web.BadRequest("a key has %d bytes at most, and so have prefix, delimiter and cursor", state.MaxKeyBytes)
		}
	}
	page, err := s.Objects.List(c.ctx, c.who.Account, c.bucket(), q)
	if err != nil {
		return fmt.Errorf("list objects: %w", err)
	}
	body := objectsBody{Results: []rowBody{}, Prefixes: append([]string{}, page.Prefixes...)}
	for i := range page.Objects {
		o := &page.Objects[i]
		body.Results = append(body.Results, rowBody{o.Key, o.Size, o.ETag, timeText(o.Created.Time()), o.Root.Cid().String()})
	}
	if page.Truncated {
		body.Next = cursorOf(page.Next)
	}
	return c.ok(body)
}

// objectBody is a version of an object without its content. A delete marker has only a key, a
// version and a time.
type objectBody struct {
	Key         string            `json:"key"`
	Version     string            `json:"version,omitempty"` // id of the version, if the object has versions
	Created     string            `json:"created"`
	Marker      bool              `json:"delete_marker,omitempty"`
	Size        uint64            `json:"size,omitempty"`
	ETag        string            `json:"etag,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	CID         string            `json:"cid,omitempty"`
	Blake3      string            `json:"blake3,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
}

func bodyOfObject(o *state.Object) objectBody {
	body := objectBody{Key: o.Key, Created: timeText(o.Created.Time()), Marker: o.Marker}
	if o.Versioned {
		body.Version = string(o.ID)
	}
	if o.Marker {
		return body
	}
	body.Size, body.ETag, body.Meta = o.Size, o.ETag, o.Meta
	body.ContentType = cmp.Or(o.Headers["Content-Type"], "application/octet-stream")
	body.CID, body.Blake3 = o.Root.Cid().String(), hex.EncodeToString(o.Blake3)
	return body
}

// object returns the object with the key and the version in the query. The result may be a delete
// marker.
func (s *surface) object(c *call) (state.Object, error) {
	key := c.query.Get("key")
	if key == "" {
		return state.Object{}, web.BadRequest("key is missing or empty")
	}
	o, err := s.Objects.Object(c.ctx, c.who.Account, c.bucket(), key, c.version())
	if err != nil {
		return state.Object{}, fmt.Errorf("find object: %w", err)
	}
	return o, nil
}

// version returns the query parameter version; "" means the current version.
func (c *call) version() state.VersionID { return state.VersionID(c.query.Get("version")) }

// getObject answers GET /buckets/{bucket}/object with the metadata of an object.
func (s *surface) getObject(c *call) error {
	o, err := s.object(c)
	if err != nil {
		return err
	}
	return c.ok(bodyOfObject(&o))
}

// deleteObject answers DELETE /buckets/{bucket}/object. Without a version it adds a delete marker
// if the bucket has versioning.
func (s *surface) deleteObject(c *call) error {
	o, err := s.object(c)
	if err != nil {
		return err
	}
	if _, err := s.Objects.Delete(c.ctx, c.who.Account, c.bucket(), o.Key, c.version(), state.Condition{}); err != nil {
		return fmt.Errorf("delete object: %w", err)
	}
	return c.done()
}

// Default and maximum lifetime of a presigned URL. The maximum is that of Amazon S3.
const (
	defaultLink = time.Hour
	maxLink     = 7 * 24 * time.Hour
)

// linkBody is a presigned URL with its expiry.
type linkBody struct {
	URL     string `json:"url"`
	Expires string `json:"expires"`
}

// linkObject answers POST /buckets/{bucket}/object/link with a presigned URL, signed with one of
// the account's keys. Everybody who has the URL can read the object until it expires.
func (s *surface) linkObject(c *call) error {
	id, err := c.text("key_id")
	if err != nil {
		return err
	}
	life, given, err := c.seconds("expires_in", maxLink)
	if err != nil {
		return err
	}
	if !given {
		life = defaultLink
	}
	o, err := s.object(c)
	if err != nil {
		return err
	}
	key, err := s.ownKey(c, id)
	if err != nil {
		return err
	}
	now := time.Now()
	if !slices.Contains(strings.Fields(key.Scope), state.ScopeRead) || !key.Expires.IsZero() && !key.Expires.After(now) {
		return web.BadRequest("the key may not read, or has expired")
	}
	endpoint := s.S3URL(c.r.Host, s.Limits.Scheme(c.r))
	if endpoint == "" || o.Marker {
		return web.BadRequest("there is no link to this object")
	}
	if key, err = s.Accounts.Show(c.ctx, key.ID); err != nil {
		return fmt.Errorf("show key: %w", err)
	}
	ends := now.Add(life)
	if !key.Expires.IsZero() && key.Expires.Before(ends) {
		ends = key.Expires
	}
	url := s.Presign(web.Link{
		Endpoint: endpoint, Bucket: c.bucket(), Key: o.Key, Version: string(c.version()),
		AccessKeyID: key.AccessKeyID, Secret: key.SecretAccessKey, At: now, For: life,
	})
	return c.ok(linkBody{url, timeText(ends)})
}
