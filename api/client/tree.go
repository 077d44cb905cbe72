package client

import (
	"context"
	"crypto/md5" //nolint:gosec // the ETag of S3
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"mime"
	"os"
	"path"
	"strings"
	"time"

	"lukechampine.com/blake3"
)

// entry is one file in the cluster.
type entry struct {
	path     string // relative, with slashes; a folder ends in one
	key      string
	size     int64 // bytes
	modified time.Time
	etag     string
	hash     *Hash // hash of the content; nil if the list has no hash
	err      error // why a folder cannot be listed, or nil
}

// tree is the cluster side of a sync.
type tree interface {
	// list returns the files, ordered by the bytes of their paths.
	list(ctx context.Context) iter.Seq2[*entry, error]
	// stored reports whether the times of a file and an object of equal size show that the file has
	// not changed since its upload.
	stored(local *localFile, there *entry) bool
	// fetched reports whether the times of a file and an object of equal size show that the file is
	// an unchanged download of the object.
	fetched(local *localFile, there *entry) bool
	// check returns the reason why a file cannot be stored under its path, or nil.
	check(path string) error
	// same compares the content of the file at path with that of an object of equal size.
	same(ctx context.Context, path string, there *entry) (bool, error)
	upload(ctx context.Context, local *localFile, path string, verify bool, o UploadOptions) error
	download(ctx context.Context, there *entry, to *incoming) error
	remove(ctx context.Context, there *entry) error
	abandon(ctx context.Context, journal string) error
	// finish ends a sync, whether or not it succeeded.
	finish(ctx context.Context) error
}

// plainTree is the cluster side of a sync without encryption: the objects whose keys begin with a
// prefix.
type plainTree struct {
	client         *Client
	bucket, prefix string
}

func (t *plainTree) list(ctx context.Context) iter.Seq2[*entry, error] {
	return func(yield func(*entry, error) bool) {
		for o, err := range t.client.List(ctx, t.bucket, ListOptions{Prefix: t.prefix, Recursive: true}) {
			if err != nil {
				yield(nil, err)
				return
			}
			e := &entry{
				path: strings.TrimPrefix(o.Key, t.prefix), key: o.Key, size: o.Size,
				modified: o.Modified, etag: strings.Trim(o.ETag, `"`),
			}
			if e.path == "" { // marker of the folder of the prefix
				continue
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (t *plainTree) stored(local *localFile, there *entry) bool {
	return there.modified.Sub(local.modified) > timeMargin && there.modified.Sub(local.changed) > timeMargin
}

// fetched compares times in milliseconds, the resolution of lists of the gateway.
func (t *plainTree) fetched(local *localFile, there *entry) bool {
	return local.modified.UnixMilli() == there.modified.UnixMilli()
}

// check leaves the decision to the cluster.
func (t *plainTree) check(string) error { return nil }

func (t *plainTree) same(ctx context.Context, file string, there *entry) (bool, error) {
	if !strings.Contains(there.etag, "-") {
		sum, err := hashFile(file, md5.New()) //nolint:gosec // as above
		return hex.EncodeToString(sum) == there.etag, err
	}
	o, err := t.client.Head(ctx, t.bucket, there.key)
	if err != nil || o.BLAKE3 == "" {
		return false, err
	}
	sum, err := hashFile(file, blake3.New(len(Hash{}), nil))
	return hex.EncodeToString(sum) == o.BLAKE3, err
}

// hashFile returns the hash h of the content of a file.
func hashFile(file string, h hash.Hash) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	_, err = io.CopyBuffer(onlyWriter{h}, onlyReader{f}, make([]byte, ioBuffer))
	return h.Sum(nil), err
}

// onlyWriter hides all methods of a writer except Write, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

// ErrDiffers reports that the content that the cluster stored differs from the file.
var ErrDiffers = errors.New("the BLAKE3 hash that the cluster computed differs from that of the file")

func (t *plainTree) upload(ctx context.Context, local *localFile, file string, verify bool, o UploadOptions) error {
	o.ContentType = TypeOf(local.path)
	key := t.prefix + local.path
	stored, err := t.client.UploadFile(ctx, t.bucket, key, file, o)
	if err != nil || !verify {
		return err
	}
	root, err := t.client.hashOf(ctx, &stored)
	if err != nil {
		return err
	}
	sum, err := hashFile(file, blake3.New(len(Hash{}), nil))
	if err == nil && Hash(sum) != root {
		err = fmt.Errorf("s3://%s/%s: %w", t.bucket, key, ErrDiffers)
	}
	return err
}

// TypeOf returns the media type for the extension of a file name.
func TypeOf(name string) string {
	if kind := mime.TypeByExtension(strings.ToLower(path.Ext(name))); kind != "" {
		return kind
	}
	return "application/octet-stream"
}

func (t *plainTree) download(ctx context.Context, there *entry, to *incoming) error {
	to.options.Object = &Object{Bucket: t.bucket, Key: there.key, Size: there.size, ETag: there.etag}
	f, err := t.client.prepare(ctx, t.bucket, there.key, to.options)
	if err != nil {
		return err
	}
	to.client, to.fetching = t.client, f
	return to.run(ctx)
}

func (t *plainTree) remove(ctx context.Context, there *entry) error {
	return t.client.Remove(ctx, t.bucket, there.key)
}

func (t *plainTree) abandon(ctx context.Context, journal string) error {
	return t.client.Abandon(ctx, journal)
}

func (t *plainTree) finish(context.Context) error { return nil }
