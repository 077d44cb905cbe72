//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"
	miniocredentials "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// serveTLS starts a node again with a certificate of its own, and returns that once the node is
// ready.
func serveTLS(t *testing.T, n *harness.Node) *pair {
	t.Helper()
	n.Stop()
	p := newPair(t, n.Dir, 1)
	n.SetEnv("HOLDFAST_API_TLS_CERT="+p.cert, "HOLDFAST_API_TLS_KEY="+p.key)
	n.Restart()
	harness.Eventually(t, time.Minute, "the node is ready again", func() (bool, error) {
		resp, err := http.Get(n.AdminURL() + "/readyz")
		if err != nil {
			return false, err
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	return p
}

// TestStockS3ToolsOverTLS promises that a node stores what SDKs and tools send over HTTPS alone: bodies in chunks
// with a checksum behind them, signed or not, and without a length.
func TestStockS3ToolsOverTLS(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	c := harness.Start(t, harness.Options{Nodes: 1})
	n := c.Nodes[0]
	g := gateway{cluster: c, node: n, key: n.UserKey("tls@example.org")}
	p := serveTLS(t, n)
	endpoint := strings.Replace(n.S3URL(), "http://", "https://", 1)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.pool}}
	defer transport.CloseIdleConnections()
	client := s3.New(g.sdk(n).Options(), func(o *s3.Options) {
		o.BaseEndpoint, o.HTTPClient = aws.String(endpoint), &http.Client{Transport: transport}
	})
	bucket := aws.String("tls" + randomName())
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	// holds reads an object over its own connection.
	holds := func(t *testing.T, key string, want []byte) {
		t.Helper()
		got, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: aws.String(key)})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		if err != nil || !bytes.Equal(body, want) {
			t.Errorf("%s: %d bytes of %d, begins with %.60q: %v", key, len(body), len(want), body, err)
		}
		if encoding := aws.ToString(got.ContentEncoding); strings.Contains(encoding, "aws-chunked") {
			t.Errorf("%s has the encoding %q", key, encoding)
		}
	}
	data := harness.RandomBytes(3<<20 + 5)
	t.Run("aws-sdk-go-v2", func(t *testing.T) {
		for _, algorithm := range []types.ChecksumAlgorithm{types.ChecksumAlgorithmCrc32, types.ChecksumAlgorithmCrc64nvme, types.ChecksumAlgorithmSha256} {
			key := "sdk-" + string(algorithm)
			_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: bytes.NewReader(data), ChecksumAlgorithm: algorithm})
			if err != nil {
				t.Fatal(err)
			}
			holds(t, key, data)
		}
	})
	t.Run("minio-go", func(t *testing.T) {
		mc, err := minio.New(strings.TrimPrefix(endpoint, "https://"), &minio.Options{
			Creds: miniocredentials.NewStaticV4(g.key.AccessKeyID, g.key.SecretAccessKey, ""), Secure: true, Transport: transport,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mc.PutObject(t.Context(), *bucket, "minio", bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
		holds(t, "minio", data)
	})
	t.Run("aws", func(t *testing.T) {
		programs := []string{"/usr/bin/aws"}
		if newest, err := exec.LookPath("aws"); err == nil && newest != programs[0] {
			programs = append(programs, newest)
		}
		for i, program := range programs {
			x := g.tool(t, "AWS_PAGER=", "AWS_CA_BUNDLE="+p.cert)
			path := x.file("file", len(data))
			key := "aws" + string(rune('0'+i))
			x.run(program, "--endpoint-url", endpoint, "s3", "cp", path, "s3://"+*bucket+"/"+key)
			x.run(program, "--endpoint-url", endpoint, "s3", "cp", "s3://"+*bucket+"/"+key, "back")
			x.same(path, filepath.Join(x.home, "back"))
		}
	})
	t.Run("js", func(t *testing.T) {
		modules, script := harness.Script(t, jsDir, "s3.mjs")
		ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, harness.NodeProgram(modules, harness.NodeCurrent), script, endpoint, g.key.AccessKeyID, g.key.SecretAccessKey, "js"+randomName())
		cmd.Dir, cmd.Env = modules, append(cmd.Environ(), "NODE_EXTRA_CA_CERTS="+p.cert)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
	t.Run("Bearer with a checksum behind the body", func(t *testing.T) {
		for _, marker := range []string{"STREAMING-UNSIGNED-PAYLOAD-TRAILER", ""} {
			putFramed(t, transport, endpoint+"/"+*bucket+"/bearer", g.key.Token, marker)
			got, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("bearer")})
			if err != nil || aws.ToInt64(got.ContentLength) != 5 || aws.ToString(got.ContentEncoding) != "gzip" {
				t.Errorf("%q: %+v %v", marker, got, err)
			}
		}
	})
}

// putFramed puts an object in the chunks of S3 within those of HTTP, as a client
// without a signature does; not all of them say so in the marker.
func putFramed(t *testing.T, transport http.RoundTripper, url, token, marker string) {
	t.Helper()
	framed := "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(framed))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Encoding", "gzip, aws-chunked")
	req.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
	req.Header.Set("X-Amz-Decoded-Content-Length", "5")
	if marker != "" {
		req.Header.Set("X-Amz-Content-Sha256", marker)
	}
	req.ContentLength = -1 // in HTTP's chunks as well
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%q: %d %s %v", marker, resp.StatusCode, text, err)
	}
}
