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
	path     string // path relative to the synced folder, with slashes; that of a folder ends in one
	key      string
	size     int64 // bytes
	modified time.Time
	etag     string
	hash     *Hash // hash of the content; nil if the list has no hash
	err      error // why a folder cannot be listed, or nil
}

// tree is the cluster side of a sync: plain objects, or the encrypted files of a Vault.
type tree interface {
	// list returns the files, ordered by the bytes of their paths.
	list(ctx context.Context) iter.Seq2[*entry, error]
	// stored reports whether the file has not changed since it was uploaded as there, by the times of
	// both. Their sizes are equal.
	stored(local *localFile, there *entry) bool
	// fetched reports whether the file is an unchanged download of there, by the times of both. Their
	// sizes are equal.
	fetched(local *localFile, there *entry) bool
	// check returns the reason why a file cannot be stored under its path, or nil.
	check(path string) error
	// same compares the content of the file at path with that of an object of equal size.
	same(ctx context.Context, path string, there *entry) (bool, error)
	upload(ctx context.Context, local *localFile, path string, verify bool, o UploadOptions) error
	download(ctx context.Context, there *entry, to *incoming) error
	remove(ctx context.Context, there *entry) error
	abandon(ctx context.Context, journal string) error
	// finish is called at the end of every sync, successful or not.
	finish(ctx context.Context) error
}

// plainTree is the tree of a sync without encryption: the objects whose keys begin with a prefix.
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

// fetched implements tree. It compares times with a resolution of 1 ms, that of the lists of the
// gateway.
func (t *plainTree) fetched(local *localFile, there *entry) bool {
	return local.modified.UnixMilli() == there.modified.UnixMilli()
}

// check implements tree. It accepts every path, because the cluster checks the keys.
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

// hashFile returns the sum of h over the content of a file.
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

// ErrDiffers means that the content that the cluster stored differs from the file that was
// uploaded.
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
