package harness

import (
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// S3 sends one request to this node's object gateway, with a Bearer token unless token is empty. It
// sends path, which may have a query, unchanged, and does not follow redirects. If length is -1,
// the body is sent with chunked transfer coding, unless its type reveals the length. pairs are
// additional headers: name, value, name, value and so on.
func (n *Node) S3(ctx context.Context, token, method, path string, body io.Reader, length int64, pairs ...string) (Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, n.S3URL(), body)
	if err != nil {
		return Response{}, err
	}
	if length >= 0 {
		req.ContentLength = length
	}
	raw, query, _ := strings.Cut(path, "?")
	req.URL.Opaque, req.URL.RawQuery = raw, query
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		req.Header.Set(pairs[i], pairs[i+1])
	}
	return Answer(n.http.Transport, req)
}

// Answer sends a request by the transport by and reads the whole answer, without regard to its
// status.
func Answer(by http.RoundTripper, req *http.Request) (Response, error) {
	resp, err := by.RoundTrip(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: data}, err
}

// ETag returns the ETag of an object or part with the content data.
func ETag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

// PartsETag returns the ETag of an object that was uploaded in these parts: the MD5 of the MD5s of
// the parts, and the number of parts.
func PartsETag(parts ...[]byte) string {
	h := md5.New()
	for _, p := range parts {
		sum := md5.Sum(p)
		h.Write(sum[:])
	}
	return fmt.Sprintf(`"%x-%d"`, h.Sum(nil), len(parts))
}

// Completion returns the body of a request that completes a multipart upload. pairs are the number
// and the ETag of each part.
func Completion(pairs ...any) []byte {
	var b strings.Builder
	b.WriteString("<CompleteMultipartUpload>")
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", pairs[i], pairs[i+1])
	}
	b.WriteString("</CompleteMultipartUpload>")
	return []byte(b.String())
}

// CompletionOf does the same as Completion for these parts, numbered from 1.
func CompletionOf(parts ...[]byte) []byte {
	var pairs []any
	for i, p := range parts {
		pairs = append(pairs, i+1, ETag(p))
	}
	return Completion(pairs...)
}
