//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// objects is one account's view of the object gateway with a Bearer token: every
// call goes to the next node, so what follows a write is read on another node.
type objects struct {
	t       *testing.T
	cluster *harness.Cluster
	token   string
	turn    *atomic.Int64
}

func newObjects(t *testing.T, c *harness.Cluster, email string, flags ...string) *objects {
	t.Helper()
	return &objects{t: t, cluster: c, token: c.Leader().UserKey(email, flags...).Token, turn: &atomic.Int64{}}
}

func (o *objects) as(t *testing.T) *objects {
	return &objects{t: t, cluster: o.cluster, token: o.token, turn: o.turn}
}

// with returns the same view with another token.
func (o *objects) with(token string) *objects {
	return &objects{t: o.t, cluster: o.cluster, token: token, turn: o.turn}
}

// reply is an answer of the gateway.
type reply = harness.Response

// s3Error is the form of an error (acceptance row 224).
type s3Error struct {
	XMLName    xml.Name `xml:"Error"`
	Code       string
	Message    string
	RequestID  string `xml:"RequestId"`
	BucketName string
}

// call sends a request to the next node; pairs are header names and values.
func (o *objects) call(method, path string, body []byte, pairs ...string) reply {
	o.t.Helper()
	live := o.cluster.Live()
	return o.callOn(live[int(o.turn.Add(1))%len(live)], method, path, body, pairs...)
}

func (o *objects) callOn(n *harness.Node, method, path string, body []byte, pairs ...string) reply {
	o.t.Helper()
	r, err := o.tryOn(n, method, path, body, pairs...)
	if err != nil {
		o.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (o *objects) tryOn(n *harness.Node, method, path string, body []byte, pairs ...string) (reply, error) {
	return o.tryFor(o.t.Context(), n, method, path, body, pairs...)
}

func (o *objects) tryFor(ctx context.Context, n *harness.Node, method, path string, body []byte, pairs ...string) (reply, error) {
	return n.S3(ctx, o.token, method, path, bytes.NewReader(body), int64(len(body)), pairs...)
}

// ok is call for what has to succeed with a status.
func (o *objects) ok(status int, method, path string, body []byte, pairs ...string) reply {
	o.t.Helper()
	r := o.call(method, path, body, pairs...)
	if r.Status != status {
		o.t.Fatalf("%s %s: %d %s, want %d", method, path, r.Status, r.Body, status)
	}
	return r
}

// refused is call for what has to end in an error of the specified form.
func (o *objects) refused(status int, code, method, path string, body []byte, pairs ...string) reply {
	o.t.Helper()
	r := o.call(method, path, body, pairs...)
	if r.Status != status {
		o.t.Errorf("%s %.200s: %d %s, want %d %s", method, path, r.Status, r.Body, status, code)
		return r
	}
	if method == http.MethodHead {
		if len(r.Body) > 0 {
			o.t.Errorf("HEAD %s has a body", path)
		}
		return r
	}
	var e s3Error
	if err := xml.Unmarshal(r.Body, &e); err != nil || e.Code != code || e.Message == "" {
		o.t.Errorf("%s %.200s: %s (%v), want %s", method, path, r.Body, err, code)
	}
	if id := r.Header.Get("X-Amz-Request-Id"); id == "" || id != e.RequestID {
		o.t.Errorf("%s %.200s: request id %q in the head, %q in the body", method, path, id, e.RequestID)
	}
	if kind := r.Header.Get("Content-Type"); kind != "application/xml" {
		o.t.Errorf("%s %.200s: an error of type %q", method, path, kind)
	}
	return r
}

// begin begins an upload of an object and returns its id.
func (o *objects) begin(path string, pairs ...string) string {
	o.t.Helper()
	r := into[initiated](o.t, o.ok(http.StatusOK, http.MethodPost, path+"?uploads", nil, pairs...))
	if "/"+r.Bucket+"/"+r.Key != path || r.UploadId == "" {
		o.t.Fatalf("%s: %+v", path, r)
	}
	return r.UploadId
}

// part uploads a part and returns its ETag.
func (o *objects) part(path, id string, n int, data []byte) string {
	o.t.Helper()
	r := o.ok(http.StatusOK, http.MethodPut, fmt.Sprintf("%s?partNumber=%d&uploadId=%s", path, n, id), data)
	if r.Header.Get("ETag") != harness.ETag(data) {
		o.t.Errorf("part %d: %v", n, r.Header)
	}
	return r.Header.Get("ETag")
}

// upload stores an object by an upload of parts.
func (o *objects) upload(path string, parts ...[]byte) reply {
	o.t.Helper()
	id := o.begin(path)
	for i, p := range parts {
		o.part(path, id, i+1, p)
	}
	return o.ok(http.StatusOK, http.MethodPost, path+"?uploadId="+id, harness.CompletionOf(parts...))
}

// oneWins puts one object by several writers through all nodes at once, under a condition that
// one of them can meet: one does.
func (o *objects) oneWins(writers int, path string, condition ...string) {
	o.t.Helper()
	var won atomic.Int32
	var g errgroup.Group
	for i := range writers {
		g.Go(func() error {
			r, err := o.tryOn(o.cluster.Nodes[i%len(o.cluster.Nodes)], http.MethodPut, path, append([]byte("new"), byte(i)), condition...)
			if r.Status == http.StatusOK {
				won.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil || won.Load() != 1 {
		o.t.Errorf("%d of %d writers of %s win: %v", won.Load(), writers, path, err)
	}
}

// into reads an answer's XML.
func into[T any](t *testing.T, r reply) T {
	t.Helper()
	var v T
	if err := xml.Unmarshal(r.Body, &v); err != nil {
		t.Fatalf("%v in %s", err, r.Body)
	}
	return v
}

type listResult struct {
	XMLName                                                               xml.Name `xml:"ListBucketResult"`
	Name, Prefix, Delimiter, Marker, NextMarker, StartAfter, EncodingType string
	KeyCount, MaxKeys                                                     int
	IsTruncated                                                           bool
	ContinuationToken, NextContinuationToken                              string
	Contents                                                              []struct {
		Key, LastModified, ETag, StorageClass string
		Size                                  int
		Owner                                 *struct{ ID, DisplayName string }
	}
	CommonPrefixes []struct{ Prefix string }
}

func (l listResult) keys() (all []string) {
	for _, c := range l.Contents {
		all = append(all, c.Key)
	}
	return all
}

func (l listResult) prefixes() (all []string) {
	for _, p := range l.CommonPrefixes {
		all = append(all, p.Prefix)
	}
	return all
}

// TestObjectGateway promises the acceptance rows of the object gateway (126 to 234) on three nodes, each call at the
// next one.
func TestObjectGateway(t *testing.T) {
	t.Parallel() // a cluster of its own
	c := harness.Start(t, harness.Options{})
	o := newObjects(t, c, "objects@example.org")
	for _, sub := range []struct {
		name string
		test func(*testing.T, *objects)
	}{
		{"permissions 126-132 229", testS3Permissions},
		{"buckets 133-143 155 225 226 228", testS3Buckets},
		{"lists 144-154", testS3Lists},
		{"objects 156-167 193", testS3Objects},
		{"reads 169-179", testS3Reads},
		{"conditions 175", testS3Conditions},
		{"conditions of deletions 187", testS3DeleteConditions},
		{"copies 180-185", testS3Copies},
		{"deletes 186-188", testS3Deletes},
		{"what is not served 189 190 232", testS3NotServed},
		{"classes, tags of buckets, checksums", testS3Classes},
		{"links of signature version 2", testS3Version2},
		{"multipart 196-212", testS3Multipart},
		{"tags 214-223", testS3Tags},
		{"encrypted objects 233 234", testS3Encrypted},
		{"quota 168", testS3Quota},
		{"completions that meet 203 208", testS3CompletionsMeet},
		{"complete again 204 208", testS3CompleteAgain},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, o.as(t)) })
	}
}

func testS3Permissions(t *testing.T, o *objects) {
	bucket := "/perm" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/k", []byte("x"))
	for _, token := range []string{"", "nonsense", o.token + "x", "a.b.c"} {
		bad := o.with(token)
		bad.refused(http.StatusForbidden, "AccessDenied", http.MethodGet, "/", nil)
		bad.refused(http.StatusForbidden, "AccessDenied", http.MethodPut, bucket+"/other", []byte("y"))
		bad.refused(http.StatusForbidden, "AccessDenied", http.MethodHead, bucket, nil)
		bad.refused(http.StatusForbidden, "AccessDenied", http.MethodGet, bucket+"/k", nil)
	}
	leader := o.cluster.Leader()
	reader := o.with(leader.Key("objects@example.org", "--scope", "storage:read").Token)
	reader.ok(http.StatusOK, http.MethodGet, bucket+"/k", nil)
	reader.ok(http.StatusOK, http.MethodGet, bucket+"?list-type=2", nil)
	reader.refused(http.StatusForbidden, "AccessDenied", http.MethodPut, bucket+"/other", []byte("y"))
	reader.refused(http.StatusForbidden, "AccessDenied", http.MethodDelete, bucket+"/k", nil)
	reader.refused(http.StatusForbidden, "AccessDenied", http.MethodPost, bucket+"/k?uploads", nil)
	writer := o.with(leader.Key("objects@example.org", "--scope", "storage:write").Token)
	writer.ok(http.StatusOK, http.MethodPut, bucket+"/w", []byte("y"))
	writer.refused(http.StatusForbidden, "AccessDenied", http.MethodGet, bucket+"/k", nil)
	writer.ok(http.StatusNoContent, http.MethodDelete, bucket+"/w", nil)
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/other", nil)

	// A revoked key is refused by every node at once.
	key := leader.Key("objects@example.org")
	revoked := o.with(key.Token)
	revoked.ok(http.StatusOK, http.MethodGet, bucket+"/k", nil)
	leader.CLI("key", "revoke", key.ID)
	for range o.cluster.Nodes {
		revoked.refused(http.StatusForbidden, "AccessDenied", http.MethodGet, bucket+"/k", nil)
		revoked.refused(http.StatusForbidden, "AccessDenied", http.MethodPut, bucket+"/k", []byte("z"))
	}

	// A session counts until it is ended, anywhere.
	session := o.with(signIn(t, leader, "objects@example.org"))
	session.ok(http.StatusOK, http.MethodPut, bucket+"/session", []byte("x"))
	session.ok(http.StatusOK, http.MethodGet, bucket+"/session", nil)
	if r := do(t, o.cluster.Followers()[0], session.token, http.MethodDelete, "/auth/token", "", nil); r.Status/100 != 2 {
		t.Fatalf("sign out: %d %s", r.Status, r.Body)
	}
	for range o.cluster.Nodes {
		session.refused(http.StatusForbidden, "AccessDenied", http.MethodGet, bucket+"/session", nil)
	}

	// Another account: the same name is another bucket, and this one is not there.
	other := newObjects(t, o.cluster, "other-objects@example.org")
	absent := "/absent" + randomName()
	for _, q := range []struct{ method, path string }{
		{http.MethodGet, "?list-type=2"},
		{http.MethodHead, ""},
		{http.MethodDelete, ""},
		{http.MethodGet, "/k"},
		{http.MethodHead, "/k"},
		{http.MethodPut, "/k"},
		{http.MethodDelete, "/k"},
		{http.MethodGet, "?location"},
		{http.MethodPost, "/k?uploads"},
		{http.MethodGet, "/k?tagging"},
	} {
		a := other.call(q.method, bucket+q.path, nil)
		b := other.call(q.method, absent+q.path, nil)
		same := func(r reply, name string) string {
			text := strings.ReplaceAll(string(r.Body), name, "BUCKET")
			return fmt.Sprint(r.Status, strings.ReplaceAll(text, r.Header.Get("X-Amz-Request-Id"), "ID"))
		}
		if same(a, bucket[1:]) != same(b, absent[1:]) || a.Status != http.StatusNotFound {
			t.Errorf("%s %s: another's bucket answers\n%d %s\nan absent one\n%d %s", q.method, q.path, a.Status, a.Body, b.Status, b.Body)
		}
	}
	other.ok(http.StatusOK, http.MethodPut, bucket, nil)
	other.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/k", nil)
	if buckets := string(other.ok(http.StatusOK, http.MethodGet, "/", nil).Body); strings.Count(buckets, "<Bucket>") != 1 {
		t.Errorf("another account sees %s", buckets)
	}
}

func testS3Buckets(t *testing.T, o *objects) {
	name := "buckets" + randomName()
	r := o.ok(http.StatusOK, http.MethodPut, "/"+name, nil)
	if r.Header.Get("Location") != "/"+name || r.Header.Get("Content-Length") != "0" {
		t.Errorf("create: %v", r.Header)
	}
	r = o.refused(http.StatusConflict, "BucketAlreadyExists", http.MethodPut, "/"+name, nil)
	if into[s3Error](t, r).BucketName != name {
		t.Errorf("no bucket name in %s", r.Body)
	}
	for _, bad := range []string{"ab", strings.Repeat("a", 64), "Upper", "under_score", "-begin", "end-", "sp%20ace", ".dot"} {
		o.refused(http.StatusBadRequest, "InvalidBucketName", http.MethodPut, "/"+bad, nil)
	}
	type buckets struct {
		XMLName xml.Name `xml:"ListAllMyBucketsResult"`
		Owner   struct{ ID, DisplayName string }
		Buckets struct {
			Bucket []struct{ Name, CreationDate string }
		}
	}
	o.ok(http.StatusOK, http.MethodPut, "/a"+name, []byte(`<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>us-east-1</LocationConstraint></CreateBucketConfiguration>`))
	all := into[buckets](t, o.ok(http.StatusOK, http.MethodGet, "/", nil))
	for i, b := range all.Buckets.Bucket {
		if _, err := time.Parse("2006-01-02T15:04:05.000Z", b.CreationDate); err != nil {
			t.Error(err)
		}
		if i > 0 && b.Name <= all.Buckets.Bucket[i-1].Name {
			t.Errorf("%s behind %s", b.Name, all.Buckets.Bucket[i-1].Name)
		}
	}
	if len(all.Buckets.Bucket) < 2 || all.Owner.ID == "" || all.Owner.DisplayName == "" {
		t.Errorf("%+v", all)
	}
	if r := o.ok(http.StatusOK, http.MethodHead, "/"+name, nil); r.Header.Get("X-Amz-Bucket-Region") != "us-east-1" {
		t.Errorf("head: %v", r.Header)
	}
	if r := o.ok(http.StatusOK, http.MethodGet, "/"+name+"?location", nil); !bytes.Contains(r.Body, []byte("LocationConstraint")) {
		t.Errorf("location: %s", r.Body)
	}
	o.ok(http.StatusOK, http.MethodPut, "/"+name+"/k", nil)
	o.refused(http.StatusConflict, "BucketNotEmpty", http.MethodDelete, "/"+name, nil)
	o.ok(http.StatusNoContent, http.MethodDelete, "/"+name+"/k", nil)
	o.ok(http.StatusOK, http.MethodPost, "/"+name+"/open?uploads", nil) // does not hold it
	o.ok(http.StatusNoContent, http.MethodDelete, "/"+name, nil)
	o.refused(http.StatusNotFound, "NoSuchBucket", http.MethodDelete, "/"+name, nil)
	o.refused(http.StatusNotFound, "NoSuchBucket", http.MethodHead, "/"+name, nil)
	o.ok(http.StatusOK, http.MethodPut, "/"+name, nil)
	if l := into[listResult](t, o.ok(http.StatusOK, http.MethodGet, "/"+name+"?list-type=2", nil)); len(l.Contents) != 0 {
		t.Errorf("a bucket made again holds %v", l.keys())
	}

	// Two nodes make one bucket at once.
	for range 20 {
		path := "/race" + randomName()
		var made atomic.Int32
		var g errgroup.Group
		for _, n := range o.cluster.Nodes {
			g.Go(func() error {
				r, err := o.tryOn(n, http.MethodPut, path, nil)
				if r.Status == http.StatusOK {
					made.Add(1)
				} else if err == nil && r.Status != http.StatusConflict {
					err = fmt.Errorf("%d %s", r.Status, r.Body)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil || made.Load() != 1 {
			t.Fatalf("%d nodes made %s: %v", made.Load(), path, err)
		}
	}
}

func testS3Lists(t *testing.T, o *objects) {
	bucket := "/lists" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	keys := []string{"a", "a/1", "a/2", "a0", "b/x/1", "b/y/2", "c&<>'\"", "d e+f", "ü", "日本"}
	for _, k := range keys {
		o.ok(http.StatusOK, http.MethodPut, bucket+"/"+escapeKey(k), []byte(k))
	}
	list := func(query string) listResult {
		t.Helper()
		return into[listResult](t, o.ok(http.StatusOK, http.MethodGet, bucket+"?list-type=2"+query, nil))
	}
	l := list("")
	if fmt.Sprint(l.keys()) != fmt.Sprint(keys) || l.KeyCount != len(keys) || l.MaxKeys != 1000 || l.IsTruncated || l.NextContinuationToken != "" || l.Name != bucket[1:] {
		t.Errorf("%+v", l)
	}
	if c := l.Contents[0]; c.ETag != harness.ETag([]byte("a")) || c.Size != 1 || c.StorageClass != "STANDARD" || c.Owner != nil {
		t.Errorf("%+v", c)
	}
	l = list("&delimiter=/")
	if fmt.Sprint(l.keys()) != fmt.Sprint([]string{"a", "a0", "c&<>'\"", "d e+f", "ü", "日本"}) || fmt.Sprint(l.prefixes()) != "[a/ b/]" || l.KeyCount != 8 || l.Delimiter != "/" {
		t.Errorf("%+v", l)
	}
	if l = list("&prefix=b/&delimiter=/"); fmt.Sprint(l.prefixes()) != "[b/x/ b/y/]" || len(l.Contents) != 0 || l.Prefix != "b/" {
		t.Errorf("%+v", l)
	}
	if l = list("&prefix=a"); fmt.Sprint(l.keys()) != "[a a/1 a/2 a0]" {
		t.Errorf("%+v", l)
	}
	if l = list("&max-keys=0"); l.IsTruncated || len(l.Contents) != 0 || l.KeyCount != 0 {
		t.Errorf("%+v", l)
	}
	if l = list("&max-keys=5000"); l.MaxKeys != 1000 {
		t.Errorf("%+v", l)
	}
	for _, bad := range []string{"-1", "x", "1.5"} {
		o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodGet, bucket+"?list-type=2&max-keys="+bad, nil)
	}
	o.refused(http.StatusBadRequest, "InvalidArgument", http.MethodGet, bucket+"?list-type=2&continuation-token=%00garbage", nil)
	for _, delimiter := range []string{"", "&delimiter=/"} { // pages of every size join to the whole
		whole := list(delimiter)
		for size := 1; size <= 4; size++ {
			var got []string
			for token := ""; ; {
				query := delimiter + "&max-keys=" + strconv.Itoa(size)
				if token != "" {
					query += "&continuation-token=" + escapeKey(token)
				}
				page := list(query)
				got = append(append(got, page.keys()...), page.prefixes()...)
				if page.KeyCount > size || page.ContinuationToken != token {
					t.Errorf("page %+v", page)
				}
				if !page.IsTruncated {
					break
				}
				token = page.NextContinuationToken
			}
			if len(got) != len(whole.Contents)+len(whole.CommonPrefixes) {
				t.Errorf("pages of %d: %v", size, got)
			}
		}
	}
	if l = list("&start-after=b"); l.keys()[0] != "b/x/1" || l.StartAfter != "b" {
		t.Errorf("%+v", l)
	}
	// start-after is a key, a marker may be a prefix.
	if l = list("&delimiter=/&start-after=b/"); l.KeyCount == 0 || len(l.CommonPrefixes) == 0 || l.CommonPrefixes[0].Prefix != "b/" {
		t.Errorf("%+v", l)
	}
	if page := into[listResult](t, o.ok(http.StatusOK, http.MethodGet, bucket+"?delimiter=/&marker=b/x", nil)); slices.Contains(page.prefixes(), "b/") || page.Marker != "b/x" {
		t.Errorf("%+v", page)
	}
	if l = list("&encoding-type=url&prefix=" + escapeKey("d e")); l.keys()[0] != "d%20e%2Bf" || l.EncodingType != "url" || l.Prefix != "d%20e" {
		t.Errorf("%+v", l)
	}
	if l = list("&fetch-owner=true"); l.Contents[0].Owner == nil || l.Contents[0].Owner.ID == "" {
		t.Errorf("%+v", l.Contents[0])
	}
	v1 := into[listResult](t, o.ok(http.StatusOK, http.MethodGet, bucket+"?max-keys=3&delimiter=/", nil))
	if !v1.IsTruncated || v1.NextMarker != "a0" {
		t.Errorf("%+v", v1)
	}
	v1 = into[listResult](t, o.ok(http.StatusOK, http.MethodGet, bucket+"?delimiter=/&marker="+v1.NextMarker, nil))
	if fmt.Sprint(v1.prefixes()) != "[b/]" || v1.Marker != "a0" || v1.Contents[0].Key != "c&<>'\"" {
		t.Errorf("%+v", v1)
	}
	o.refused(http.StatusNotFound, "NoSuchBucket", http.MethodGet, "/absent"+randomName()+"?list-type=2", nil)
	for i := range 30 { // read after write, everywhere
		key := fmt.Sprintf("%s/now/%d", bucket, i)
		o.ok(http.StatusOK, http.MethodPut, key, []byte("x"))
		if got := list("&prefix=now/"); len(got.Contents) != i+1 {
			t.Fatalf("%d keys are listed after %d writes", len(got.Contents), i+1)
		}
		o.ok(http.StatusOK, http.MethodGet, key, nil)
	}
}

// escapeKey writes a key for a path or a query.
func escapeKey(k string) string {
	var b strings.Builder
	for i := range len(k) {
		c := k[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '/' || c == '-' || c == '.' || c == '_' || c == '~' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func testS3Objects(t *testing.T, o *objects) {
	bucket := "/objects" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	for _, size := range []int{0, 1, 70_000, 1 << 20, 1<<20 + 1, 5<<20 + 3} {
		data := harness.RandomBytes(size)
		path := fmt.Sprintf("%s/size-%d", bucket, size)
		put := o.ok(http.StatusOK, http.MethodPut, path, data)
		if put.Header.Get("ETag") != harness.ETag(data) || put.Header.Get("X-Amz-Version-Id") == "" || put.Header.Get("X-Holdfast-Cid") == "" {
			t.Errorf("%d bytes: %v", size, put.Header)
		}
		for range o.cluster.Nodes {
			got := o.ok(http.StatusOK, http.MethodGet, path, nil)
			if !bytes.Equal(got.Body, data) || got.Header.Get("X-Holdfast-Cid") != put.Header.Get("X-Holdfast-Cid") {
				t.Errorf("%d bytes came back as %d", size, len(got.Body))
			}
		}
	}
	// Keys are bytes.
	long := strings.Repeat("k", 1024)
	for _, k := range []string{"a//b", "/lead", "../up", "a/../b", "./a", "a/", "%41", "a+b", "a b", "a%2Fb", "ü", "\xc3\xbc\x01", long, "?", "#", ";", "a\\b"} {
		o.ok(http.StatusOK, http.MethodPut, bucket+"/"+escapeKey(k), []byte(k))
	}
	for _, k := range []string{"a//b", "/lead", "../up", "a/../b", "./a", "a/", "%41", "a+b", "a b", "a%2Fb", "ü", "\xc3\xbc\x01", long, "?", "#", ";", "a\\b"} {
		if got := o.ok(http.StatusOK, http.MethodGet, bucket+"/"+escapeKey(k), nil); string(got.Body) != k {
			t.Errorf("key %q holds %q", k, got.Body)
		}
	}
	o.refused(http.StatusBadRequest, "KeyTooLongError", http.MethodPut, bucket+"/"+long+"k", []byte("x"))

	data := []byte("some content")
	sum := md5.Sum(data)
	good := base64.StdEncoding.EncodeToString(sum[:])
	o.ok(http.StatusOK, http.MethodPut, bucket+"/md5", data, "Content-MD5", good)
	o.refused(http.StatusBadRequest, "BadDigest", http.MethodPut, bucket+"/wrong", []byte("other"), "Content-MD5", good)
	o.refused(http.StatusBadRequest, "InvalidDigest", http.MethodPut, bucket+"/wrong", data, "Content-MD5", "nonsense")
	o.refused(http.StatusBadRequest, "BadDigest", http.MethodPut, bucket+"/wrong", data, "X-Amz-Checksum-Crc32", "AAAAAA==")
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/wrong", nil)
	r := o.refused(http.StatusNotFound, "NoSuchBucket", http.MethodPut, "/absent"+randomName()+"/k", data)
	if !strings.HasPrefix(into[s3Error](t, r).BucketName, "absent") {
		t.Errorf("%s", r.Body)
	}
	headers := []string{
		"Content-Type", "text/x-test", "Cache-Control", "max-age=7", "Content-Disposition", `attachment; filename="ü.txt"`,
		"Content-Encoding", "gzip", "Content-Language", "de", "Expires", "Thu, 01 Dec 2033 16:00:00 GMT",
		"X-Amz-Meta-Colour", "blue", "x-amz-meta-BIG", strings.Repeat("m", 8<<10), "x-amz-meta-more", strings.Repeat("n", 8<<10),
	}
	o.ok(http.StatusOK, http.MethodPut, bucket+"/headers", data, headers...)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		got := o.ok(http.StatusOK, method, bucket+"/headers", nil, "Accept-Encoding", "identity")
		for i := 0; i < len(headers); i += 2 {
			if got.Header.Get(headers[i]) != headers[i+1] {
				t.Errorf("%s: %s is %q", method, headers[i], got.Header.Get(headers[i]))
			}
		}
	}
	if got := o.ok(http.StatusOK, http.MethodHead, bucket+"/md5", nil); got.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("default type: %v", got.Header)
	}
	// Conditional writes.
	o.refused(http.StatusPreconditionFailed, "PreconditionFailed", http.MethodPut, bucket+"/md5", data, "If-None-Match", "*")
	o.ok(http.StatusOK, http.MethodPut, bucket+"/fresh", data, "If-None-Match", "*")
	o.refused(http.StatusPreconditionFailed, "PreconditionFailed", http.MethodPut, bucket+"/fresh", data, "If-Match", `"other"`)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/fresh", []byte("next"), "If-Match", harness.ETag(data))
	o.oneWins(12, bucket+"/once", "If-None-Match", "*")
}

func testS3Reads(t *testing.T, o *objects) {
	bucket := "/reads" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	data := harness.RandomBytes(3<<20 + 17)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/k", data)
	whole := o.ok(http.StatusOK, http.MethodHead, bucket+"/k", nil)
	etag, modified := whole.Header.Get("ETag"), whole.Header.Get("Last-Modified")
	if whole.Header.Get("Accept-Ranges") != "bytes" || whole.Header.Get("Content-Length") != strconv.Itoa(len(data)) {
		t.Errorf("%v", whole.Header)
	}
	when, err := time.Parse(http.TimeFormat, modified)
	if err != nil {
		t.Fatal(err)
	}
	for header, at := range map[string][2]int{
		"bytes=0-0": {0, 1}, "bytes=100-1099": {100, 1100}, "bytes=1048570-1048590": {1048570, 1048591}, "bytes=3145728-": {3145728, len(data)},
		"bytes=-5": {len(data) - 5, len(data)}, "bytes=10-99999999": {10, len(data)},
	} {
		got := o.ok(http.StatusPartialContent, http.MethodGet, bucket+"/k", nil, "Range", header)
		want := fmt.Sprintf("bytes %d-%d/%d", at[0], at[1]-1, len(data))
		if !bytes.Equal(got.Body, data[at[0]:at[1]]) || got.Header.Get("Content-Range") != want {
			t.Errorf("%s: %d bytes, %s", header, len(got.Body), got.Header.Get("Content-Range"))
		}
	}
	for _, header := range []string{"bytes=99999999-", "bytes=-0"} {
		o.refused(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", http.MethodGet, bucket+"/k", nil, "Range", header)
	}
	for _, header := range []string{"bytes=5-1", "items=0-1", "bytes=a-b", "bytes=0-1,3-4", "bytes="} {
		if got := o.ok(http.StatusOK, http.MethodGet, bucket+"/k", nil, "Range", header); len(got.Body) != len(data) {
			t.Errorf("%s: %d bytes", header, len(got.Body))
		}
	}
	later, earlier := when.Add(time.Hour).Format(http.TimeFormat), when.Add(-time.Hour).Format(http.TimeFormat)
	for _, q := range []struct {
		status int
		pairs  []string
	}{
		{304, []string{"If-None-Match", etag}},
		{304, []string{"If-None-Match", strings.Trim(etag, `"`)}},
		{304, []string{"If-None-Match", "W/" + etag}},
		{304, []string{"If-None-Match", `"x", ` + etag}},
		{304, []string{"If-None-Match", "*"}},
		{200, []string{"If-None-Match", `"x"`}},
		{304, []string{"If-Modified-Since", modified}},
		{200, []string{"If-Modified-Since", earlier}},
		{200, []string{"If-None-Match", `"x"`, "If-Modified-Since", modified}},
		{304, []string{"If-None-Match", etag, "If-Modified-Since", earlier}},
		{200, []string{"If-Match", etag}},
		{412, []string{"If-Match", `"x"`}},
		{200, []string{"If-Match", "*"}},
		{200, []string{"If-Unmodified-Since", later}},
		{412, []string{"If-Unmodified-Since", earlier}},
		{200, []string{"If-Match", etag, "If-Unmodified-Since", earlier}},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			got := o.call(method, bucket+"/k", nil, q.pairs...)
			if got.Status != q.status {
				t.Errorf("%s with %v: %d, want %d", method, q.pairs, got.Status, q.status)
			}
			if got.Status == http.StatusNotModified && (len(got.Body) > 0 || got.Header.Get("ETag") != etag) {
				t.Errorf("304 with %d bytes and %v", len(got.Body), got.Header)
			}
		}
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/absent", nil)
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodHead, bucket+"/absent", nil)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/empty", nil)
	o.refused(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", http.MethodGet, bucket+"/empty", nil, "Range", "bytes=0-")
	o.ok(http.StatusOK, http.MethodGet, bucket+"/empty", nil, "Range", "bytes=-5")
	got := o.ok(http.StatusOK, http.MethodGet, bucket+"/k?response-content-type=a/b&response-content-disposition=inline", nil)
	if got.Header.Get("Content-Type") != "a/b" || got.Header.Get("Content-Disposition") != "inline" {
		t.Errorf("%v", got.Header)
	}
}

func testS3Copies(t *testing.T, o *objects) {
	from, to := "/from"+randomName(), "/to"+randomName()
	o.ok(http.StatusOK, http.MethodPut, from, nil)
	o.ok(http.StatusOK, http.MethodPut, to, nil)
	data := harness.RandomBytes(2 << 20)
	o.ok(http.StatusOK, http.MethodPut, from+"/a%20b", data, "Content-Type", "x/y", "x-amz-meta-colour", "blue", "x-amz-tagging", "t=1")
	type result struct {
		XMLName            xml.Name `xml:"CopyObjectResult"`
		LastModified, ETag string
	}
	for i, source := range []string{from + "/a%20b", from[1:] + "/a%20b"} {
		path := fmt.Sprintf("%s/copy%d", to, i)
		r := into[result](t, o.ok(http.StatusOK, http.MethodPut, path, nil, "x-amz-copy-source", source))
		if r.ETag != harness.ETag(data) || r.LastModified == "" {
			t.Errorf("%+v", r)
		}
		got := o.ok(http.StatusOK, http.MethodGet, path, nil)
		if !bytes.Equal(got.Body, data) || got.Header.Get("Content-Type") != "x/y" || got.Header.Get("x-amz-meta-colour") != "blue" || got.Header.Get("x-amz-tagging-count") != "1" {
			t.Errorf("%v", got.Header)
		}
	}
	o.ok(http.StatusOK, http.MethodPut, to+"/new", nil, "x-amz-copy-source", from+"/a%20b", "x-amz-metadata-directive", "REPLACE", "x-amz-meta-size", "big",
		"x-amz-tagging-directive", "REPLACE", "x-amz-tagging", "u=2&v=3")
	got := o.ok(http.StatusOK, http.MethodHead, to+"/new", nil)
	if got.Header.Get("x-amz-meta-colour") != "" || got.Header.Get("x-amz-meta-size") != "big" || got.Header.Get("x-amz-tagging-count") != "2" {
		t.Errorf("%v", got.Header)
	}
	o.refused(http.StatusBadRequest, "InvalidRequest", http.MethodPut, to+"/new", nil, "x-amz-copy-source", to+"/new")
	o.ok(http.StatusOK, http.MethodPut, to+"/new", nil, "x-amz-copy-source", to+"/new", "x-amz-metadata-directive", "REPLACE", "x-amz-meta-size", "same")
	o.ok(http.StatusOK, http.MethodPut, to+"/new", nil, "x-amz-copy-source", to+"/new", "x-amz-storage-class", "STANDARD")
	if got := o.ok(http.StatusOK, http.MethodGet, to+"/new", nil); !bytes.Equal(got.Body, data) || got.Header.Get("x-amz-meta-size") != "same" {
		t.Errorf("%v", got.Header)
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodPut, to+"/k", nil, "x-amz-copy-source", from+"/absent")
	o.refused(http.StatusNotFound, "NoSuchBucket", http.MethodPut, to+"/k", nil, "x-amz-copy-source", "/absent"+randomName()+"/k")
	o.refused(http.StatusPreconditionFailed, "PreconditionFailed", http.MethodPut, to+"/k", nil, "x-amz-copy-source", from+"/a%20b", "x-amz-copy-source-if-match", `"x"`)
	// The source goes, the copies stay.
	o.ok(http.StatusNoContent, http.MethodDelete, from+"/a%20b", nil)
	if got := o.ok(http.StatusOK, http.MethodGet, to+"/copy0", nil); !bytes.Equal(got.Body, data) {
		t.Error("a copy went with its source")
	}
}

func testS3Deletes(t *testing.T, o *objects) {
	bucket := "/deletes" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/k", []byte("x"))
	for range 2 { // the second time it is not there
		if r := o.ok(http.StatusNoContent, http.MethodDelete, bucket+"/k", nil); r.Header.Get("x-amz-delete-marker") != "true" {
			t.Errorf("%v", r.Header)
		}
	}
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, bucket+"/k", nil)
	var body strings.Builder
	body.WriteString("<Delete>")
	for i := range 5 {
		o.ok(http.StatusOK, http.MethodPut, fmt.Sprintf("%s/m%d", bucket, i), []byte("x"))
		fmt.Fprintf(&body, "<Object><Key>m%d</Key></Object>", i)
	}
	body.WriteString("<Object><Key>absent</Key></Object></Delete>")
	type result struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Deleted []struct{ Key string }
		Error   []struct{ Key, Code string }
	}
	if r := into[result](t, o.ok(http.StatusOK, http.MethodPost, bucket+"?delete", []byte(body.String()))); len(r.Deleted) != 6 || len(r.Error) != 0 {
		t.Errorf("%+v", r)
	}
	if l := into[listResult](t, o.ok(http.StatusOK, http.MethodGet, bucket+"?list-type=2", nil)); len(l.Contents) != 0 {
		t.Errorf("%v is left", l.keys())
	}
	quiet := "<Delete><Quiet>true</Quiet><Object><Key>absent</Key></Object></Delete>"
	if r := into[result](t, o.ok(http.StatusOK, http.MethodPost, bucket+"?delete", []byte(quiet))); len(r.Deleted) != 0 {
		t.Errorf("%+v", r)
	}
	many := "<Delete>" + strings.Repeat("<Object><Key>k</Key></Object>", 1001) + "</Delete>"
	o.refused(http.StatusBadRequest, "MalformedXML", http.MethodPost, bucket+"?delete", []byte(many))
	o.refused(http.StatusBadRequest, "MalformedXML", http.MethodPost, bucket+"?delete", []byte("nonsense"))
}

func testS3NotServed(t *testing.T, o *objects) {
	bucket := "/unserved" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/k", []byte("kept"))
	if r := o.ok(http.StatusOK, http.MethodGet, bucket+"?versioning", nil); !bytes.Contains(r.Body, []byte("VersioningConfiguration")) {
		t.Errorf("%s", r.Body)
	}
	for _, q := range []string{"policy", "lifecycle", "website", "notification", "replication", "encryption", "object-lock", "logging", "abac"} {
		o.refused(http.StatusNotImplemented, "NotImplemented", http.MethodPut, bucket+"?"+q, []byte("<x/>"))
	}
	for q, code := range map[string]string{
		"policy": "NoSuchBucketPolicy", "lifecycle": "NoSuchLifecycleConfiguration", "website": "NoSuchWebsiteConfiguration",
		"replication": "ReplicationConfigurationNotFoundError", "ownershipControls": "OwnershipControlsNotFoundError",
		"publicAccessBlock": "NoSuchPublicAccessBlockConfiguration", "inventory&id=one": "NoSuchConfiguration",
		"metadataConfiguration": "MetadataConfigurationNotFound", "metadataTable": "MetadataConfigurationNotFound",
	} {
		o.refused(http.StatusNotFound, code, http.MethodGet, bucket+"?"+q, nil)
	}
	for q, has := range map[string]string{
		"accelerate": "<AccelerateConfiguration", "logging": "<BucketLoggingStatus", "notification": "<NotificationConfiguration",
		"requestPayment": "<Payer>BucketOwner</Payer>", "inventory": "<IsTruncated>false</IsTruncated>", "abac": "<Status>Disabled</Status>",
	} {
		if r := o.ok(http.StatusOK, http.MethodGet, bucket+"?"+q, nil); !bytes.Contains(r.Body, []byte(has)) {
			t.Errorf("%s: %s", q, r.Body)
		}
	}
	o.ok(http.StatusNoContent, http.MethodDelete, bucket+"?website", nil)
	for _, q := range []string{"acl", "retention", "legal-hold", "torrent", "restore"} {
		o.refused(http.StatusNotImplemented, "NotImplemented", http.MethodPut, bucket+"/k?"+q, []byte("lost"))
	}
	if r := o.ok(http.StatusOK, http.MethodGet, bucket+"/k", nil); string(r.Body) != "kept" {
		t.Errorf("what is not served has written %q", r.Body)
	}
	o.refused(http.StatusMethodNotAllowed, "MethodNotAllowed", http.MethodPatch, bucket+"/k", nil)
	o.refused(http.StatusMethodNotAllowed, "MethodNotAllowed", http.MethodPost, "/", nil)
}
