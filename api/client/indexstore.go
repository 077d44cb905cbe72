package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// maxIndexObject is the maximum size of an index object that the client reads, in bytes.
const maxIndexObject = 4 << 20

// indexStore is the seal.Store of a Vault: it stores index objects in a bucket.
type indexStore struct {
	client *Client
	bucket string
}

// Get implements seal.Store.
func (s *indexStore) Get(ctx context.Context, key string) (data []byte, etag string, err error) {
	seen, err := s.client.do(ctx, operation{verb: "get", bucket: s.bucket, key: key}, func(ctx context.Context, n *node) error {
		body, _, _, err := n.core.GetObject(ctx, s.bucket, key, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }() // opened only for reading
		if data, err = io.ReadAll(io.LimitReader(body, maxIndexObject+1)); err != nil {
			return &bodyError{err}
		}
		if len(data) > maxIndexObject {
			return &sourceError{fmt.Errorf("%w: s3://%s/%s", seal.ErrTooLarge, s.bucket, key)}
		}
		return nil
	})
	var missing *Error
	if errors.As(err, &missing) && missing.Code == "NoSuchKey" {
		return nil, "", seal.ErrNotFound
	}
	if err != nil {
		return nil, "", err
	}
	return data, fromHeader(s.bucket, key, seen.header).ETag, nil
}

// PutIf implements seal.Store.
func (s *indexStore) PutIf(ctx context.Context, key string, data []byte, etag string) error {
	p := newPart(1, data)
	options := UploadOptions{}.put()
	options.UserMetadata["x-amz-checksum-crc32c"] = p.crc
	if etag == "" {
		options.SetMatchETagExcept("*")
	} else {
		options.SetMatchETag(etag)
	}
	_, err := s.client.send(ctx, operation{verb: "put", bucket: s.bucket, key: key}, p, func(ctx context.Context, n *node, body io.Reader) (string, error) {
		stored, err := n.core.PutObject(ctx, s.bucket, key, body, p.size, "", "", options)
		return stored.ETag, err
	})
	var refused *Error
	if errors.Is(err, ErrPrecondition) || errors.As(err, &refused) && refused.Status == 409 {
		return seal.ErrConflict
	}
	return err
}

// Delete implements seal.Deleter.
func (s *indexStore) Delete(ctx context.Context, key string) error {
	return s.client.Remove(ctx, s.bucket, key)
}

var _ interface {
	seal.Store
	seal.Deleter
} = (*indexStore)(nil)

// newBytes returns a reader of data that can seek.
func newBytes(data []byte) io.ReadSeeker { return bytes.NewReader(data) }
