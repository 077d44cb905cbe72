//go:build conformance

package conformance

import (
	"bytes"
	"crypto/rand"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
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

// postForm sends a form with fields and a file ü.bin behind them, as a page does.
func postForm(t *testing.T, to *url.URL, fields map[string]string, content []byte) (int, string) {
	t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for name, value := range fields {
		if err := w.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	f, err := w.CreateFormFile("file", "ü.bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to.String(), &form)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", w.FormDataContentType())
	r, err := harness.Answer(http.DefaultTransport, req)
	if err != nil {
		t.Fatal(err)
	}
	return r.Status, string(r.Body)
}

// TestFormsThatMinioSigns promises that a follower stores a form upload by a policy of minio-go, and refuses a form
// that differs from its policy. It uploads as a page in a browser does.
func TestFormsThatMinioSigns(t *testing.T) {
	t.Parallel()
	g := newGateway(t, harness.Options{})
	ctx := t.Context()
	c, err := minio.New(strings.TrimPrefix(g.node.S3URL(), "http://"), &minio.Options{
		Creds: miniocredentials.NewStaticV4(g.key.AccessKeyID, g.key.SecretAccessKey, ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	bucket := "forms" + randomName()
	if err := c.MakeBucket(ctx, bucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 12<<20)
	rand.Read(data)
	policy := minio.NewPostPolicy()
	for _, err := range []error{
		policy.SetBucket(bucket), policy.SetKey("a b/ü.bin"), policy.SetContentType("x/y"), policy.SetUserMetadata("colour", "blue"),
		policy.SetContentLengthRange(1, int64(len(data))), policy.SetSuccessStatusAction("201"), policy.SetExpires(time.Now().Add(time.Hour)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	to, fields, err := c.PresignedPostPolicy(ctx, policy)
	if err != nil {
		t.Fatal(err)
	}
	with := func(name, value string) map[string]string {
		changed := map[string]string{name: value}
		for n, v := range fields {
			if n != name {
				changed[n] = v
			}
		}
		return changed
	}
	for name, bad := range map[string]map[string]string{
		"another key":       with("key", "other"),
		"another type":      with("Content-Type", "text/html"),
		"another signature": with("x-amz-signature", strings.Repeat("0", 64)),
		"one more field":    with("x-amz-meta-more", "x"),
	} {
		if code, text := postForm(t, to, bad, data[:100]); code != http.StatusForbidden || !strings.Contains(text, map[bool]string{true: "SignatureDoesNotMatch", false: "AccessDenied"}[name == "another signature"]) {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	if code, text := postForm(t, to, fields, nil); code != http.StatusBadRequest || !strings.Contains(text, "EntityTooSmall") {
		t.Errorf("nothing: %d %s", code, text)
	}
	if code, text := postForm(t, to, fields, append(slices.Clone(data), 'x')); code != http.StatusBadRequest || !strings.Contains(text, "EntityTooLarge") {
		t.Errorf("a byte more: %d %s", code, text)
	}
	for o := range c.ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true}) {
		t.Errorf("a form that was refused stored %q, %v", o.Key, o.Err)
	}
	// The name of the file is put into the key, which then is what was signed.
	code, text := postForm(t, to, with("key", "a b/${filename}"), data)
	if code != http.StatusCreated || !strings.Contains(text, "<Key>a b/ü.bin</Key>") {
		t.Fatalf("%d %s", code, text)
	}
	// Another node has it at once.
	other, err := g.sdk(g.cluster.Leader()).GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String("a b/ü.bin")})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Body.Close()
	if body, err := io.ReadAll(other.Body); err != nil || !bytes.Equal(body, data) || aws.ToString(other.ContentType) != "x/y" || other.Metadata["colour"] != "blue" {
		t.Errorf("%d bytes, %v, %s, %v", len(body), err, aws.ToString(other.ContentType), other.Metadata)
	}
	facts, err := g.sdk(g.node).GetObjectAttributes(ctx, &s3.GetObjectAttributesInput{
		Bucket: aws.String(bucket), Key: aws.String("a b/ü.bin"), ObjectAttributes: types.ObjectAttributes("").Values(),
	})
	if err != nil || aws.ToInt64(facts.ObjectSize) != int64(len(data)) || `"`+aws.ToString(facts.ETag)+`"` != aws.ToString(other.ETag) || facts.ObjectParts != nil {
		t.Errorf("%+v, %v", facts, err)
	}
	if err := c.RemoveObject(ctx, bucket, "a b/ü.bin", minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveBucket(ctx, bucket); err != nil {
		t.Fatal(err)
	}
}
