package client

import (
	"context"
	"fmt"
	"io"
	"net/url"
)

// DownloadOptions describe a download. The zero value is usable.
type DownloadOptions struct {
	// Object is the result of Head or List for the object, if the caller has one. It saves a request.
	Object *Object

	// Verify makes the client verify each KiB against the BLAKE3 hash of the object before it writes
	// it. This costs 6 % more traffic. Hash is the expected hash. If Hash is nil, the client asks a
	// node for the hash, which detects damage and a lying node, unless that same node lies about the
	// hash too.
	Verify bool
	Hash   *Hash

	// Parallel is the number of ranges in transfer at once; 0 means DefaultParallel.
	Parallel int

	// Begin, unless it is nil, is called once before the first byte, with the number of bytes of the
	// object, of the range, or of the decrypted file.
	Begin func(bytes int64)

	// Progress is called from several goroutines, with the number of bytes that were received since
	// the last call.
	Progress func(bytes int64)
}

func (o DownloadOptions) begin(bytes int64) {
	if o.Begin != nil {
		o.Begin(bytes)
	}
}

func (o DownloadOptions) parallel() int {
	if o.Parallel > 0 {
		return o.Parallel
	}
	return DefaultParallel
}

// Download writes an object to w as one stream. If it returns an error, the bytes in w are a
// correct prefix of the object.
func (c *Client) Download(ctx context.Context, bucket, key string, w io.Writer, o DownloadOptions) (Object, error) {
	f, err := c.prepare(ctx, bucket, key, o)
	if err != nil {
		return Object{}, err
	}
	o.begin(f.object.Size)
	return f.object, c.fetch(ctx, f, 0, f.object.Size, o.reporting(w))
}

// DownloadRange writes n bytes of the object from the offset off to w, or fewer if the object
// ends earlier.
func (c *Client) DownloadRange(ctx context.Context, bucket, key string, off, n int64, w io.Writer, o DownloadOptions) (Object, error) {
	f, err := c.prepare(ctx, bucket, key, o)
	if err != nil {
		return Object{}, err
	}
	if off < 0 || n < 0 || off > f.object.Size {
		return Object{}, fmt.Errorf("get %s: the range of %d bytes from %d on is outside of its %d bytes", f.name(), n, off, f.object.Size)
	}
	n = min(n, f.object.Size-off)
	o.begin(n)
	return f.object, c.fetch(ctx, f, off, n, o.reporting(w))
}

// prepare returns the object to download, from o.Object or by a HEAD request. With Verify it also
// returns the hash to verify by. The error is ErrChanged if HEAD shows another ETag than
// o.Object.
func (c *Client) prepare(ctx context.Context, bucket, key string, o DownloadOptions) (*fetching, error) {
	f := &fetching{}
	if o.Object != nil && (!o.Verify || o.Hash != nil || o.Object.BLAKE3 != "") {
		f.object = *o.Object
	} else {
		object, err := c.Head(ctx, bucket, key)
		if err != nil {
			return nil, err
		}
		if o.Object != nil && o.Object.ETag != object.ETag {
			return nil, fmt.Errorf("get %s: %w", f.name(), ErrChanged)
		}
		f.object = object
	}
	f.object.Bucket, f.object.Key = bucket, key
	if !o.Verify {
		return f, nil
	}
	f.root = o.Hash
	if f.root == nil {
		root, err := c.hashOf(ctx, &f.object)
		if err != nil {
			return nil, err
		}
		f.root = &root
	}
	if f.object.Size == 0 && *f.root != emptyHash { // an empty object has no slice to verify
		return nil, &VerifyError{Object: f.name(), Endpoint: "that described it", Reason: reasonHash}
	}
	return f, nil
}

// hashOf returns the BLAKE3 hash of o. The cluster computes the hash of some multipart uploads in
// the background. If the hash is still missing, hashOf requests a Bao slice of one byte, which
// makes a node compute the hash now.
func (c *Client) hashOf(ctx context.Context, o *Object) (Hash, error) {
	text := o.BLAKE3
	if text == "" {
		op := operation{verb: "verify", bucket: o.Bucket, key: o.Key}
		_, err := c.do(ctx, op, func(ctx context.Context, n *node) error {
			body, header, err := n.getBao(ctx, o, url.Values{"bao": {""}, "start": {"0"}, "length": {"1"}})
			if err == nil {
				text = fromHeader(o.Bucket, o.Key, header).BLAKE3
				_ = body.Close() // the body is not read
			}
			return err
		})
		if err != nil {
			return Hash{}, err
		}
	}
	root, err := ParseHash(text)
	if err != nil {
		return Hash{}, fmt.Errorf("%s: %w", operation{bucket: o.Bucket, key: o.Key}.name(), ErrNoHash)
	}
	return root, nil
}

// reporting returns a writer that writes to w and calls o.Progress with the number of bytes.
func (o DownloadOptions) reporting(w io.Writer) io.Writer {
	if o.Progress == nil {
		return w
	}
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		o.Progress(int64(n))
		return n, err
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
