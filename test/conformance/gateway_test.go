//go:build conformance

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Times for the IPFS gateway. An answer of gatewaySoon comes without a wait for content, also on a busy machine.
const (
	gatewaySoon   = 10 * time.Second
	gatewayWithin = 2 * time.Minute
)

// gatewayHost is the setting gateway.hosts of these tests.
const gatewayHost = "dweb.example.org"

// ipfsGateway is a cluster whose nodes all have an IPFS gateway.
type ipfsGateway struct {
	*testing.T

	c    *harness.Cluster
	urls []string
}

func startIPFSGateway(t *testing.T) *ipfsGateway {
	t.Helper()
	c := harness.Start(t, harness.Options{
		Replication: 1, Env: []string{"HOLDFAST_GATEWAY_ADDRESS_RATE=0"},
		Settings: fmt.Sprintf("[gateway]\nlisten = \"127.0.0.1:0\"\nhosts = [%q]\n", gatewayHost),
	})
	g := &ipfsGateway{T: t, c: c}
	for _, n := range c.Nodes {
		at := n.Status().Node.Gateway
		if at == "" || strings.HasSuffix(at, ":0") {
			t.Fatalf("%s serves the IPFS gateway at %q", n.Name, at)
		}
		g.urls = append(g.urls, "http://"+at)
	}
	return g
}

func (g *ipfsGateway) as(t *testing.T) *ipfsGateway { return &ipfsGateway{t, g.c, g.urls} }

// try sends a request. It follows no redirects.
func (g *ipfsGateway) try(method, url string, headers ...string) (paidReply, error) {
	r, err := http.NewRequestWithContext(g.Context(), method, url, http.NoBody)
	if err != nil {
		return paidReply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return paidReply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return paidReply{resp, string(body)}, err
}

// get sends GET and fails the test if there is no answer.
func (g *ipfsGateway) get(url string, headers ...string) paidReply {
	g.Helper()
	r, err := g.try(http.MethodGet, url, headers...)
	if err != nil {
		g.Fatalf("%s: %v", url, err)
	}
	return r
}

// soon waits until every node answers GET of a path with a status, and returns the last answer.
func (g *ipfsGateway) soon(status int, path string) (last paidReply) {
	g.Helper()
	for _, url := range g.urls {
		harness.Eventually(g, gatewayWithin, fmt.Sprintf("%d for %s", status, url+path), func() (bool, error) {
			r, err := g.try(http.MethodGet, url+path)
			if err != nil {
				return false, err
			}
			last = r
			return r.StatusCode == status, fmt.Errorf("%d %.200s", r.StatusCode, r.body)
		})
	}
	return last
}

// refused expects an answer without content from every node, at once.
func (g *ipfsGateway) refused(status int, text, path string) {
	g.Helper()
	for _, url := range g.urls {
		began := time.Now()
		r := g.get(url + path)
		if took := time.Since(began); r.StatusCode != status || !strings.Contains(r.body, text) || took > gatewaySoon {
			g.Errorf("%s: %d %.200q after %s, want %d with %q", url+path, r.StatusCode, r.body, took, status, text)
		}
		if r.Header.Get("Cache-Control") != "no-store" {
			g.Errorf("%s: an error may be cached: %q", url+path, r.Header)
		}
	}
}

// TestTheIPFSGateway promises that every node serves the public content of the cluster to everybody, also without a
// copy of it, and nothing else.
func TestTheIPFSGateway(t *testing.T) {
	t.Parallel() // it mostly waits
	g := startIPFSGateway(t)
	t.Run("a pinned folder", func(t *testing.T) { testGatewayFolder(t, g.as(t)) })
	t.Run("private objects", func(t *testing.T) { testGatewayPrivate(t, g.as(t)) })
	t.Run("links from public to private blocks", func(t *testing.T) { testGatewayOtherCodec(t, g.as(t)) })
	t.Run("content that is not here", func(t *testing.T) { testGatewayAbsent(t, g.as(t)) })
}

// testGatewayFolder reads a folder that one of the nodes has.
func testGatewayFolder(t *testing.T, g *ipfsGateway) {
	big := bytes.Repeat([]byte("a line of a large file\n"), 130_000) // 3 MB
	dir := filepath.Join(t.TempDir(), "site")
	for name, text := range map[string][]byte{
		"big.txt": big, "a b.txt": []byte("small"), "sub/index.html": []byte("<h1>index</h1>"), "_redirects": []byte("/old/* /sub/ 301\n"),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Fields(g.c.Nodes[0].CLI("add", dir))
	root := lines[len(lines)-1]
	carFile := filepath.Join(t.TempDir(), "car")
	g.c.Nodes[1].CLI("car", "export", root, "-o", carFile)
	car, err := os.ReadFile(carFile)
	if err != nil {
		t.Fatal(err)
	}
	host := root + ".ipfs." + gatewayHost
	for _, url := range g.urls {
		at := url + "/ipfs/" + root
		for _, tc := range []struct {
			url     string
			headers []string
			status  int
			body    string // "" is any
			has     map[string]string
		}{
			{at + "/a%20b.txt", nil, 200, "small", map[string]string{"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "public, max-age=29030400, immutable", "Access-Control-Allow-Origin": "*", "X-Content-Type-Options": "nosniff"}},
			{at + "/big.txt", nil, 200, string(big), map[string]string{"Content-Length": fmt.Sprint(len(big))}},
			{at + "/big.txt", []string{"Range", "bytes=2000000-2000099"}, 206, string(big[2_000_000:2_000_100]), nil},
			{at + "/big.txt", []string{"Range", "bytes=-5"}, 206, string(big[len(big)-5:]), nil},
			{at + "/sub/", nil, 200, "<h1>index</h1>", map[string]string{"Content-Type": "text/html"}},
			{at + "/sub", nil, 301, "", map[string]string{"Location": "/ipfs/" + root + "/sub/"}},
			{at + "/none", nil, 404, "", map[string]string{"Cache-Control": "no-store"}},
			{at + "?format=car", nil, 200, string(car), map[string]string{"Content-Type": "application/vnd.ipld.car; version=1; order=dfs; dups=n"}},
			{at + "/", []string{"Accept", "application/vnd.ipld.raw"}, 200, "", map[string]string{"Content-Type": "application/vnd.ipld.raw"}},
			{at + "?format=tar", nil, 200, "", map[string]string{"Content-Type": "application/x-tar"}},
			{at + "/", []string{"Host", gatewayHost}, 301, "", map[string]string{"Location": "http://" + host + "/"}},
			{url + "/sub/", []string{"Host", host}, 200, "<h1>index</h1>", nil},
			{url + "/old/page", []string{"Host", host}, 301, "", map[string]string{"Location": "/sub/"}},
			{url + "/healthz", []string{"Host", host}, 404, "", nil}, // a path of the content
			{url + "/healthz", nil, 200, "", nil},
			{url + "/readyz", nil, 200, "", nil},
		} {
			r := g.get(tc.url, tc.headers...)
			if r.StatusCode != tc.status || tc.body != "" && r.body != tc.body {
				t.Errorf("%s %v: %d with %d bytes %.100q, want %d with %d", tc.url, tc.headers, r.StatusCode, len(r.body), r.body, tc.status, len(tc.body))
			}
			for name, want := range tc.has {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s %v: %s is %q, want %q", tc.url, tc.headers, name, got, want)
				}
			}
		}
		list := g.get(at + "/")
		if !strings.Contains(list.body, "big.txt") || !strings.Contains(list.body, "3.0 MB") {
			t.Errorf("%s: the list is %d %.200q", url, list.StatusCode, list.body)
		}
		if again := g.get(at+"/", "If-None-Match", list.Header.Get("Etag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s with its Etag: %d", url, again.StatusCode)
		}
		sub := g.get(at + "/sub/").Header.Get("X-Ipfs-Roots") // root, and the CID of the inner folder
		_, inner, _ := strings.Cut(sub, ",")
		if r := g.get(url + "/ipfs/" + inner + "/index.html"); r.StatusCode != http.StatusOK || r.body != "<h1>index</h1>" {
			t.Errorf("%s: inner folder %s: %d %.200q", url, inner, r.StatusCode, r.body)
		}
		if r, err := g.try(http.MethodHead, at+"/big.txt"); err != nil || r.StatusCode != http.StatusOK || r.ContentLength != int64(len(big)) || r.body != "" {
			t.Errorf("%s: HEAD: %+v, %v", url, r, err)
		}
	}
	var pins []struct {
		ID string `json:"requestid"`
	}
	if err := json.Unmarshal([]byte(g.c.Nodes[0].CLI("pin", "ls", "--json", "--cid", root)), &pins); err != nil || len(pins) != 1 {
		t.Fatalf("pins: %v, %v", pins, err)
	}
	g.c.Nodes[2].CLI("pin", "rm", "--yes", pins[0].ID)
	g.soon(http.StatusNotFound, "/ipfs/"+root+"/sub/")
}

// testGatewayPrivate reads an object while its bucket is private, public, and private again.
func testGatewayPrivate(t *testing.T, g *ipfsGateway) {
	o, bucket := newObjects(t, g.c, "gateway@example.org"), "/gateway"+randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	data := harness.RandomBytes(3 << 20)
	root, all := dagOf(t, data)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/k", data)
	private := func() {
		t.Helper()
		g.refused(http.StatusNotFound, "not public", "/ipfs/"+root.String())
		for _, c := range all {
			g.refused(http.StatusNotFound, "not public", "/ipfs/"+c.String()+"?format=raw")
		}
	}
	private()
	o.setPublic(bucket, true)
	if r := g.soon(http.StatusOK, "/ipfs/"+root.String()); r.body != string(data) {
		t.Errorf("%d bytes, want %d", len(r.body), len(data))
	}
	for _, c := range all {
		g.soon(http.StatusOK, "/ipfs/"+c.String()+"?format=raw")
	}
	o.setPublic(bucket, false)
	g.soon(http.StatusNotFound, "/ipfs/"+root.String())
	for _, c := range all {
		g.soon(http.StatusNotFound, "/ipfs/"+c.String()+"?format=raw")
	}
	private()
	o.setPublic(bucket, true)
	g.soon(http.StatusOK, "/ipfs/"+root.String())
	o.ok(http.StatusNoContent, http.MethodDelete, bucket+"/k", nil)
	g.soon(http.StatusNotFound, "/ipfs/"+root.String())
}

// testGatewayOtherCodec reads a public raw block as a node with a link to a private object.
func testGatewayOtherCodec(t *testing.T, g *ipfsGateway) {
	o, closed, open := newObjects(t, g.c, "codec@example.org"), "/closed"+randomName(), "/open"+randomName()
	o.ok(http.StatusOK, http.MethodPut, closed, nil)
	o.ok(http.StatusOK, http.MethodPut, open, nil, "x-amz-acl", "public-read")
	secret := harness.RandomBytes(1000)
	root, _ := dagOf(t, secret)
	o.ok(http.StatusOK, http.MethodPut, closed+"/secret", secret)
	bait := merkledag.NodeWithData([]byte{8, 1}) // a UnixFS folder
	if err := bait.AddRawLink("secret", &ipld.Link{Cid: root, Size: 1000}); err != nil {
		t.Fatal(err)
	}
	raw := toldBy(t, o.ok(http.StatusOK, http.MethodPut, open+"/bait", bait.RawData()))
	node := cid.NewCidV1(cid.DagProtobuf, raw.Hash())
	g.soon(http.StatusOK, "/ipfs/"+raw.String())
	if list := g.soon(http.StatusOK, "/ipfs/"+node.String()+"/"); !strings.Contains(list.body, "secret") {
		t.Errorf("the bait is not read as a folder: %.300s", list.body)
	}
	for _, path := range []string{"/secret", "/secret?format=raw"} {
		g.refused(http.StatusNotFound, "", "/ipfs/"+node.String()+path)
	}
	for _, url := range g.urls {
		for _, format := range []string{"?format=car", "?format=tar", "/secret?format=car"} {
			if r, _ := g.try(http.MethodGet, url+"/ipfs/"+node.String()+format); strings.Contains(r.body, string(secret)) {
				t.Errorf("%s%s has the private object", url, format)
			}
		}
	}
}

// testGatewayAbsent asks for content that the cluster does not have, or not yet.
func testGatewayAbsent(t *testing.T, g *ipfsGateway) {
	unknown, _ := dagOf(t, harness.RandomBytes(100))
	g.refused(http.StatusNotFound, "does not keep", "/ipfs/"+unknown.String())
	g.refused(http.StatusNotFound, "does not keep", "/ipfs/"+unknown.String()+"/path?format=car")
	g.refused(http.StatusBadRequest, "invalid", "/ipfs/hello")
	g.refused(http.StatusNotImplemented, "IPNS", "/ipns/example.org/")
	g.refused(http.StatusNotFound, "IPFS gateway", "/")
	awaited, _ := dagOf(t, harness.RandomBytes(100))
	key := g.c.Nodes[0].UserKey("awaits@example.org")
	if _, err := g.c.Nodes[0].Pins(key.Token).Post(t.Context(), harness.Pin{CID: awaited.String()}); err != nil {
		t.Fatal(err)
	}
	for _, url := range g.urls { // also one that has not heard of the pin yet
		harness.Eventually(t, gatewayWithin, url+" knows the pin", func() (bool, error) {
			r, err := g.try(http.MethodGet, url+"/ipfs/"+awaited.String())
			return r.StatusCode == http.StatusNotFound && r.Header.Get("Retry-After") != "", err
		})
	}
	g.refused(http.StatusNotFound, "still fetching", "/ipfs/"+awaited.String())
}
