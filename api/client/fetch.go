package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"
)

// fetching is an object that is being downloaded.
type fetching struct {
	object Object
	root   *Hash // hash to verify by, or nil
}

// name returns the object in the form s3://bucket/key.
func (f *fetching) name() string { return operation{bucket: f.object.Bucket, key: f.object.Key}.name() }

// fetch writes n bytes of the object from the offset off to w. If a node fails, fetch continues
// on another node with the next byte. An error of w ends fetch.
func (c *Client) fetch(ctx context.Context, f *fetching, off, n int64, w io.Writer) error {
	if n == 0 {
		return nil
	}
	op := operation{verb: "get", bucket: f.object.Bucket, key: f.object.Key}
	var done int64
	for {
		before := done
		_, err := c.do(ctx, op, func(ctx context.Context, node *node) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			timer := time.AfterFunc(c.stall, func() { cancel(errStalled) })
			timer.Stop() // the timer runs only while fetch waits for a body
			written, err := f.request(ctx, node, off+done, n-done, local(w), func(body io.Reader) io.Reader {
				return &patient{from: body, timer: timer, within: c.stall}
			})
			if err != nil && errors.Is(context.Cause(ctx), errStalled) {
				err = &bodyError{errStalled}
			}
			done += written
			if err == nil && done < n {
				err = &bodyError{io.ErrUnexpectedEOF}
			}
			return err
		})
		if errors.Is(err, ErrUnavailable) && done > before {
			continue // each piece has the whole patience
		}
		return err
	}
}

// request reads n bytes from the offset off from one node. It returns the number of bytes that it
// wrote to w. guard wraps the body of the answer with a reader that fails if the node stalls.
func (f *fetching) request(ctx context.Context, node *node, off, n int64, w io.Writer, guard func(io.Reader) io.Reader) (int64, error) {
	answer, header, err := f.open(ctx, node, off, n)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Close() }() // opened only for reading
	body := guard(answer)
	if f.root != nil {
		return f.verified(node, off, n, w, body)
	}
	if !begins(header, off) {
		return 0, &Error{Op: "get " + f.name(), Endpoint: node.endpoint, Status: http.StatusOK, Message: "the node sent another range"}
	}
	in := &noting{from: body}
	written, err := io.CopyBuffer(w, onlyReader{io.LimitReader(in, n)}, make([]byte, ioBuffer))
	if in.failed != nil {
		err = in.failed
	}
	return written, err
}

// open requests n bytes from the offset off, as a Bao slice if f.root is set. It returns the body
// and the header of the answer.
func (f *fetching) open(ctx context.Context, node *node, off, n int64) (io.ReadCloser, http.Header, error) {
	if f.root != nil {
		query := url.Values{"bao": {""}, "start": {strconv.FormatInt(off, 10)}, "length": {strconv.FormatInt(n, 10)}}
		return node.getBao(ctx, &f.object, query)
	}
	var options minio.GetObjectOptions
	if f.object.ETag != "" {
		options.Set("If-Match", `"`+f.object.ETag+`"`)
	}
	options.VersionID = f.object.Version
	options.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	answer, _, header, err := node.core.GetObject(ctx, f.object.Bucket, f.object.Key, options)
	return answer, header, err
}

// getBao requests a Bao slice with GET ?bao and returns the body and the header of the answer.
// query has the range.
func (n *node) getBao(ctx context.Context, o *Object, query url.Values) (io.ReadCloser, http.Header, error) {
	if o.Version != "" {
		query.Set("versionId", o.Version)
	}
	header := http.Header{}
	if o.ETag != "" {
		header.Set("If-Match", `"`+o.ETag+`"`)
	}
	resp, err := n.request(ctx, operation{verb: "verify", bucket: o.Bucket, key: o.Key}, http.MethodGet, query, header, nil)
	if err != nil {
		return nil, nil, err
	}
	return resp.Body, resp.Header, nil
}

// maxRefusal is the maximum number of bytes of an error answer that the client reads.
const maxRefusal = 64 << 10

// request sends a request for which minio-go has no method. The error is an *Error if the status of
// the answer is not 2xx. The caller closes the body of the answer.
func (n *node) request(ctx context.Context, op operation, method string, query url.Values, header http.Header, body []byte) (*http.Response, error) {
	target := n.endpoint + "/" + op.bucket
	if op.key != "" {
		target += "/" + s3utils.EncodePath(op.key)
	}
	r, err := http.NewRequestWithContext(ctx, method, target+"?"+s3utils.QueryEncode(query), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, header)
	if n.accessKey != "" {
		sum := sha256.Sum256(body)
		r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
		r = signer.SignV4(*r, n.accessKey, n.secretKey, "", defaultRegion)
	}
	resp, err := n.by.RoundTrip(r)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	defer func() { _ = resp.Body.Close() }() // opened only for reading
	var refusal struct{ Code, Message string }
	refused := &Error{Op: op.String(), Endpoint: n.endpoint, Status: resp.StatusCode}
	if xml.NewDecoder(io.LimitReader(resp.Body, maxRefusal)).Decode(&refusal) == nil {
		refused.Code, refused.Message = refusal.Code, refusal.Message
	}
	return nil, refused
}

// verified decodes a Bao slice of n bytes from the offset off, and writes the verified bytes to
// w. It returns their number. A wrong slice is a *VerifyError.
func (f *fetching) verified(node *node, off, n int64, w io.Writer, body io.Reader) (int64, error) {
	written, reason, err := decodeSlice(w, body, off, n, f.object.Size, *f.root)
	if err == nil && reason != "" {
		err = &VerifyError{Object: f.name(), Endpoint: node.endpoint, Offset: off + written, Reason: reason}
	}
	return written, err
}

// begins reports whether the body of an answer begins at the offset off, by its Content-Range.
func begins(h http.Header, off int64) bool {
	text := h.Get("Content-Range")
	return text == "" && off == 0 || strings.HasPrefix(text, fmt.Sprintf("bytes %d-", off))
}

var errStalled = errors.New("the node has stalled")

// patient is the body of a download. Its timer fires if one Read takes longer than the duration
// within. The timer does not run between reads, when the caller writes the bytes.
type patient struct {
	from   io.Reader
	timer  *time.Timer
	within time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	p.timer.Reset(p.within)
	defer p.timer.Stop()
	return p.from.Read(b)
}

// onlyReader hides all methods of a reader except Read, so that io.CopyBuffer uses its buffer.
type onlyReader struct{ io.Reader }
