package client

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/bao"
)

// cluster is an object gateway in memory, with several nodes.
type cluster struct {
	t     *testing.T
	nodes []*fakeNode

	mu       sync.Mutex
	objects  map[string]*stored // by bucket/key
	uploads  map[string]map[int][]byte
	names    map[string]string // of uploads
	starts   map[string]*http.Request
	requests []string // method, node, path and query
	shares   map[string]*fakeShare
	started  int
	versions int
}

type stored struct {
	data     []byte
	header   http.Header
	modified time.Time
}

// fakeNode is one node. before may answer a request itself, and then returns true.
type fakeNode struct {
	c      *cluster
	number int
	server *httptest.Server

	mu     sync.Mutex
	before func(w http.ResponseWriter, r *http.Request) bool
}

func emptyCluster() *cluster {
	return &cluster{objects: map[string]*stored{}, uploads: map[string]map[int][]byte{}, names: map[string]string{}, starts: map[string]*http.Request{}, shares: map[string]*fakeShare{}}
}

func newCluster(t *testing.T, nodes int) *cluster {
	c := emptyCluster()
	c.t = t
	for i := range nodes {
		n := &fakeNode{c: c, number: i}
		n.server = httptest.NewServer(n)
		t.Cleanup(n.server.Close)
		c.nodes = append(c.nodes, n)
	}
	return c
}

// client returns a client of all nodes.
func (c *cluster) client(change ...func(*Options)) *Client {
	c.t.Helper()
	o := Options{Token: "token", Patience: 2 * time.Second}
	for _, n := range c.nodes {
		o.Endpoints = append(o.Endpoints, n.server.URL)
	}
	for _, f := range change {
		f(&o)
	}
	client, err := New(o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(client.Close)
	return client
}

func (n *fakeNode) breaks(with func(w http.ResponseWriter, r *http.Request) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before = with
}

func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.c.mu.Lock()
	n.c.requests = append(n.c.requests, fmt.Sprintf("%s %d %s?%s", r.Method, n.number, r.URL.EscapedPath(), r.URL.RawQuery))
	n.c.mu.Unlock()
	n.mu.Lock()
	before := n.before
	n.mu.Unlock()
	if before != nil && before(w, r) {
		return
	}
	switch auth := r.Header.Get("Authorization"); {
	case auth == "Bearer token", strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=key/"):
	case n.c.admits(strings.TrimPrefix(auth, "Bearer "), r):
	default:
		refuse(w, http.StatusForbidden, "AccessDenied")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	n.c.serve(w, r, body)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants</Message></Error>", code)
}

func etagOf(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

// number returns how many requests contain all words.
func (c *cluster) number(words ...string) (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(r, w) }) {
			count++
		}
	}
	return count
}

func (c *cluster) store(name string, data []byte) *stored {
	sum := blake3.Sum256(data)
	c.versions++
	o := &stored{data: data, modified: time.Now().Add(-time.Hour).Truncate(time.Second), header: http.Header{}}
	o.modified = o.modified.Add(time.Duration(c.versions%1000) * time.Millisecond)
	o.header.Set("Etag", etagOf(data))
	o.header.Set("X-Holdfast-Blake3", hex.EncodeToString(sum[:]))
	o.header.Set("X-Holdfast-Cid", "bafy")
	o.header.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	c.objects[name] = o
	return o
}

// serve is the part of the S3 API that the client uses.
func (c *cluster) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Path, "/")
	query := r.URL.Query()
	bucket, key, _ := strings.Cut(name, "/")
	switch {
	case query.Has("share") || query.Has("shares"):
		c.registry(w, r, bucket, body)
	case query.Has("uploads") && r.Method == http.MethodGet:
		c.listUploads(w, bucket, query.Get("prefix"))
	case query.Has("uploads"):
		c.started++
		id := fmt.Sprint("upload", c.started)
		c.uploads[id], c.names[id], c.starts[id] = map[int][]byte{}, name, r
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case query.Has("uploadId"):
		c.part(w, r, name, body)
	case key == "" && r.Method == http.MethodGet:
		c.list(w, bucket, query)
	case r.Header.Get("X-Amz-Copy-Source") != "": // with other metadata
		source, err := url.PathUnescape(r.Header.Get("X-Amz-Copy-Source"))
		o := c.objects[strings.TrimPrefix(source, "/")]
		if err != nil || o == nil {
			refuse(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		c.put(w, r, name, o.data)
		fmt.Fprint(w, "<CopyObjectResult></CopyObjectResult>")
	case r.Method == http.MethodPut && key != "":
		o := c.objects[name]
		if m := r.Header.Get("If-Match"); m != "" && (o == nil || m != o.header.Get("Etag")) || r.Header.Get("If-None-Match") == "*" && o != nil {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		if r.Header.Get("X-Amz-Content-Sha256") == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" {
			body = unframed(body)
		}
		c.put(w, r, name, body)
	case r.Method == http.MethodDelete:
		delete(c.objects, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		c.get(w, r, name)
	}
}

func (c *cluster) put(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	o := c.store(name, body)
	for h, values := range r.Header {
		if strings.HasPrefix(h, "X-Amz-Meta-") || h == "Content-Type" {
			o.header[h] = values
		}
	}
	maps.Copy(w.Header(), o.header)
}

// unframed removes the framing of a body whose chunks are signed.
func unframed(body []byte) (data []byte) {
	for len(body) > 0 {
		head, rest, _ := bytes.Cut(body, []byte("\r\n"))
		size, _, _ := strings.Cut(string(head), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil {
			return nil
		}
		data, body = append(data, rest[:n]...), rest[n+2:]
	}
	return data
}

func (c *cluster) get(w http.ResponseWriter, r *http.Request, name string) {
	o := c.objects[name]
	if o == nil {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if m := r.Header.Get("If-Match"); m != "" && m != o.header.Get("Etag") {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	maps.Copy(w.Header(), o.header)
	if query := r.URL.Query(); query.Has("bao") {
		_, _ = w.Write(sliceOf(o.data, query))
		return
	}
	http.ServeContent(w, r, "", o.modified, bytes.NewReader(o.data))
}

// sliceOf returns the Bao slice that a query asks for.
func sliceOf(data []byte, query url.Values) []byte {
	start, _ := strconv.ParseUint(query.Get("start"), 10, 64)
	length, _ := strconv.ParseUint(query.Get("length"), 10, 64)
	encoded, _ := bao.EncodeBuf(data, 0, false)
	var out bytes.Buffer
	if err := bao.ExtractSlice(&out, bytes.NewReader(encoded), nil, 0, start, length); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func (c *cluster) part(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	id := r.URL.Query().Get("uploadId")
	parts, open := c.uploads[id]
	if !open || c.names[id] != name {
		refuse(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		number, _ := strconv.Atoi(r.URL.Query().Get("partNumber"))
		parts[number] = body
		w.Header().Set("ETag", etagOf(body))
	case http.MethodDelete:
		delete(c.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		var all []byte
		for _, number := range slices.Sorted(maps.Keys(parts)) {
			all = append(all, parts[number]...)
		}
		c.put(w, c.starts[id], name, all)
		delete(c.uploads, id)
		fmt.Fprintf(w, "<CompleteMultipartUploadResult><Bucket>b</Bucket><ETag>%s</ETag></CompleteMultipartUploadResult>", etagOf(all))
	}
}

func (c *cluster) listUploads(w http.ResponseWriter, bucket, prefix string) {
	type entry struct{ Key, UploadId string }
	var result struct {
		XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		Upload  []entry
	}
	for id, name := range c.names {
		if key, ok := strings.CutPrefix(name, bucket+"/"); ok && strings.HasPrefix(key, prefix) && c.uploads[id] != nil {
			result.Upload = append(result.Upload, entry{key, id})
		}
	}
	_ = xml.NewEncoder(w).Encode(result)
}

func (c *cluster) list(w http.ResponseWriter, bucket string, query url.Values) {
	const pageSize = 3
	type entry struct {
		Key          string
		Size         int
		ETag         string
		LastModified string
	}
	type common struct{ Prefix string }
	var result struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string
		Contents              []entry
		CommonPrefixes        []common
	}
	result.EncodingType = "url"
	after := max(query.Get("start-after"), query.Get("continuation-token"))
	prefix := query.Get("prefix")
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		key, ok := strings.CutPrefix(name, bucket+"/")
		if !ok || key <= after || !strings.HasPrefix(key, prefix) {
			continue
		}
		if len(result.Contents) == pageSize {
			result.IsTruncated = true
			break
		}
		result.NextContinuationToken = key
		if head, _, more := strings.Cut(key[len(prefix):], "/"); more && query.Get("delimiter") == "/" {
			if !seen[head] {
				result.CommonPrefixes = append(result.CommonPrefixes, common{url.QueryEscape(prefix + head + "/")})
			}
			seen[head] = true
			continue
		}
		o := c.objects[name]
		result.Contents = append(result.Contents, entry{
			url.QueryEscape(key), len(o.data), o.header.Get("Etag"), o.modified.UTC().Format("2006-01-02T15:04:05.000Z"),
		})
	}
	_ = xml.NewEncoder(w).Encode(result)
}
