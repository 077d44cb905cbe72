//go:build conformance

package conformance

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what signatures of version 2 are made with
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// testS3Version2: presigned links of signature version 2, made here and by a stock boto3
// where there is one, each at the next node.
func testS3Version2(t *testing.T, o *objects) {
	key := o.cluster.Leader().Key("objects@example.org")
	bucket := "/links" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	follow := func(n int, want int, method, address string, body []byte, header ...string) []byte {
		t.Helper()
		nodes := o.cluster.Live()
		if strings.HasPrefix(address, "/") {
			address = nodes[n%len(nodes)].S3URL() + address
		}
		r, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		got, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != want {
			t.Fatalf("%s %s: %d %s, want %d, %v", method, address, answer.StatusCode, got, want, err)
		}
		return got
	}
	link := func(method, path string, end time.Time, lines ...string) string {
		expires := strconv.FormatInt(end.Unix(), 10)
		mac := hmac.New(sha1.New, []byte(key.SecretAccessKey))
		fmt.Fprintf(mac, "%s\n\n\n%s\n%s%s", method, expires, strings.Join(append(lines, ""), "\n"), path)
		return path + "?AWSAccessKeyId=" + key.AccessKeyID + "&Expires=" + expires + "&Signature=" + url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	k, soon := bucket+"/a%20b", time.Now().Add(time.Minute)
	follow(0, http.StatusOK, http.MethodPut, link(http.MethodPut, k, soon, "x-amz-meta-a:1"), []byte("linked"), "x-amz-meta-a", "1")
	if got := follow(1, http.StatusOK, http.MethodGet, link(http.MethodGet, k, soon), nil); string(got) != "linked" {
		t.Errorf("%q", got)
	}
	follow(2, http.StatusOK, http.MethodHead, link(http.MethodHead, k, soon), nil)
	follow(0, http.StatusForbidden, http.MethodGet, link(http.MethodGet, k, time.Now().Add(-time.Second)), nil)
	follow(1, http.StatusForbidden, http.MethodGet, link(http.MethodGet, k, time.Now().Add(8*24*time.Hour)), nil)
	follow(2, http.StatusForbidden, http.MethodPut, link(http.MethodPut, k, soon), []byte("x"), "x-amz-copy-source", bucket+"/other")
	follow(0, http.StatusForbidden, http.MethodDelete, link(http.MethodGet, k, soon), nil)
	follow(1, http.StatusForbidden, http.MethodGet, strings.Replace(link(http.MethodGet, k, soon), key.AccessKeyID, "HFUNKNOWN", 1), nil)
	follow(2, http.StatusNoContent, http.MethodDelete, link(http.MethodDelete, k, soon), nil)
	o.refused(http.StatusNotFound, "NoSuchKey", http.MethodGet, k, nil)

	python, err := exec.LookPath("python3")
	if err != nil || exec.CommandContext(t.Context(), python, "-c", "import boto3").Run() != nil {
		return // what boto3 makes is in api/s3/sigv4/testdata too
	}
	const script = `
import boto3, sys
c = boto3.client("s3", endpoint_url=sys.argv[1], aws_access_key_id=sys.argv[2], aws_secret_access_key=sys.argv[3], region_name="us-east-1")
for op in ("put_object", "get_object", "head_object", "delete_object"):
    print(c.generate_presigned_url(op, Params={"Bucket": sys.argv[4], "Key": "a b/ü+%41~*(1)"}))
print(c.generate_presigned_url("list_objects_v2", Params={"Bucket": sys.argv[4]}))`
	out, err := exec.CommandContext(t.Context(), python, "-c", script, o.cluster.Leader().S3URL(), key.AccessKeyID, key.SecretAccessKey, bucket[1:]).Output()
	if err != nil {
		t.Fatal(err)
	}
	made := strings.Fields(string(out))
	if len(made) != 5 || !strings.Contains(made[0], "AWSAccessKeyId=") {
		t.Fatalf("boto3 made %s", out)
	}
	follow(0, http.StatusOK, http.MethodPut, made[0], []byte("by boto3"))
	if got := follow(0, http.StatusOK, http.MethodGet, made[1], nil); string(got) != "by boto3" {
		t.Errorf("%q", got)
	}
	follow(0, http.StatusOK, http.MethodHead, made[2], nil)
	if got := follow(0, http.StatusOK, http.MethodGet, made[4], nil); !bytes.Contains(got, []byte("<KeyCount>1<")) {
		t.Errorf("%s", got)
	}
	follow(0, http.StatusNoContent, http.MethodDelete, made[3], nil)
}
