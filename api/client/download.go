package client

import (
	"context"
	"fmt"
	"io"
	"net/url"
)

// DownloadOptions describe a download. The zero value is usable.
type DownloadOptions struct {
	// Object is the description from Head or List, if the caller has it. It saves a request.
	Object *Object

	// Verify checks each KiB against the BLAKE3 hash of the object before it is handed on. It
	// costs 6 % more traffic. Hash is the expected hash. Without it the hash is that of Head,
	// which protects against damage, and against a node other than the one that answered
	// Head, but not against the cluster as a whole.
	Verify bool
	Hash   *Hash

	// Parallel is the number of ranges in transfer at once; 0 means DefaultParallel.
	Parallel int

	// Progress is called with the number of bytes that were received since the last call,
	// from several goroutines.
	Progress func(bytes int64)
}

func (o DownloadOptions) parallel() int {
	if o.Parallel > 0 {
		return o.Parallel
	}
	return DefaultParallel
}

// Download writes an object to w, as one stream. If it fails, w has got a correct beginning of
// the object.
func (c *Client) Download(ctx context.Context, bucket, key string, w io.Writer, o DownloadOptions) (Object, error) {
	f, err := c.prepare(ctx, bucket, key, o)
	if err != nil {
		return Object{}, err
	}
	return f.object, c.fetch(ctx, f, 0, f.object.Size, o.reporting(w))
}

// DownloadRange writes the n bytes from off on to w. It writes fewer if the object ends before.
func (c *Client) DownloadRange(ctx context.Context, bucket, key string, off, n int64, w io.Writer, o DownloadOptions) (Object, error) {
	f, err := c.prepare(ctx, bucket, key, o)
	if err != nil {
		return Object{}, err
	}
	if off < 0 || n < 0 || off > f.object.Size {
		return Object{}, fmt.Errorf("get %s: the range of %d bytes from %d on is outside of its %d bytes", f.name(), n, off, f.object.Size)
	}
	return f.object, c.fetch(ctx, f, off, min(n, f.object.Size-off), o.reporting(w))
}

// prepare describes the object to read, and finds its hash.
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
	if f.object.Size == 0 && *f.root != emptyHash { // there is nothing to prove
		return nil, &VerifyError{Object: f.name(), Endpoint: "that described it", Reason: reasonHash}
	}
	return f, nil
}

// hashOf returns the hash of an object from its description. The cluster computes that of some
// multipart uploads later. Then a node computes it for a Bao slice of one byte.
func (c *Client) hashOf(ctx context.Context, o *Object) (Hash, error) {
	text := o.BLAKE3
	if text == "" {
		op := operation{verb: "verify", bucket: o.Bucket, key: o.Key}
		_, err := c.do(ctx, op, func(ctx context.Context, n *node) error {
			body, header, err := n.getBao(ctx, o, url.Values{"bao": {""}, "start": {"0"}, "length": {"1"}})
			if err == nil {
				text = fromHeader(o.Bucket, o.Key, header).BLAKE3
				_ = body.Close() // not read
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

// reporting returns w with calls of Progress.
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
