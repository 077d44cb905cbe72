package sigv4

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The credentials and the time of the examples that AWS publishes in the Amazon
// S3 API Reference, and the credentials of the requests in testdata.
const (
	awsKey    = "AKIAIOSFODNN7EXAMPLE"
	testKey   = "HF0123456789ABCDEF"
	secret    = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	awsStamp  = "20130524T000000Z"
	awsScope  = awsKey + "/20130524/us-east-1/s3/aws4_request"
	emptyBody = "x-amz-content-sha256: " + emptySHA256 + "\r\n"
)

// lookup knows the two keys above.
func lookup(_ context.Context, accessKey string) (string, error) {
	if accessKey == awsKey || accessKey == testKey {
		return secret, nil
	}
	return "", ErrUnknownKey
}

// verifierAt returns a verifier whose clock stands.
func verifierAt(t testing.TB, stamp string) *Verifier {
	t.Helper()
	now, ok := parseStamp(stamp)
	if !ok {
		t.Fatalf("%q is no time", stamp)
	}
	return New(lookup, "us-east-1", func() time.Time { return now })
}

// arrive returns a request as a server has it after reading raw.
func arrive(t testing.TB, raw string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		t.Fatalf("%v in %q", err, raw[:min(len(raw), 400)])
	}
	return r
}

// code is that of an error of this package.
func code(t testing.TB, err error) Code {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not an Error", err)
	}
	return e.Code
}

func authorization(names, signature string) string {
	return "Authorization: AWS4-HMAC-SHA256 Credential=" + awsScope + ",SignedHeaders=" + names + ",Signature=" + signature + "\r\n"
}

// Each signed example that Amazon publishes is verified with its body and trailer, and with another path it is
// refused.
func TestPublishedExamplesAreVerified(t *testing.T) {
	const host = "Host: examplebucket.s3.amazonaws.com\r\n"
	const date = "x-amz-date: " + awsStamp + "\r\n"
	kilobyte := strings.Repeat("a", 1024)
	chunk := func(size, signature, data string) string {
		return size + ";chunk-signature=" + signature + "\r\n" + data
	}
	const streamed = "Host: s3.amazonaws.com\r\n" + date + "x-amz-storage-class: REDUCED_REDUNDANCY\r\n" +
		"Content-Encoding: aws-chunked\r\nx-amz-decoded-content-length: 66560\r\n"
	for _, tc := range []struct {
		name, raw string
		body      string
		trailer   string
	}{
		{"GET object", "GET /test.txt HTTP/1.1\r\n" + host + date + emptyBody + "Range: bytes=0-9\r\n" +
			authorization("host;range;x-amz-content-sha256;x-amz-date", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41") + "\r\n", "", ""},
		{"PUT object", "PUT /test$file.text HTTP/1.1\r\n" + host + date + "Date: Fri, 24 May 2013 00:00:00 GMT\r\nx-amz-storage-class: REDUCED_REDUNDANCY\r\n" +
			"x-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072\r\nContent-Length: 21\r\n" +
			authorization("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd") +
			"\r\nWelcome to Amazon S3.", "Welcome to Amazon S3.", ""},
		{"GET bucket lifecycle", "GET /?lifecycle HTTP/1.1\r\n" + host + date + emptyBody +
			authorization("host;x-amz-content-sha256;x-amz-date", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543") + "\r\n", "", ""},
		{"list objects", "GET /?max-keys=2&prefix=J HTTP/1.1\r\n" + host + date + emptyBody +
			authorization("host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7") + "\r\n", "", ""},
		{"presigned GET", "GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request" +
			"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host" +
			"&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404 HTTP/1.1\r\n" + host + "\r\n", "", ""},
		{"chunked upload", "PUT /examplebucket/chunkObject.txt HTTP/1.1\r\n" + streamed + "Content-Length: 66824\r\n" +
			"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n" +
			authorization("content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class",
				"4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9") + "\r\n" +
			chunk("10000", "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648", strings.Repeat(kilobyte, 64)+"\r\n") +
			chunk("400", "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497", kilobyte+"\r\n") +
			chunk("0", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9", "\r\n"), strings.Repeat(kilobyte, 65), ""},
		{
			"chunked upload with a trailer", "PUT /examplebucket/chunkObject.txt HTTP/1.1\r\n" + streamed + "Content-Length: 66946\r\n" +
				"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER\r\nx-amz-trailer: x-amz-checksum-crc32c\r\n" +
				authorization("content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer",
					"106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e") + "\r\n" +
				chunk("10000", "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2", strings.Repeat(kilobyte, 64)+"\r\n") +
				chunk("400", "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7", kilobyte+"\r\n") +
				chunk("0", "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
					"x-amz-checksum-crc32c:sOO8/Q==\r\nx-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n"),
			strings.Repeat(kilobyte, 65), "sOO8/Q==",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := arrive(t, tc.raw)
			if r.Body == http.NoBody {
				r.ContentLength = 0
			}
			caller, err := verifierAt(t, awsStamp).Verify(t.Context(), r)
			if err != nil || caller.AccessKey != awsKey {
				t.Fatalf("%v, %v", caller, err)
			}
			body := caller.Body(r.Body)
			got, err := io.ReadAll(body)
			if err != nil || string(got) != tc.body {
				t.Fatalf("%d bytes, %v, want %d", len(got), err, len(tc.body))
			}
			if tc.trailer != "" && (len(body.Trailers()) != 1 || body.Trailers()[0] != Trailer{"x-amz-checksum-crc32c", tc.trailer}) {
				t.Errorf("%v", body.Trailers())
			}
			// Every byte of the request line is signed.
			path := strings.Replace(tc.raw, "t HTTP", "u HTTP", 1)
			if tc.name == "PUT object" {
				path = strings.Replace(tc.raw, "/test", "/tesu", 1)
			}
			if path == tc.raw {
				path = strings.Replace(tc.raw, " HTTP", "x HTTP", 1)
			}
			if _, err := verifierAt(t, awsStamp).Verify(t.Context(), arrive(t, path)); code(t, err) != CodeSignature {
				t.Errorf("another path: %v", err)
			}
		})
	}
}

// Each recorded request of a real SDK is verified with its body and trailer, and with another secret it is
// refused.
func TestRequestsOfClientsAreVerified(t *testing.T) {
	names, err := filepath.Glob("testdata/*.http")
	if err != nil || len(names) < 15 {
		t.Fatalf("%d requests, %v", len(names), err)
	}
	hello := "hello world"
	bodies := map[string]string{
		"aws_put_http": hello, "aws_put_https": hello, "aws_put_crc64": strings.Repeat("0123456789", 20), "aws_presigned_put": hello,
		"aws_delete_many":  `<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>x</Key></Object></Delete>`,
		"minio_put_signed": strings.Repeat("0123456789abcdef", 5000), "minio_put_https": hello,
		"minio_put_signed_trailer": hello, "minio_put_unsigned_trailer": hello,
	}
	trailers := map[string]Trailer{
		"aws_put_https": {"x-amz-checksum-crc32", "DUoRhQ=="}, "aws_put_crc64": {"x-amz-checksum-crc64nvme", "NrM3kv73cDM="},
		"minio_put_signed_trailer": {"x-amz-checksum-crc32c", "yZRlqg=="}, "minio_put_unsigned_trailer": {"x-amz-checksum-crc32c", "yZRlqg=="},
	}
	for _, file := range names {
		name := strings.TrimSuffix(filepath.Base(file), ".http")
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := arrive(t, string(raw))
			stamp := r.Header.Get("X-Amz-Date")
			if stamp == "" {
				stamp = r.URL.Query().Get("X-Amz-Date")
			}
			caller, err := verifierAt(t, stamp).Verify(t.Context(), r)
			if err != nil || caller.AccessKey != testKey || caller.Presigned != strings.Contains(name, "presigned") {
				t.Fatalf("%v, %v", caller, err)
			}
			body := caller.Body(r.Body)
			got, err := io.ReadAll(body)
			if err != nil || string(got) != bodies[name] {
				t.Fatalf("%d bytes %.40q, %v", len(got), got, err)
			}
			if want, ok := trailers[name]; ok != (len(body.Trailers()) == 1) || ok && body.Trailers()[0] != want {
				t.Errorf("%v, want %v", body.Trailers(), want)
			}
			wrong := New(func(context.Context, string) (string, error) { return secret + "x", nil }, "", verifierAt(t, stamp).now)
			if _, err := wrong.Verify(t.Context(), r); code(t, err) != CodeSignature {
				t.Errorf("by another secret: %v", err)
			}
		})
	}
}
