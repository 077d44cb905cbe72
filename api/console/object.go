package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// versionRows is the maximum number of versions on the page of an object.
const versionRows = 100

// objectData is the data of the page of an object.
type objectData struct {
	Object   state.Object
	Bucket   string
	Version  state.VersionID // version in the address; "" means the current one
	Above    []link          // links to the bucket and to each folder of the key
	Name     string          // last part of the key
	Folder   string          // the key without its last part
	Blake3   string          // hash in hexadecimal digits; empty if it is unknown
	Type     string          // Content-Type
	Held     int             // nodes that store the complete content
	Wanted   int             // nodes that should store it; 0 if the cluster stores no content for the object
	Preview  string          // kind of preview: "image", "audio", "video", "page" or ""
	Versions []versionRow
	Older    string // address of the page with older versions; empty if there is none
	To       string // new key in the form for moving
	Replaced bool   // versioning is off or suspended, so a change replaces the version without an id
	Tags     string // one key=value in each line
	KeepTags bool   // the tags cannot be written as lines, so the form does not change them
	Metadata metadataForm
	Headers  []headerField  // headers that the object has, except Content-Type
	Keys     []accounts.Key // keys that can sign a presigned URL
	Shares   []life         // choices for the validity of a presigned URL
	Lives    []life         // choices for the validity of a share
	Link     string         // presigned URL; empty if none was requested
	LinkEnds time.Time
	Error    string
}

// Address returns the path and query of a page about this object. what is the last segment of the
// path, such as object or download.
func (d objectData) Address(what string) string {
	return addressOf(what, d.Bucket, d.Object.Key, d.Version)
}

// versionRow is a row in the list of versions of an object.
type versionRow struct {
	state.Object
	Address string
	Newest  bool
}

// shares are the choices for the validity of a presigned URL. The first is the default.
var shares = []life{
	{"1 hour", "1h", time.Hour},
	{"1 day", "1d", 24 * time.Hour},
	{"7 days", "7d", 7 * 24 * time.Hour}, // the most that a presigned link has
}

// addressOf returns the path and query of a page about an object. what is the last segment of the
// path. The key is in the query, because it may contain // and .. .
func addressOf(what, bucket, key string, version state.VersionID) string {
	values := url.Values{"key": {key}}
	if version != "" {
		values.Set("version", string(version))
	}
	return "/buckets/" + url.PathEscape(bucket) + "/" + what + "?" + values.Encode()
}

func objectAddress(bucket, key string, version state.VersionID) string {
	return addressOf("object", bucket, key, version)
}

// version returns the query parameter version; "" means the current version.
func (c *call) version() state.VersionID { return state.VersionID(c.r.URL.Query().Get("version")) }

// objectOf returns the object with the key and the version in the query. It may be a delete
// marker.
func (s *surface) objectOf(c *call) (state.Object, error) {
	o, err := s.Objects.Object(c.asking(c.ctx), c.who.Account, c.bucketName(), c.r.URL.Query().Get("key"), c.version())
	if err != nil {
		return o, fmt.Errorf("find object: %w", err)
	}
	return o, nil
}

// objectPage serves GET /buckets/{bucket}/object, the page of one object.
func (s *surface) objectPage(c *call) error {
	d, err := s.objectData(c)
	if err != nil {
		return err
	}
	return s.showObject(c, http.StatusOK, d)
}

// showObject answers with the page of an object. The page may load audio and video from this
// origin, for the preview.
func (s *surface) showObject(c *call, status int, d objectData) error {
	if d.Preview == "audio" || d.Preview == "video" {
		c.w.Header().Set("Content-Security-Policy", policy+"; media-src 'self'")
	}
	return s.show(c, status, "object", d.Name, "buckets", d)
}

func (s *surface) objectData(c *call) (objectData, error) {
	o, err := s.objectOf(c)
	if err != nil {
		return objectData{}, err
	}
	d := objectData{Object: o, Bucket: c.bucketName(), Version: c.version(), Type: typeOf(&o), Preview: previewOf(&o), To: o.Key, Shares: shares, Lives: shareLives}
	d.Folder = o.Key[:strings.LastIndexByte(o.Key, '/')+1]
	d.Above, d.Name = above(d.Bucket, d.Folder), below(o.Key, d.Folder)
	if len(o.Blake3) > 0 {
		d.Blake3 = fmt.Sprintf("%x", o.Blake3)
	}
	tags := map[string]string{}
	for _, t := range o.Tags {
		tags[t.Key] = t.Value
	}
	var lines bool
	d.Tags, lines = linesOf(tags)
	d.KeepTags = !lines
	d.Metadata = metadataFormOf(&o)
	for _, h := range d.Metadata.Headers {
		if h.Value != "" && h.Name != "Content-Type" {
			d.Headers = append(d.Headers, h)
		}
	}
	b, err := s.Objects.Bucket(c.asking(c.ctx), c.who.Account, d.Bucket)
	if err != nil {
		return d, fmt.Errorf("find bucket: %w", err)
	}
	d.Replaced = b.Versioning == state.Suspended
	if d.Held, d.Wanted, err = s.Objects.Copies(c.asking(c.ctx), &o); err != nil {
		return d, fmt.Errorf("count copies: %w", err)
	}
	if d.Versions, d.Older, err = s.versionsOf(c, &b, &o); err != nil {
		return d, err
	}
	all, err := s.Accounts.Keys(c.ctx, c.who.Email)
	if err != nil {
		return d, fmt.Errorf("list keys: %w", err)
	}
	now := time.Now()
	for _, k := range all {
		if slices.Contains(strings.Fields(k.Scope), state.ScopeRead) && (k.Expires.IsZero() || k.Expires.After(now)) {
			d.Keys = append(d.Keys, k)
		}
	}
	return d, nil
}

// afterField is the query parameter with the version after which the list of versions begins.
const afterField = "after"

// versionsOf returns the versions of the key of o, the newest first, and the address of the page
// with older ones. It returns none for a bucket that has never had versioning.
func (s *surface) versionsOf(c *call, b *state.Bucket, o *state.Object) (rows []versionRow, older string, err error) {
	if b.Versioning == state.Unversioned {
		return nil, "", nil
	}
	q := state.VersionsQuery{Prefix: o.Key, Limit: versionRows + 1, AfterID: state.VersionID(c.r.URL.Query().Get(afterField))}
	if q.AfterID != "" {
		q.AfterKey = o.Key
	}
	page, err := s.Objects.Versions(c.asking(c.ctx), c.who.Account, b.Name, q)
	if err != nil {
		return nil, "", fmt.Errorf("list versions: %w", err)
	}
	var last state.VersionID
	for i := range page.Versions {
		v := page.Versions[i]
		if v.Key != o.Key {
			break // the keys that begin with this one come behind it
		}
		if len(rows) == versionRows {
			after := url.Values{afterField: {string(last)}}
			return rows, objectAddress(b.Name, o.Key, c.version()) + "&" + after.Encode() + "#versions", nil
		}
		id := v.ID
		if !v.Versioned {
			id = state.NullVersion
		}
		last = id
		rows = append(rows, versionRow{v, objectAddress(b.Name, v.Key, id), page.Latest[i]})
	}
	return rows, "", nil
}

// deleteObject serves POST /buckets/{bucket}/object/delete: it deletes an object, or one version
// of it.
func (s *surface) deleteObject(c *call) error {
	o, err := s.objectOf(c)
	if err != nil {
		return err
	}
	if _, err := s.Objects.Delete(c.asking(c.ctx), c.who.Account, c.bucketName(), o.Key, c.version(), state.Condition{}); err != nil {
		return fmt.Errorf("delete object: %w", err)
	}
	return c.redirect(bucketAddress(c.bucketName(), o.Key[:strings.LastIndexByte(o.Key, '/')+1]))
}

// shareObject serves POST /buckets/{bucket}/object/share. It creates a presigned URL, signed with
// a key of the account. Everybody who has the URL can download the object until it expires.
func (s *surface) shareObject(c *call) error {
	form := c.r.PostForm
	d, err := s.objectData(c)
	if err != nil {
		return err
	}
	ttl, err := ttlOf(shares, form.Get("expiry"))
	if err != nil {
		return err
	}
	endpoint := s.endpoints(c).S3
	if endpoint == "" || s.Presign == nil || d.Object.Marker {
		return web.BadRequest("there is no link to this object")
	}
	if !slices.ContainsFunc(d.Keys, func(k accounts.Key) bool { return string(k.ID) == form.Get("signer") }) {
		return state.ErrNotFound
	}
	key, err := s.Accounts.Show(c.ctx, state.KeyID(form.Get("signer")))
	if err != nil {
		return fmt.Errorf("show key: %w", err)
	}
	now := time.Now()
	d.LinkEnds = now.Add(ttl)
	if !key.Expires.IsZero() && key.Expires.Before(d.LinkEnds) {
		d.LinkEnds = key.Expires
	}
	d.Link = s.Presign(web.Link{
		Endpoint: endpoint, Bucket: d.Bucket, Key: d.Object.Key, Version: string(d.Version),
		AccessKeyID: key.AccessKeyID, Secret: key.SecretAccessKey, At: now, For: ttl,
	})
	return s.showObject(c, http.StatusOK, d)
}

// typeOf returns the Content-Type of an object. For content that a client has encrypted it is the
// type before the encryption.
func typeOf(o *state.Object) string {
	return cmp.Or(o.Headers["Content-Type"], "application/octet-stream")
}
