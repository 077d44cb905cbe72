//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// setPublic makes a bucket public, or private again.
func (o *objects) setPublic(bucket string, public bool) {
	o.t.Helper()
	acl := map[bool]string{true: "public-read", false: "private"}[public]
	o.ok(http.StatusOK, http.MethodPut, bucket+"?acl", nil, "x-amz-acl", acl)
}

// TestUnknownPeersGetObjectsOfPublicBuckets promises that every IPFS peer gets the content of a public bucket by its
// CID, and nothing else (A59, acceptance row 195).
func TestUnknownPeersGetObjectsOfPublicBuckets(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	o, other := newObjects(t, c, "open@example.org"), newObjects(t, c, "closed@example.org")
	peer := newUnknownPeer(t)
	bucket, closed := "/open"+randomName(), "/closed"+randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil, "x-amz-acl", "public-read")
	other.ok(http.StatusOK, http.MethodPut, closed, nil)

	data, parts := harness.RandomBytes(3<<20+7), [][]byte{harness.RandomBytes(5 << 20), harness.RandomBytes(2<<20 + 1)}
	root, all := dagOf(t, data)
	put := o.callOn(c.Nodes[0], http.MethodPut, bucket+"/whole", data, "x-amz-acl", "public-read")
	if put.Status != http.StatusOK || put.Header.Get("X-Holdfast-Cid") != root.String() {
		t.Fatalf("%d %s, root %s", put.Status, put.Body, root)
	}
	large, joined := putParts(o, bucket+"/parts", parts)
	public := append(all, joined...)
	empty := o.ok(http.StatusOK, http.MethodPut, bucket+"/empty", nil).Header.Get("X-Holdfast-Cid")
	everywhere(t, c, len(public)+1)

	t.Run("fetched by peers of the IPFS network", func(t *testing.T) {
		peer.soon(t, c, true, public)
		next := 0
		for _, start := range foreignPeers() {
			f, from := start(t), c.Nodes[next%len(c.Nodes)].Status().Node.Addrs
			next++
			for root, want := range map[cid.Cid][]byte{root: data, large: bytes.Join(parts, nil)} {
				got, err := f.Fetch(root.String(), from)
				if err != nil || !got.Matches(want) {
					t.Errorf("%T fetches %s: %+v, %v", f, root, got, err)
				}
			}
			if got, err := f.Fetch(empty, from); err != nil || !got.Matches(nil) {
				t.Errorf("%T fetches an empty object: %+v, %v", f, got, err)
			}
		}
		o.as(t).ok(http.StatusNoContent, http.MethodDelete, bucket+"/empty", nil)
	})
	t.Run("and nothing over HTTP without credentials", func(t *testing.T) {
		for _, path := range []string{bucket, bucket + "/whole", bucket + "?acl", "/"} {
			o.as(t).with("").refused(http.StatusForbidden, "AccessDenied", http.MethodGet, path, nil)
		}
		other.as(t).refused(http.StatusNotFound, "NoSuchBucket", http.MethodGet, bucket+"/whole", nil)
		other.as(t).refused(http.StatusNotFound, "NoSuchBucket", http.MethodPut, bucket+"?acl", nil, "x-amz-acl", "private")
	})
	t.Run("private again", func(t *testing.T) {
		o := o.as(t)
		list, used := o.ok(http.StatusOK, http.MethodGet, bucket+"?list-type=2", nil), usedBy(t, c.Nodes[0], "open@example.org")
		o.setPublic(bucket, false)
		peer.soon(t, c, false, public)
		o.refused(http.StatusBadRequest, "AccessControlListNotSupported", http.MethodPut, bucket+"/whole", data, "x-amz-acl", "public-read")
		for _, public := range []bool{true, false} {
			o.setPublic(bucket, public)
			status := o.ok(http.StatusOK, http.MethodGet, bucket+"?policyStatus", nil)
			if !strings.Contains(string(status.Body), fmt.Sprintf("<IsPublic>%v</IsPublic>", public)) {
				t.Errorf("public %v: %s", public, status.Body)
			}
		}
		peer.soon(t, c, false, public)
		after := o.ok(http.StatusOK, http.MethodGet, bucket+"?list-type=2", nil)
		if now := usedBy(t, c.Nodes[0], "open@example.org"); !bytes.Equal(list.Body, after.Body) || now != used || used < 10<<20 {
			t.Errorf("%d bytes are used and were %d; the list is\n%s, was\n%s", now, used, after.Body, list.Body)
		}
	})
	t.Run("the content of a private bucket too", func(t *testing.T) {
		o, other := o.as(t), other.as(t)
		other.ok(http.StatusOK, http.MethodPut, closed+"/mine", data)
		peer.served(t, c, false, all)
		o.setPublic(bucket, true)
		peer.soon(t, c, true, all)
		o.ok(http.StatusOK, http.MethodPut, bucket+"/again", nil, "x-amz-copy-source", bucket+"/whole")
		o.ok(http.StatusNoContent, http.MethodDelete, bucket+"/whole", nil)
		peer.soon(t, c, true, all)
		o.ok(http.StatusNoContent, http.MethodDelete, bucket+"/again", nil)
		peer.soon(t, c, false, all)
		if got := other.ok(http.StatusOK, http.MethodGet, closed+"/mine", nil); !bytes.Equal(got.Body, data) {
			t.Errorf("the private object has %d bytes", len(got.Body))
		}
		peer.served(t, c, true, joined)
	})
	t.Run("versions that are not current", func(t *testing.T) { testPublicVersions(t, o.as(t), peer) })
	t.Run("deleted with its bucket", func(t *testing.T) {
		o := o.as(t)
		o.ok(http.StatusNoContent, http.MethodDelete, bucket+"/parts", nil)
		o.ok(http.StatusNoContent, http.MethodDelete, bucket, nil)
		o.ok(http.StatusOK, http.MethodPut, bucket, nil) // of the same name
		o.ok(http.StatusOK, http.MethodPut, bucket+"/whole", data)
		peer.soon(t, c, false, public)
	})
}

func testPublicVersions(t *testing.T, o *objects, peer *unknownPeer) {
	kept := "/kept" + randomName()
	o.ok(http.StatusOK, http.MethodPut, kept, nil)
	o.ok(http.StatusOK, http.MethodPut, kept+"?versioning", []byte("<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"))
	old := harness.RandomBytes(2 << 20)
	_, blocks := dagOf(t, old)
	first := o.ok(http.StatusOK, http.MethodPut, kept+"/k", old).Header.Get("X-Amz-Version-Id")
	o.setPublic(kept, true)
	o.ok(http.StatusOK, http.MethodPut, kept+"/k", []byte("new"))
	peer.soon(t, o.cluster, true, blocks)
	o.setPublic(kept, false)
	peer.soon(t, o.cluster, false, blocks)
	o.setPublic(kept, true)
	o.ok(http.StatusNoContent, http.MethodDelete, kept+"/k", nil) // a delete marker
	peer.soon(t, o.cluster, true, blocks)
	o.ok(http.StatusNoContent, http.MethodDelete, kept+"/k?versionId="+first, nil)
	peer.soon(t, o.cluster, false, blocks)
}

// manyObjects is more than one log entry has room for, and than two have.
const manyObjects = 3000

// toggled is a bucket whose setting changes while objects come and go.
type toggled struct {
	*objects
	bucket  string
	changes atomic.Int64

	// mu guards the fields below. It is never held while calling out.
	mu   sync.Mutex
	now  map[string]cid.Cid // by key
	once map[cid.Cid]bool   // all that ever were
}

func (b *toggled) put(key string) error {
	r, err := b.tryOn(b.cluster.Nodes[len(key)%len(b.cluster.Nodes)], http.MethodPut, b.bucket+"/"+key, harness.RandomBytes(100))
	if err != nil || r.Status != http.StatusOK {
		return fmt.Errorf("put %s: %d %s: %w", key, r.Status, r.Body, err)
	}
	root, err := cid.Decode(r.Header.Get("X-Holdfast-Cid"))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now[key], b.once[root] = root, true
	return err
}

func (b *toggled) drop(key string) error {
	r, err := b.tryOn(b.cluster.Nodes[0], http.MethodDelete, b.bucket+"/"+key, nil)
	if err != nil || r.Status != http.StatusNoContent {
		return fmt.Errorf("delete %s: %d %s: %w", key, r.Status, r.Body, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.now, key)
	return nil
}

// churn puts, replaces and deletes keys of its own until ctx ends.
func (b *toggled) churn(ctx context.Context, worker, workers int) error {
	for i := worker; ctx.Err() == nil; i = (i + workers*7) % manyObjects {
		key := fmt.Sprintf("%05d", i)
		var err error
		switch i / workers % 3 {
		case 0:
			err = b.put(key)
		case 1:
			err = b.drop(key)
		default:
			err = b.put(key + "-new")
		}
		if err != nil {
			return err
		}
		b.changes.Add(1)
	}
	return nil
}

// seenWithin is for six questions of answerWithin each, and for some that come too early.
const seenWithin = 4 * time.Minute

// seen waits until unknown peers see what is in the bucket, or nothing of it, and never
// what was.
func (b *toggled) seen(peer *unknownPeer, want bool) {
	b.t.Helper()
	all := make([]cid.Cid, 0, len(b.once))
	expected := make(map[cid.Cid]bool, len(b.once))
	for c := range b.once {
		all = append(all, c)
	}
	for _, c := range b.now {
		expected[c] = want
	}
	for _, n := range b.cluster.Nodes {
		node := publicOf(b.t, n)
		harness.Eventually(b.t, seenWithin, fmt.Sprintf("%s shows %d objects: %v", n.Name, len(b.now), want), func() (bool, error) {
			have, err := peer.haves(b.t.Context(), node, all)
			wrong := 0
			for _, c := range all {
				if have[c] != expected[c] {
					wrong++
				}
			}
			if err == nil && wrong > 0 {
				err = fmt.Errorf("%d of %d are not as they should be", wrong, len(all))
			}
			return err == nil, err
		})
	}
}

// changing is how many changes go on through each setting, at the least.
const changing = 100

// turn changes the setting while objects come and go, and waits for what unknown peers see
// in the end.
func (b *toggled) turn(peer *unknownPeer, settings ...bool) {
	b.t.Helper()
	const workers = 8
	ctx, stop := context.WithCancel(b.t.Context())
	defer stop()
	work, ctx := errgroup.WithContext(ctx)
	for i := range workers {
		work.Go(func() error { return b.churn(ctx, i, workers) })
	}
	last := false
	for _, last = range settings {
		b.setPublic(b.bucket, last)
		from := b.changes.Load()
		harness.Eventually(b.t, pinnedWithin, "objects come and go", func() (bool, error) { return b.changes.Load() >= from+changing, ctx.Err() })
	}
	stop()
	if err := work.Wait(); err != nil {
		b.t.Fatal(err)
	}
	b.seen(peer, last)
}

// TestALargeBucketTurnsWhileItChanges promises that a bucket of more objects than two log entries can migrate turns
// public and private while objects come and go.
func TestALargeBucketTurnsWhileItChanges(t *testing.T) {
	longForm(t)
	t.Parallel()
	c := harness.Start(t, harness.Options{})
	b := &toggled{
		objects: newObjects(t, c, "many@example.org"), bucket: "/many" + randomName(), now: map[string]cid.Cid{}, once: map[cid.Cid]bool{},
	}
	b.ok(http.StatusOK, http.MethodPut, b.bucket, nil)
	peer := newUnknownPeer(t)
	fill, _ := errgroup.WithContext(t.Context())
	fill.SetLimit(8)
	for i := range manyObjects {
		fill.Go(func() error { return b.put(fmt.Sprintf("%05d", i)) })
	}
	if err := fill.Wait(); err != nil {
		t.Fatal(err)
	}
	b.seen(peer, false)

	b.turn(peer, true, false, true, false, true)
	b.turn(peer, false)
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStockToolsMakeBucketsPublic promises that stock tools make buckets public with the words
// that they have for it, and put objects into them.
func TestStockToolsMakeBucketsPublic(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	g := newGateway(t, harness.Options{})
	o := &objects{t: t, cluster: g.cluster, token: g.key.Token, turn: &atomic.Int64{}}
	isPublic := func(x *tool, bucket string, want bool) {
		x.t.Helper()
		x.has(string(o.as(x.t).ok(http.StatusOK, http.MethodGet, "/"+bucket+"?policyStatus", nil).Body), fmt.Sprintf("<IsPublic>%v</IsPublic>", want))
	}
	t.Run("aws", func(t *testing.T) {
		x, bucket := g.tool(t, "AWS_PAGER="), "aws"+randomName()
		aws := func(args ...string) string {
			return x.run("/usr/bin/aws", append([]string{"--endpoint-url", g.node.S3URL()}, args...)...)
		}
		aws("s3api", "create-bucket", "--bucket", bucket, "--acl", "public-read")
		isPublic(x, bucket, true)
		aws("s3", "cp", "--acl", "public-read", x.file("small", 100), "s3://"+bucket+"/small")
		x.has(aws("s3api", "get-object-acl", "--bucket", bucket, "--key", "small"), "AllUsers", "FULL_CONTROL")
		aws("s3api", "put-bucket-acl", "--bucket", bucket, "--acl", "private")
		isPublic(x, bucket, false)
		policy := strings.TrimSpace(aws("s3api", "get-bucket-acl", "--bucket", bucket))
		policy = strings.Replace(policy, `"Grants": [`, `"Grants": [{"Grantee": {"Type": "Group", "URI": "http://acs.amazonaws.com/groups/global/AllUsers"}, "Permission": "READ"},`, 1)
		aws("s3api", "put-bucket-acl", "--bucket", bucket, "--access-control-policy", policy)
		isPublic(x, bucket, true)
		if out, err := x.try("/usr/bin/aws", "--endpoint-url", g.node.S3URL(), "s3api", "put-bucket-acl", "--bucket", bucket, "--acl", "authenticated-read"); err == nil || !strings.Contains(out, "NotImplemented") {
			t.Errorf("authenticated-read: %v %s", err, out)
		}
		isPublic(x, bucket, true)
	})
	t.Run("s3cmd", func(t *testing.T) {
		x, bucket := g.tool(t), "s3cmd"+randomName()
		host := strings.TrimPrefix(g.node.S3URL(), "http://")
		s3cmd := func(args ...string) string {
			return x.run("s3cmd", append([]string{
				"--access_key=" + g.key.AccessKeyID, "--secret_key=" + g.key.SecretAccessKey, "--host=" + host, "--host-bucket=" + host, "--no-ssl", "--no-progress",
			}, args...)...)
		}
		s3cmd("mb", "s3://"+bucket)
		isPublic(x, bucket, false)
		s3cmd("setacl", "--acl-public", "s3://"+bucket)
		isPublic(x, bucket, true)
		s3cmd("put", x.file("small", 100), "s3://"+bucket+"/plain")
		s3cmd("put", "--acl-public", x.file("small", 100), "s3://"+bucket+"/public")
		x.has(s3cmd("info", "s3://"+bucket), "anon")
		s3cmd("setacl", "--acl-private", "s3://"+bucket)
		isPublic(x, bucket, false)
		s3cmd("mb", "--acl-public", "s3://more-"+bucket)
		isPublic(x, "more-"+bucket, true)
	})
	t.Run("rclone", func(t *testing.T) {
		x, bucket := g.tool(t,
			"RCLONE_CONFIG_H_TYPE=s3", "RCLONE_CONFIG_H_PROVIDER=Other", "RCLONE_CONFIG_H_ENDPOINT="+g.node.S3URL(),
			"RCLONE_CONFIG_H_ACCESS_KEY_ID="+g.key.AccessKeyID, "RCLONE_CONFIG_H_SECRET_ACCESS_KEY="+g.key.SecretAccessKey,
		), "rclone"+randomName()
		x.run("rclone", "mkdir", "--s3-bucket-acl", "public-read", "h:"+bucket)
		isPublic(x, bucket, true)
		x.run("rclone", "copyto", "--s3-acl", "public-read", x.file("small", 100), "h:"+bucket+"/public")
		// It says private of every object where it is not told otherwise.
		if out, err := x.try("rclone", "--retries", "1", "copyto", x.file("small", 100), "h:"+bucket+"/plain"); err != nil && !strings.Contains(out, "it is public with every object in it") {
			t.Errorf("%v %s", err, out)
		}
	})
}
