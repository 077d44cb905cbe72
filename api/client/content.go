package client

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Content is content that is read by its CID. If a node fails, the next node continues with the next byte.
// Read returns io.EOF only after the last byte. The caller closes it.
type Content struct {
	Size   int64 // of a file, in bytes; -1 for a folder and for a CAR
	Folder bool  // the content is a tar stream of a folder, with names that are relative to it

	from   *io.PipeReader
	cancel context.CancelFunc
	ended  chan struct{} // closed when nothing more is sent
}

// OpenContent opens the file or folder at a path: a CID, or a CID with a path in its folder after a slash.
// Errors: ErrNotFound if no node has the content, or if the account of the token may not read it.
func (c *Client) OpenContent(ctx context.Context, path string) (*Content, error) {
	return c.openContent(ctx, operation{verb: "read content"}, path, TypeTar+", application/octet-stream")
}

// OpenCAR opens the DAG of a CID as a CAR. Its errors are those of OpenContent.
func (c *Client) OpenCAR(ctx context.Context, cid string) (*Content, error) {
	return c.openContent(ctx, operation{verb: "read content"}, cid, TypeCAR)
}

// Read implements io.Reader.
func (c *Content) Read(p []byte) (int, error) { return c.from.Read(p) }

// Close implements io.Closer. It waits until the client uses no connection for the content. It returns no
// error.
func (c *Content) Close() error {
	c.cancel()
	_ = c.from.Close() // never fails
	<-c.ended
	return nil
}

func (c *Client) openContent(ctx context.Context, op operation, path, accept string) (*Content, error) {
	ctx, cancel := context.WithCancel(ctx)
	from, to := io.Pipe()
	opened := &Content{from: from, cancel: cancel, ended: make(chan struct{})}
	reading := &contentRead{op: op, path: path, accept: accept, to: local(to), begun: make(chan struct{})}
	var failed error
	go func() { // ends with ctx, of which Close has the cancel function
		defer close(opened.ended)
		failed = c.readContent(ctx, reading)
		_ = to.CloseWithError(failed) // never fails; nil is io.EOF
	}()
	select {
	case <-reading.begun:
	case <-opened.ended:
		select {
		case <-reading.begun:
		default:
			cancel()
			return nil, failed
		}
	}
	opened.Size, opened.Folder = reading.size, reading.kind == TypeTar
	return opened, nil
}

// contentRead is content that is being read.
type contentRead struct {
	op           operation
	path, accept string
	to           io.Writer

	base  string        // URL of the web API that is asked
	begun chan struct{} // closed after the first answer has set kind, etag and size
	kind  string        // media type
	etag  string
	size  int64 // in bytes; -1: not known

	done int64        // bytes that were written
	sum  maphash.Hash // of them
}

// readContent writes the content to r.to. Each node after the first continues where the one before has failed.
func (c *Client) readContent(ctx context.Context, r *contentRead) error {
	for {
		before := r.done
		err := c.via(ctx, webAPI, r.op, func(ctx context.Context, base string) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			timer := time.AfterFunc(c.stall, func() { cancel(errStalled) })
			timer.Stop() // the timer runs only while a body is awaited
			err := r.request(ctx, c.by, base, func(body io.Reader) io.Reader {
				return &patient{from: body, timer: timer, within: c.stall}
			})
			if err != nil && errors.Is(context.Cause(ctx), errStalled) {
				err = &bodyError{errStalled}
			}
			return err
		})
		if errors.Is(err, ErrUnavailable) && r.done > before {
			continue // each piece has the whole patience
		}
		return err
	}
}

// request reads the rest of the content from one node. guard wraps the body of the answer with a reader that
// fails if the node stalls.
func (r *contentRead) request(ctx context.Context, by http.RoundTripper, base string, guard func(io.Reader) io.Reader) error {
	r.base = base
	names := strings.Split(r.path, "/")
	for i, name := range names {
		names[i] = url.PathEscape(name)
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/content/"+strings.Join(names, "/"), nil)
	if err != nil {
		return &sourceError{err}
	}
	ask.Header.Set("Accept", r.accept)
	if r.done > 0 && r.size >= 0 {
		ask.Header.Set("Range", fmt.Sprintf("bytes=%d-", r.done))
		ask.Header.Set("If-Match", r.etag)
	}
	resp, err := by.RoundTrip(ask)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // opened only for reading
	if resp.StatusCode/100 != 2 {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // a refusal that is cut has no reason
		return refusalIn(data)
	}
	in := &noting{from: guard(resp.Body)}
	if err := r.continues(resp, in); err != nil {
		if in.failed != nil {
			err = in.failed
		}
		return err
	}
	if _, err := io.CopyBuffer(contentWriter{r}, onlyReader{in}, make([]byte, ioBuffer)); err != nil {
		if in.failed != nil {
			err = in.failed
		}
		return err
	}
	if r.size >= 0 && r.done != r.size {
		return &bodyError{io.ErrUnexpectedEOF}
	}
	return nil
}

// continues checks that an answer has the same content as the first answer, and reads in up to the next byte
// that is to be written. A stream has no ranges, so what was written is compared with what comes again.
func (r *contentRead) continues(resp *http.Response, in io.Reader) error {
	kind := resp.Header.Get("Content-Type")
	select {
	case <-r.begun:
	default:
		if kind != TypeTar && kind != TypeCAR && resp.ContentLength < 0 || r.accept == TypeCAR && kind != TypeCAR {
			return r.other()
		}
		r.kind, r.etag, r.size = kind, resp.Header.Get("ETag"), resp.ContentLength
		if kind == TypeTar || kind == TypeCAR {
			r.size = -1
		}
		r.sum.Reset()
		close(r.begun)
		return nil
	}
	if kind != r.kind {
		return r.other()
	}
	if r.size >= 0 && resp.StatusCode == http.StatusPartialContent {
		if !begins(resp.Header, r.done) {
			return r.other()
		}
		return nil
	}
	var again maphash.Hash
	again.SetSeed(r.sum.Seed())
	if _, err := io.CopyN(&again, in, r.done); err != nil {
		return &bodyError{err}
	}
	if again.Sum64() != r.sum.Sum64() {
		return r.other()
	}
	return nil
}

// other returns the error for an answer that is not the content that was asked for.
func (r *contentRead) other() error {
	return &Error{Op: r.op.String(), Endpoint: r.base, Status: http.StatusOK, Message: "the node sent other content"}
}

// contentWriter writes content and counts it.
type contentWriter struct{ *contentRead }

// Write implements io.Writer.
func (w contentWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.done += int64(n)
	_, _ = w.sum.Write(p[:n]) // never fails
	return n, err
}
