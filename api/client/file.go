package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// Parts of the names of unfinished downloads. The file NAME.part has the bytes, and
// NAME.part.journal is the journal of a large file. Both files are in the folder of the final file,
// and NAME begins with partialPrefix.
const (
	partialPrefix  = ".holdfast-"
	partialSuffix  = ".part"
	progressSuffix = ".part.journal"
)

// IsPartial reports whether a file with this name belongs to an unfinished download.
func IsPartial(name string) bool {
	return strings.HasPrefix(name, partialPrefix) &&
		(strings.HasSuffix(name, partialSuffix) || strings.HasSuffix(name, progressSuffix))
}

// DownloadFile writes an object to the file at path. It writes to a temporary file and renames
// that when the download is complete and on disk. A file that exists at path is replaced, and the
// new file has its mode. Files above SinglePut bytes arrive in parallel ranges. If such a
// download was interrupted, a later call continues it unless the object has changed.
func (c *Client) DownloadFile(ctx context.Context, bucket, key, path string, o DownloadOptions) (Object, error) {
	f, err := c.prepare(ctx, bucket, key, o)
	if err != nil {
		return Object{}, err
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return Object{}, err
	}
	defer func() { _ = root.Close() }() // closing a folder loses no data
	in := &incoming{client: c, fetching: f, root: root, name: filepath.Base(path), options: o, durable: true}
	return f.object, in.run(ctx)
}

// incoming is one download to a file.
type incoming struct {
	client   *Client
	fetching *fetching
	content  *seal.Content // content of an encrypted object; nil for other objects
	root     *os.Root
	name     string // final name of the file, below root
	options  DownloadOptions
	modified time.Time // time to set on the file; zero sets none
	durable  bool      // flush the file before publish renames it
}

// partial returns the name of the temporary file. The name depends on the object, so that
// downloads of two objects to the same file do not mix.
func (in *incoming) partial() string {
	sum := sha256.Sum256([]byte(in.fetching.name() + "\x00" + filepath.Base(in.name)))
	return filepath.Join(filepath.Dir(in.name), partialPrefix+hex.EncodeToString(sum[:8])+partialSuffix)
}

func (in *incoming) run(ctx context.Context) error {
	in.options.begin(in.size())
	partial := in.partial()
	large := in.size() > SinglePut && (in.content == nil || in.content.Chunked())
	flags := os.O_CREATE | os.O_RDWR
	if !large {
		flags |= os.O_TRUNC
	}
	file, err := in.root.OpenFile(partial, flags, 0o666)
	if err != nil {
		return err
	}
	if large {
		err = in.ranges(ctx, file, partial)
	} else {
		err = in.whole(ctx, in.options.reporting(file))
	}
	if err == nil && in.durable {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = in.publish(partial)
	}
	if err != nil && (!large || !errors.Is(err, context.Canceled) && !errors.Is(err, ErrUnavailable)) {
		_ = in.root.Remove(partial) // the caller gets the error of the download
		_ = in.root.Remove(progressName(partial))
	}
	return err
}

// publish gives the complete temporary file its mode, time and final name.
func (in *incoming) publish(partial string) error {
	if info, err := in.root.Stat(in.name); err == nil {
		if err := in.root.Chmod(partial, info.Mode().Perm()); err != nil {
			return err
		}
	}
	if !in.modified.IsZero() {
		if err := in.root.Chtimes(partial, in.modified, in.modified); err != nil {
			return err
		}
	}
	if err := in.root.Rename(partial, in.name); err != nil {
		return err
	}
	err := in.root.Remove(progressName(partial))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func progressName(partial string) string {
	return strings.TrimSuffix(partial, partialSuffix) + progressSuffix
}

// ranges downloads the ranges of a large file that an earlier call has not stored.
func (in *incoming) ranges(ctx context.Context, file *os.File, partial string) error {
	object := &in.fetching.object
	progress, err := openProgress(in.root, progressName(partial), progressHead{
		ETag: object.ETag, Version: object.Version, Size: in.size(), Hash: in.hash(), Range: DefaultPartSize,
	}, file)
	if err != nil {
		return err
	}
	var hash *rangeHash
	if in.content != nil {
		hash = newRangeHash(in.size(), DefaultPartSize)
	}
	fetching, stop := errgroup.WithContext(ctx)
	fetching.SetLimit(in.options.parallel())
	for off := int64(0); off < in.size() && stop.Err() == nil; off += DefaultPartSize {
		n := min(DefaultPartSize, in.size()-off)
		if progress.has(off) {
			if in.options.Progress != nil {
				in.options.Progress(n)
			}
			if hash != nil {
				fetching.Go(func() error { return hash.read(io.NewSectionReader(file, off, n), off) })
			}
			continue
		}
		fetching.Go(func() error {
			w := in.options.reporting(io.NewOffsetWriter(file, off))
			if err := in.part(stop, off, n, w, hash); err != nil {
				return err
			}
			return progress.done(off)
		})
	}
	err = fetching.Wait()
	if err == nil {
		err = context.Cause(ctx) // the loop may have ended before the last range
	}
	err = errors.Join(err, progress.close())
	if err == nil && hash != nil && hash.sum() != in.content.Metadata().Hash { // each chunk is authentic; this is the content as a whole
		return seal.ErrHash
	}
	return err
}

// size returns the size of the finished file in bytes.
func (in *incoming) size() int64 {
	if in.content != nil {
		return in.content.Metadata().Size
	}
	return in.fetching.object.Size
}

// whole writes the whole content, decrypted if it is encrypted, to w.
func (in *incoming) whole(ctx context.Context, w io.Writer) error {
	size := in.fetching.object.Size
	if in.content == nil {
		return in.client.fetch(ctx, in.fetching, 0, size, w)
	}
	return in.client.decrypt(ctx, in.fetching, 0, size, in.content.Reader, w)
}

// part writes n bytes of the file from the offset off to w, decrypted if they are encrypted. It
// also writes decrypted bytes to hash.
func (in *incoming) part(ctx context.Context, off, n int64, w io.Writer, hash *rangeHash) error {
	if in.content == nil {
		return in.client.fetch(ctx, in.fetching, off, n, w)
	}
	start, size, err := in.content.Range(off, n)
	if err != nil {
		return err
	}
	plaintext := hash.writer(off)
	out, err := in.content.RangeWriter(io.MultiWriter(w, plaintext), off, n)
	if err != nil {
		return err
	}
	if err := in.client.fetch(ctx, in.fetching, start, size, out); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	plaintext.end()
	return nil
}

func (in *incoming) hash() string {
	if in.fetching.root == nil {
		return ""
	}
	return in.fetching.root.String()
}
