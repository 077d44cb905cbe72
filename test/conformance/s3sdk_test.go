//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/minio-go/v7"
	miniocredentials "github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/tags"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// sdk returns a client of the AWS SDK for Go with its default settings, at one node.
func (g gateway) sdk(n *harness.Node) *s3.Client {
	return s3.NewFromConfig(aws.Config{
		Region:      "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(g.key.AccessKeyID, g.key.SecretAccessKey, ""),
		// What config.LoadDefaultConfig says.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}, func(o *s3.Options) {
		o.BaseEndpoint, o.UsePathStyle = aws.String(n.S3URL()), true
	})
}

// TestStockS3SDKs promises that the SDKs that programs are built with work against a node that does not lead.
func TestStockS3SDKs(t *testing.T) {
	t.Parallel() // a cluster of its own
	g := newGateway(t, harness.Options{})
	t.Run("aws-sdk-go-v2", func(t *testing.T) { testSDK(t, g.sdk(g.node)) })
	t.Run("checksums of parts", func(t *testing.T) { testPartSums(t, g) })
	t.Run("links and tokens", func(t *testing.T) { testLinks(t, g) })
	t.Run("wrong keys", func(t *testing.T) { testWrongKeys(t, g) })
	t.Run("minio-go", func(t *testing.T) { testMinio(t, g, false) })
	t.Run("minio-go with trailers", func(t *testing.T) { testMinio(t, g, true) })
	t.Run("client-s3 and lib-storage", func(t *testing.T) {
		modules, script := harness.Script(t, jsDir, "s3.mjs")
		ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, harness.NodeProgram(modules, harness.NodeCurrent), script, g.node.S3URL(), g.key.AccessKeyID, g.key.SecretAccessKey, "js"+randomName())
		cmd.Dir = modules
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "all passed") {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}

func testSDK(t *testing.T, c *s3.Client) {
	ctx := t.Context()
	bucket := aws.String("sdk" + randomName())
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: bucket}))
	small := make([]byte, 70_000)
	rand.Read(small)
	key := aws.String("docs/./../a//b +%41 ü")
	check(c.PutObject(ctx, &s3.PutObjectInput{
		Bucket: bucket, Key: key, Body: bytes.NewReader(small), ContentType: aws.String("x/y"), Metadata: map[string]string{"colour": "blue"},
	}))
	got, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key})
	check(got, err)
	if body, err := io.ReadAll(got.Body); err != nil || !bytes.Equal(body, small) || aws.ToString(got.ContentType) != "x/y" || got.Metadata["colour"] != "blue" {
		t.Fatalf("%d bytes, %v, %s, %v", len(body), err, aws.ToString(got.ContentType), got.Metadata)
	}
	for _, algorithm := range types.ChecksumAlgorithm("").Values() {
		switch algorithm {
		case types.ChecksumAlgorithmMd5, types.ChecksumAlgorithmXxhash64, types.ChecksumAlgorithmXxhash3, types.ChecksumAlgorithmXxhash128:
			continue // the SDK computes none of them; testS3Classes sends them
		}
		key := aws.String("sum/" + string(algorithm))
		check(c.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: bytes.NewReader(small), ChecksumAlgorithm: algorithm}))
		got, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, ChecksumMode: types.ChecksumModeEnabled})
		check(got, err)
		_, err = io.Copy(io.Discard, got.Body) // verifies
		check(nil, err)
		field := reflect.ValueOf(*got).FieldByName("Checksum" + string(algorithm))
		if sum, ok := field.Interface().(*string); !ok || aws.ToString(sum) == "" || got.ChecksumType != types.ChecksumTypeFullObject {
			t.Errorf("%s did not come back: %v, %s", algorithm, field, got.ChecksumType)
		}
	}
	etag := testSDKMultipart(t, c, bucket)
	copied, err := c.CopyObject(ctx, &s3.CopyObjectInput{Bucket: bucket, Key: aws.String("copy"), CopySource: aws.String(*bucket + "/big")})
	check(copied, err)
	if aws.ToString(copied.CopyObjectResult.ETag) != etag {
		t.Errorf("a copy has ETag %s, its source %s", aws.ToString(copied.CopyObjectResult.ETag), etag)
	}
	check(c.PutObjectTagging(ctx, &s3.PutObjectTaggingInput{Bucket: bucket, Key: aws.String("copy"), Tagging: &types.Tagging{
		TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("1")}},
	}}))
	tagging, err := c.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: bucket, Key: aws.String("copy")})
	check(tagging, err)
	if len(tagging.TagSet) != 1 || aws.ToString(tagging.TagSet[0].Value) != "1" {
		t.Errorf("tags: %v", tagging.TagSet)
	}
	var exists *types.NoSuchKey
	if _, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("absent")}); !errors.As(err, &exists) {
		t.Errorf("an absent key: %v", err)
	}
	if _, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: bytes.NewReader(small), IfNoneMatch: aws.String("*")}); err == nil || !strings.Contains(err.Error(), "PreconditionFailed") {
		t.Errorf("If-None-Match of a key that is there: %v", err)
	}
	var all []types.ObjectIdentifier
	pages := s3.NewListObjectsV2Paginator(c, &s3.ListObjectsV2Input{Bucket: bucket, MaxKeys: aws.Int32(3)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		check(page, err)
		for _, o := range page.Contents {
			all = append(all, types.ObjectIdentifier{Key: o.Key})
		}
	}
	if len(all) != 9 { // three, and one for each checksum
		t.Errorf("%d keys in pages of three", len(all))
	}
	out, err := c.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: bucket, Delete: &types.Delete{Objects: all}})
	check(out, err)
	if len(out.Deleted) != len(all) || len(out.Errors) != 0 {
		t.Errorf("deleted %d of %d: %v", len(out.Deleted), len(all), out.Errors)
	}
	check(c.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: bucket}))
}

// testSDKMultipart sends an object in parts and returns its ETag.
func testSDKMultipart(t *testing.T, c *s3.Client, bucket *string) string {
	ctx := t.Context()
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	up, err := c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: aws.String("big"), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32})
	check(up, err)
	var parts []types.CompletedPart
	whole := make([]byte, 0, multipartBytes)
	const each = 10 << 20
	for i := range multipartBytes / each {
		part := make([]byte, each)
		rand.Read(part)
		whole = append(whole, part...)
		number := aws.Int32(int32(i + 1))
		out, err := c.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: bucket, Key: aws.String("big"), UploadId: up.UploadId, PartNumber: number, Body: bytes.NewReader(part),
			ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
		})
		check(out, err)
		parts = append(parts, types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32})
	}
	check(c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: bucket, Key: aws.String("big"), UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}))
	got, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("big")})
	check(got, err)
	if body, err := io.ReadAll(got.Body); err != nil || !bytes.Equal(body, whole) {
		t.Fatalf("big: %d bytes, %v", len(body), err)
	}
	facts, err := c.GetObjectAttributes(ctx, &s3.GetObjectAttributesInput{
		Bucket: bucket, Key: aws.String("big"), MaxParts: aws.Int32(1), PartNumberMarker: aws.String("1"),
		ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesObjectParts, types.ObjectAttributesChecksum},
	})
	check(facts, err)
	if p := facts.ObjectParts; aws.ToInt32(p.TotalPartsCount) != int32(len(parts)) || len(p.Parts) != 1 || aws.ToInt32(p.Parts[0].PartNumber) != 2 ||
		aws.ToInt64(p.Parts[0].Size) != each || facts.Checksum.ChecksumCRC32 == nil {
		t.Errorf("attributes: %+v, %+v", p, facts.Checksum)
	} else if aws.ToString(p.Parts[0].ChecksumCRC32) != aws.ToString(parts[1].ChecksumCRC32) {
		t.Errorf("attributes: part 2 has the checksum %q", aws.ToString(p.Parts[0].ChecksumCRC32))
	}
	return aws.ToString(got.ETag)
}

// testLinks uses links that the SDK signs, which need no credentials, and an access
// key that is a token.
func testLinks(t *testing.T, g gateway) {
	ctx := t.Context()
	c := g.sdk(g.node)
	bucket, key := aws.String("links"+randomName()), aws.String("a b/ü")
	token := s3.New(c.Options(), func(o *s3.Options) {
		o.Credentials = credentials.NewStaticCredentialsProvider("JWT:"+g.key.Token, "not used", "")
	})
	if _, err := token.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	links := s3.NewPresignClient(c)
	put, err := links.PresignPutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key}, s3.WithPresignExpires(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	get, err := links.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, url, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r, err := harness.Answer(http.DefaultTransport, req)
		if err != nil {
			t.Fatal(err)
		}
		return r.Status, string(r.Body)
	}
	if code, text := send(http.MethodPut, put.URL, "by a link"); code != http.StatusOK {
		t.Fatalf("PUT by a link: %d %s", code, text)
	}
	if code, text := send(http.MethodGet, get.URL, ""); code != http.StatusOK || text != "by a link" {
		t.Errorf("GET by a link: %d %s", code, text)
	}
	for name, url := range map[string]string{
		"another key":       strings.Replace(get.URL, "a%20b", "a%20c", 1),
		"a longer life":     strings.Replace(get.URL, "X-Amz-Expires=900", "X-Amz-Expires=90000", 1),
		"another signature": get.URL[:len(get.URL)-1] + "x",
		"another method":    put.URL,
	} {
		if code, text := send(http.MethodGet, url, ""); code != http.StatusForbidden || url == get.URL {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
}

// minio returns a client of minio-go at the gateway's node. With trailers there is a
// checksum behind each body.
func (g gateway) minio(t *testing.T, trailers bool) *minio.Client {
	t.Helper()
	c, err := minio.New(strings.TrimPrefix(g.node.S3URL(), "http://"), &minio.Options{
		Creds: miniocredentials.NewStaticV4(g.key.AccessKeyID, g.key.SecretAccessKey, ""), TrailingHeaders: trailers,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func testMinio(t *testing.T, g gateway, trailers bool) {
	ctx, c := t.Context(), g.minio(t, trailers)
	bucket := "minio" + randomName()
	if err := c.MakeBucket(ctx, bucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if found, err := c.BucketExists(ctx, bucket); err != nil || !found {
		t.Fatal(found, err)
	}
	data := make([]byte, multipartBytes)
	rand.Read(data)
	for key, size := range map[string]int{"small": 70_000, "big": multipartBytes} {
		if _, err := c.PutObject(ctx, bucket, key, bytes.NewReader(data[:size]), int64(size), minio.PutObjectOptions{UserMetadata: map[string]string{"colour": "blue"}}); err != nil {
			t.Fatal(err)
		}
		f, err := c.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(f)
		if err != nil || !bytes.Equal(body, data[:size]) {
			t.Fatalf("%s: %d bytes, %v", key, len(body), err)
		}
		f.Close()
	}
	if _, err := c.CopyObject(ctx, minio.CopyDestOptions{Bucket: bucket, Object: "copy"}, minio.CopySrcOptions{Bucket: bucket, Object: "big"}); err != nil {
		t.Fatal(err)
	}
	set, err := tags.NewTags(map[string]string{"a": "1"}, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.PutObjectTagging(ctx, bucket, "copy", set, minio.PutObjectTaggingOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.GetObjectTagging(ctx, bucket, "copy", minio.GetObjectTaggingOptions{}); err != nil || got.ToMap()["a"] != "1" {
		t.Fatal(got, err)
	}
	var listed []string
	for o := range c.ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		listed = append(listed, o.Key)
	}
	if fmt.Sprint(listed) != "[big copy small]" {
		t.Errorf("listed %v", listed)
	}
	names := make(chan minio.ObjectInfo, len(listed))
	for _, k := range listed {
		names <- minio.ObjectInfo{Key: k}
	}
	close(names)
	for e := range c.RemoveObjects(ctx, bucket, names, minio.RemoveObjectsOptions{}) {
		t.Errorf("remove: %v", e)
	}
	if err := c.RemoveBucket(ctx, bucket); err != nil {
		t.Fatal(err)
	}
}

// testPartSums has the SDK read parts with their checksums, of an upload whose
// checksum is composed of theirs and of one whose is that of all bytes, on every node.
func testPartSums(t *testing.T, g gateway) {
	ctx := t.Context()
	c := g.sdk(g.node)
	bucket := aws.String("sums" + randomName())
	if _, err := c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	pieces := [][]byte{harness.RandomBytes(5 << 20), harness.RandomBytes(5<<20 + 1), harness.RandomBytes(77)}
	for _, kind := range []struct {
		algorithm types.ChecksumAlgorithm
		of        types.ChecksumType
		sum       func([]byte) string
	}{
		{types.ChecksumAlgorithmSha256, types.ChecksumTypeComposite, func(b []byte) string {
			sum := sha256.Sum256(b)
			return base64.StdEncoding.EncodeToString(sum[:])
		}},
		{types.ChecksumAlgorithmCrc32, types.ChecksumTypeFullObject, func(b []byte) string {
			return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)))
		}},
	} {
		key := aws.String(string(kind.algorithm))
		up, err := c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key, ChecksumAlgorithm: kind.algorithm, ChecksumType: kind.of})
		if err != nil {
			t.Fatal(err)
		}
		var parts []types.CompletedPart
		for i, piece := range pieces {
			number := aws.Int32(int32(3*i + 1)) // with gaps
			out, err := c.UploadPart(ctx, &s3.UploadPartInput{Bucket: bucket, Key: key, UploadId: up.UploadId, PartNumber: number, Body: bytes.NewReader(piece), ChecksumAlgorithm: kind.algorithm})
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32, ChecksumSHA256: out.ChecksumSHA256})
		}
		_, err = c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: bucket, Key: key, UploadId: up.UploadId, ChecksumType: kind.of, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range g.cluster.Live() {
			c := g.sdk(n)
			facts, err := c.GetObjectAttributes(ctx, &s3.GetObjectAttributesInput{Bucket: bucket, Key: key, ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesObjectParts}})
			if err != nil || len(facts.ObjectParts.Parts) != len(pieces) {
				t.Fatalf("%s: %+v, %v", *key, facts, err)
			}
			for i, piece := range pieces {
				want := kind.sum(piece)
				listed := facts.ObjectParts.Parts[i]
				// The SDK compares what it reads with the checksum.
				got, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, PartNumber: aws.Int32(int32(i + 1)), ChecksumMode: types.ChecksumModeEnabled})
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(got.Body)
				if err != nil || !bytes.Equal(body, piece) || got.ChecksumType != kind.of {
					t.Errorf("%s part %d: %d bytes, %v", *key, i, len(body), err)
				}
				for _, sum := range []string{aws.ToString(listed.ChecksumCRC32) + aws.ToString(listed.ChecksumSHA256), aws.ToString(got.ChecksumCRC32) + aws.ToString(got.ChecksumSHA256)} {
					if sum != want {
						t.Errorf("%s part %d: %q, want %q", *key, i, sum, want)
					}
				}
			}
		}
	}
}

// testWrongKeys has an access key that nobody has and a secret that is another, in headers and in
// links: users are told which of the two is wrong.
func testWrongKeys(t *testing.T, g gateway) {
	unknown, wrong := g, g
	unknown.key.AccessKeyID = "HF" + strings.Repeat("A", len(g.key.AccessKeyID)-2)
	wrong.key.SecretAccessKey += "x"
	for want, as := range map[string]gateway{"InvalidAccessKeyId": unknown, "SignatureDoesNotMatch": wrong} {
		c := as.sdk(g.node)
		if _, err := c.ListBuckets(t.Context(), &s3.ListBucketsInput{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a header: %v, want %s", err, want)
		}
		link, err := s3.NewPresignClient(c).PresignGetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Get(link.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "<Code>"+want+"</Code>") {
			t.Errorf("a link: %d %s, %v, want %s", resp.StatusCode, body, err, want)
		}
	}
}
