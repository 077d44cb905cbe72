//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// haproxyProgram is where Debian puts it, which is not in everybody's PATH.
const haproxyProgram = "/usr/sbin/haproxy"

// startBalancer runs HAProxy with the configuration that deploy has, on other
// addresses, and returns the base of its object gateway.
func startBalancer(t *testing.T, c *harness.Cluster) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash("../../deploy/haproxy/haproxy.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	var front []string
	for range 2 {
		front = append(front, fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t)))
	}
	change := func(old, fresh string) {
		t.Helper()
		if !strings.Contains(config, old) {
			t.Fatalf("no %q in the configuration of deploy", old)
		}
		config = strings.ReplaceAll(config, old, fresh)
	}
	for i, n := range c.Nodes {
		_, port, err := net.SplitHostPort(strings.TrimPrefix(n.AdminURL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("10.0.0.%d", i+1)
		change(at+":9000 check port 9094", strings.TrimPrefix(n.S3URL(), "http://")+" check port "+port)
		change(at+":9097 check port 9094", strings.TrimPrefix(n.URL(), "http://")+" check port "+port)
	}
	change("bind :9000", "bind "+front[0])
	change("bind :9097", "bind "+front[1])
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(haproxyProgram, "-db", "-f", path)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("haproxy: %s", log.String())
		}
	})
	base := "http://" + front[0]
	harness.Eventually(t, time.Minute, "the balancer has a node", func() (bool, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base, nil)
		if err != nil {
			return false, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil
		}
		return resp.StatusCode == http.StatusForbidden, resp.Body.Close()
	})
	return base
}

// TestBehindALoadBalancer promises that S3 clients behind a load balancer that sends every request to another node
// lose nothing when a node ends or is killed, and list what they wrote. Clients notice only by a further try.
func TestBehindALoadBalancer(t *testing.T) {
	t.Parallel()
	g := newGateway(t, harness.Options{})
	base := startBalancer(t, g.cluster)
	client := s3.NewFromConfig(aws.Config{Region: "us-east-1", Credentials: g.sdk(g.node).Options().Credentials}, func(o *s3.Options) {
		o.BaseEndpoint, o.UsePathStyle, o.RetryMaxAttempts = aws.String(base), true, 10
	})
	t.Run("sync", func(t *testing.T) {
		x := g.tool(t, "AWS_PAGER=", "AWS_MAX_ATTEMPTS=10", "AWS_RETRY_MODE=standard")
		bucket := "s3://balanced" + randomName()
		run := func(args ...string) string {
			return x.run("/usr/bin/aws", append([]string{"--endpoint-url", base, "s3"}, args...)...)
		}
		run("mb", bucket)
		for i := range 200 {
			x.file(fmt.Sprintf("tree/%03d", i), 20_000+i)
		}
		x.file("tree/big", 30<<20)
		tree := filepath.Join(x.home, "tree")
		run("sync", "--quiet", tree, bucket)
		if again := run("sync", tree, bucket); strings.TrimSpace(again) != "" {
			t.Errorf("a second sync found work: %s", again)
		}
		run("sync", "--quiet", bucket, "back")
		x.sameTrees(tree, filepath.Join(x.home, "back"))
	})
	bucket := aws.String("multi" + randomName())
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	t.Run("a node ends in order", func(t *testing.T) {
		testDownloadsWhileANodeEnds(t, g, client, bucket)
	})
	t.Run("multipart with a node killed", func(t *testing.T) {
		testMultipartWithAKill(t, g, client, bucket)
	})
	t.Run("list after write", func(t *testing.T) {
		for i := range 60 {
			key := fmt.Sprintf("key-%02d", i)
			if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: aws.String(key), Body: strings.NewReader(key)}); err != nil {
				t.Fatal(err)
			}
			out, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: bucket, Prefix: aws.String("key-")})
			if err != nil || len(out.Contents) != i+1 {
				t.Fatalf("%d keys after %d writes: %v", len(out.Contents), i+1, err)
			}
		}
	})
}

// testMultipartWithAKill uploads parts to all nodes, kills the one that got the
// first, and completes on the others.
func testMultipartWithAKill(t *testing.T, g gateway, client *s3.Client, bucket *string) {
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	key := aws.String("big")
	up, err := client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	var whole []byte
	var parts []types.CompletedPart
	send := func(c *s3.Client) {
		t.Helper()
		data := harness.RandomBytes(5 << 20)
		number := aws.Int32(int32(len(parts) + 1))
		out, err := c.UploadPart(ctx, &s3.UploadPartInput{Bucket: bucket, Key: key, UploadId: up.UploadId, PartNumber: number, Body: bytes.NewReader(data)})
		if err != nil {
			t.Fatal(err)
		}
		whole, parts = append(whole, data...), append(parts, types.CompletedPart{PartNumber: number, ETag: out.ETag})
	}
	for _, n := range g.cluster.Nodes {
		send(g.sdk(n)) // one part on each
	}
	victim := g.cluster.Followers()[0]
	victim.Kill()
	for range 3 {
		send(client)
	}
	if _, err := client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: bucket, Key: key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(got.Body); err != nil || !bytes.Equal(body.Bytes(), whole) {
			t.Fatalf("%d bytes came back: %v", body.Len(), err)
		}
	}
	victim.Restart()
	g.cluster.Settle()
}

// testDownloadsWhileANodeEnds reads slowly through the balancer, from each node, while one
// of them is told to end: what it has begun to send comes whole.
func testDownloadsWhileANodeEnds(t *testing.T, g gateway, client *s3.Client, bucket *string) {
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	key, data := aws.String("slowly"), harness.RandomBytes(24<<20) // more than the sockets hold, and little enough for the end of a busy node
	if _, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: bytes.NewReader(data)}); err != nil {
		t.Fatal(err)
	}
	began, ended := make(chan struct{}, 6), make(chan error, 6)
	for range cap(began) { // requests go round
		go func() {
			ended <- func() error {
				got, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key})
				began <- struct{}{}
				if err != nil {
					return err
				}
				defer func() { _ = got.Body.Close() }()
				whole, slow := sha256.New(), time.NewTicker(100*time.Millisecond)
				defer slow.Stop()
				for err == nil { // for 3 s: what is marked down is so after less than one
					<-slow.C
					_, err = io.CopyN(whole, got.Body, int64(len(data))/30)
				}
				if !errors.Is(err, io.EOF) {
					return err
				}
				if [32]byte(whole.Sum(nil)) != sha256.Sum256(data) {
					return errors.New("other bytes came")
				}
				return nil
			}()
		}()
	}
	for range cap(began) {
		<-began
	}
	stopped := g.cluster.Followers()[0]
	stopped.Stop()
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Errorf("cut: %v", err)
		}
	}
	stopped.Restart()
	g.cluster.Settle()
}
