//go:build conformance

package conformance

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/crc64nvme"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestObjectsWithoutAChecksumGetOne promises that an object without a checksum, from a PUT, a form or parts, has the
// CRC64NVME of its bytes on every node, also after restarts. A stock SDK verifies by it what it reads.
func TestObjectsWithoutAChecksumGetOne(t *testing.T) {
	t.Parallel() // it mostly waits
	g := newGateway(t, harness.Options{})
	c := g.cluster
	o := &objects{t: t, cluster: c, token: g.key.Token, turn: &atomic.Int64{}}
	const bucket = "default-checksum"
	o.ok(http.StatusOK, http.MethodPut, "/"+bucket, nil)
	put, form, parts := harness.RandomBytes(100_000), harness.RandomBytes(70_000), [][]byte{harness.RandomBytes(5_000_001), harness.RandomBytes(1_234)}
	o.ok(http.StatusOK, http.MethodPut, "/"+bucket+"/put", put)
	var body bytes.Buffer
	fields := multipart.NewWriter(&body)
	part, err := fields.CreateFormField("key")
	if err == nil {
		_, err = io.WriteString(part, "form")
	}
	if err == nil {
		part, err = fields.CreateFormFile("file", "name")
	}
	if err == nil {
		_, err = part.Write(form)
	}
	if err != nil || fields.Close() != nil {
		t.Fatal(err)
	}
	o.ok(http.StatusNoContent, http.MethodPost, "/"+bucket, body.Bytes(), "content-type", fields.FormDataContentType())
	id := o.begin("/" + bucket + "/parts")
	for i, p := range parts {
		r := o.ok(http.StatusOK, http.MethodPut, fmt.Sprintf("/%s/parts?partNumber=%d&uploadId=%s", bucket, i+1, id), p)
		if got := r.Header.Get("X-Amz-Checksum-Crc64nvme"); got != "" {
			t.Errorf("part %d is answered with %s, which nobody asked for", i+1, got)
		}
	}
	o.ok(http.StatusOK, http.MethodPost, "/"+bucket+"/parts?uploadId="+id, harness.CompletionOf(parts...))

	everywhere := func(t *testing.T) {
		for _, n := range c.Nodes {
			for key, want := range map[string][]byte{"put": put, "form": form, "parts": bytes.Join(parts, nil)} {
				out, err := g.sdk(n).GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(key), ChecksumMode: types.ChecksumModeEnabled})
				if err != nil {
					t.Fatalf("%s from %s: %v", key, n.Name, err)
				}
				got, err := io.ReadAll(out.Body)
				_ = out.Body.Close()
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s from %s: %d bytes, %v", key, n.Name, len(got), err)
				}
				h := crc64nvme.New()
				_, _ = h.Write(want)
				if sum := base64.StdEncoding.EncodeToString(h.Sum(nil)); aws.ToString(out.ChecksumCRC64NVME) != sum || out.ChecksumType != types.ChecksumTypeFullObject {
					t.Errorf("%s from %s has %q, %q, want %s", key, n.Name, aws.ToString(out.ChecksumCRC64NVME), out.ChecksumType, sum)
				}
			}
		}
	}
	everywhere(t)
	for _, n := range c.Nodes {
		n.Stop()
	}
	for _, n := range c.Nodes {
		n.Restart()
	}
	c.Settle()
	everywhere(t)
}

// TestLinesOfTheLogSayWhoseTheyAre promises that the lines about sessions and revoked keys have
// the account and its e-mail, so that nobody looks an id up.
func TestLinesOfTheLogSayWhoseTheyAre(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 1})
	const email = "whose@example.org"
	n := c.Nodes[0]
	if r := n.TryCLI(userPassword+"\n", "user", "add", "--password-stdin", email); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	key := n.Key(email)
	session := signIn(t, n, email)
	do(t, n, session, http.MethodDelete, "/auth/token", "", nil)
	n.CLI("key", "revoke", "--yes", key.ID)
	for _, message := range []string{"session begun", "session ended", "API key revoked"} {
		found := false
		for line := range strings.Lines(n.Log()) {
			if strings.Contains(line, message) {
				found = strings.Contains(line, email) && strings.Contains(line, "account=")
			}
		}
		if !found {
			t.Errorf("no line %q with account and e-mail:\n%s", message, n.Log())
		}
	}
}
