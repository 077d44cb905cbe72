package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Object describes an object. List sets only Bucket, Key, Size, ETag, Modified and StorageClass.
type Object struct {
	Bucket       string
	Key          string
	Size         int64  // bytes
	ETag         string // without quotes
	Modified     time.Time
	StorageClass string

	ContentType string
	BLAKE3      string            // hash of the content in hex; "" if the cluster does not know it yet
	CID         string            // root CID of the content on IPFS
	Version     string            // "" in a bucket without versions
	Metadata    map[string]string // x-amz-meta-*, names in lower case without the prefix
}

const metadataPrefix = "x-amz-meta-"

// fromHeader returns the object that the headers of an answer describe.
func fromHeader(bucket, key string, h http.Header) Object {
	o := Object{
		Bucket: bucket, Key: key,
		ETag:         strings.Trim(h.Get("ETag"), `"`),
		ContentType:  h.Get("Content-Type"),
		BLAKE3:       strings.ToLower(h.Get("X-Holdfast-Blake3")),
		CID:          h.Get("X-Holdfast-Cid"),
		Version:      h.Get("X-Amz-Version-Id"),
		StorageClass: h.Get("X-Amz-Storage-Class"),
		Metadata:     map[string]string{},
	}
	o.Size, _ = strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	o.Modified, _ = http.ParseTime(h.Get("Last-Modified"))
	for name, values := range h {
		if short, ok := strings.CutPrefix(strings.ToLower(name), metadataPrefix); ok {
			o.Metadata[short] = values[0]
		}
	}
	return o
}

// Head returns an object with its metadata. The error is ErrNotFound if the object does not
// exist.
func (c *Client) Head(ctx context.Context, bucket, key string) (Object, error) {
	seen, err := c.do(ctx, operation{verb: "head", bucket: bucket, key: key}, func(ctx context.Context, n *node) error {
		_, err := n.core.StatObject(ctx, bucket, key, minio.StatObjectOptions{})
		return err
	})
	if err != nil {
		return Object{}, err
	}
	return fromHeader(bucket, key, seen.header), nil
}

// Remove removes an object. Removing an object that does not exist is no error.
func (c *Client) Remove(ctx context.Context, bucket, key string) error {
	_, err := c.do(ctx, operation{verb: "rm", bucket: bucket, key: key}, func(ctx context.Context, n *node) error {
		return n.core.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{})
	})
	return err
}

// MakeBucket creates a bucket. The error is ErrExists if the account already has the bucket.
func (c *Client) MakeBucket(ctx context.Context, bucket string) error {
	_, err := c.do(ctx, operation{verb: "create", bucket: bucket}, func(ctx context.Context, n *node) error {
		return n.core.MakeBucket(ctx, bucket, minio.MakeBucketOptions{Region: defaultRegion})
	})
	return err
}

// RemoveBucket removes an empty bucket.
func (c *Client) RemoveBucket(ctx context.Context, bucket string) error {
	_, err := c.do(ctx, operation{verb: "rm", bucket: bucket}, func(ctx context.Context, n *node) error {
		return n.core.RemoveBucket(ctx, bucket)
	})
	return err
}

// Bucket is one bucket of the account.
type Bucket struct {
	Name    string
	Created time.Time
}

// Buckets returns the buckets of the account, ordered by name.
func (c *Client) Buckets(ctx context.Context) (all []Bucket, err error) {
	_, err = c.do(ctx, operation{verb: "list buckets"}, func(ctx context.Context, n *node) error {
		found, err := n.core.ListBuckets(ctx)
		all = nil
		for _, b := range found {
			all = append(all, Bucket{b.Name, b.CreationDate})
		}
		return err
	})
	return all, err
}

// ListOptions select the objects of a list.
type ListOptions struct {
	Prefix string
	// After excludes this key and all keys before it.
	After string
	// Recursive lists all keys that begin with Prefix. Without Recursive, keys that share the next path
	// segment "NAME/" after Prefix are one entry: its Key ends in "/", and of the other fields only
	// Bucket is set.
	Recursive bool
}

// List returns the objects of a bucket, ordered by the bytes of their keys. Without Recursive,
// each page of 1,000 entries has first its objects and then its entries that end in "/". The
// sequence ends after its first error. If a node fails in the middle of a list, List continues on
// another node.
func (c *Client) List(ctx context.Context, bucket string, o ListOptions) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		start, last, stopped := o.After, o.After, false
		for {
			before := last
			_, err := c.do(ctx, operation{verb: "ls", bucket: bucket, key: o.Prefix}, func(ctx context.Context, n *node) error {
				start = last // all keys up to last were delivered, because a page arrives whole
				list := n.core.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{
					Prefix: o.Prefix, Recursive: o.Recursive, StartAfter: start,
				})
				for entry := range list {
					if entry.Err != nil {
						return entry.Err
					}
					if entry.Key <= start { // a common prefix that was delivered before
						continue
					}
					last = max(last, entry.Key)
					stopped = !yield(Object{
						Bucket: bucket, Key: entry.Key, Size: entry.Size, ETag: entry.ETag,
						Modified: entry.LastModified, StorageClass: entry.StorageClass,
					}, nil)
					if stopped {
						return errStopped
					}
				}
				return ctx.Err()
			})
			if errors.Is(err, ErrUnavailable) && last != before {
				continue // each page has the whole patience
			}
			if err != nil && !stopped {
				yield(Object{}, err)
			}
			return
		}
	}
}

// errStopped ends the requests of List when the caller stops the iteration.
var errStopped = &sourceError{errors.New("stopped")}
