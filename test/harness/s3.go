package harness

import (
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// S3 sends one request with a Bearer token to this node's object gateway; no token, no header.
// The path, with its query, goes out as it is, and a redirect is an answer like others. A body
// of length -1 is sent in chunks unless its type tells the length. pairs are names and values of
// headers.
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

// Answer sends a request and reads the whole answer, whatever its status.
func Answer(by http.RoundTripper, req *http.Request) (Response, error) {
	resp, err := by.RoundTrip(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: data}, err
}

// ETag is that of an object or part with these bytes.
func ETag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

// PartsETag is that of an object of these parts: the MD5 of their MD5s, with their number.
func PartsETag(parts ...[]byte) string {
	h := md5.New()
	for _, p := range parts {
		sum := md5.Sum(p)
		h.Write(sum[:])
	}
	return fmt.Sprintf(`"%x-%d"`, h.Sum(nil), len(parts))
}

// Completion returns the body that completes an upload; pairs are numbers of parts and ETags.
func Completion(pairs ...any) []byte {
	var b strings.Builder
	b.WriteString("<CompleteMultipartUpload>")
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", pairs[i], pairs[i+1])
	}
	b.WriteString("</CompleteMultipartUpload>")
	return []byte(b.String())
}

// CompletionOf returns the Completion with these parts, numbered from 1.
func CompletionOf(parts ...[]byte) []byte {
	var pairs []any
	for i, p := range parts {
		pairs = append(pairs, i+1, ETag(p))
	}
	return Completion(pairs...)
}
