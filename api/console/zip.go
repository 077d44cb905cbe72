package console

import (
	"archive/zip"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const (
	// maxZipped is the maximum number of files in a ZIP file: the node keeps their names in memory until
	// its end.
	maxZipped = 10_000
	// zipBuffer is the size in bytes of the buffer between content and ZIP file.
	zipBuffer = 64 << 10
)

// zipChosen serves POST /buckets/{bucket}/zip: the chosen objects and folders as one ZIP file, whose
// names begin below the folder that the list shows.
func (s *surface) zipChosen(c *call) error {
	if _, err := s.Objects.Bucket(c.within(), c.who.Account, c.bucketName()); err != nil {
		return fmt.Errorf("find bucket: %w", err)
	}
	of, err := chosenOf(c.r.PostForm)
	if err != nil {
		return err
	}
	bucket, prefix := c.bucketName(), c.r.URL.Query().Get("prefix")
	folder := prefix[:strings.LastIndexByte(prefix, '/')+1]
	files := 0
	err = s.eachChosen(c, c.within, of, func(page []state.Object) (bool, error) {
		files += len(page)
		return files <= maxZipped, nil
	})
	switch {
	case err != nil:
		return err
	case files == 0:
		return state.ErrNotFound
	case files > maxZipped:
		return web.BadRequest("a ZIP file has at most %d files: copy the folder with an S3 client, or with holdfast sync", maxZipped)
	}
	held := s.Limits.HoldContent(c.who.Account)
	defer held.Release()
	if err := held.Grow(web.ContentBlock); err != nil {
		return err //nolint:wrapcheck // is the answer
	}
	out := fileStream(c, "application/zip", zipName(bucket, folder, of))
	return out.Ended(s.writeZip(c, out, of, folder)) //nolint:wrapcheck // has the operation
}

// zipName returns the name of a ZIP file: that of the only folder that was chosen, else of the folder
// that the list shows, else of the bucket.
func zipName(bucket, folder string, of chosen) string {
	if len(of.Folders) == 1 && len(of.Objects) == 0 {
		folder = of.Folders[0]
	}
	parts := strings.FieldsFunc(folder, func(r rune) bool { return r == '/' })
	if len(parts) == 0 {
		return bucket + ".zip"
	}
	return parts[len(parts)-1] + ".zip"
}

// writeZip writes the ZIP file. The files in it are not compressed: most large content is already, and
// the node would have to spend its processors on the rest.
func (s *surface) writeZip(c *call, w io.Writer, of chosen, folder string) error {
	out := zip.NewWriter(w)
	stored, err := flate.NewWriter(io.Discard, flate.NoCompression)
	if err != nil {
		return fmt.Errorf("make the writer of a ZIP file: %w", err)
	}
	// Deflate without compression and not Store: readers without access to the end of the file find the
	// end of each content then, although its size is written behind it.
	out.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		stored.Reset(w)
		return stored, nil
	})
	asking := func() context.Context { return c.asking(c.r.Context()) }
	buffer, files := make([]byte, zipBuffer), 0
	err = s.eachChosen(c, asking, of, func(page []state.Object) (bool, error) {
		for i := range page {
			if files++; files > maxZipped {
				return false, fmt.Errorf("the folder has grown to more than %d files", maxZipped)
			}
			if err := s.zipObject(c, out, page[i].Key, folder, buffer); err != nil {
				return false, fmt.Errorf("object %q: %w", page[i].Key, err)
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("end the ZIP file: %w", err)
	}
	return nil
}

// zipObject adds an object to a ZIP file. It leaves out one that was deleted meanwhile.
func (s *surface) zipObject(c *call, out *zip.Writer, key, folder string, buffer []byte) (err error) {
	ctx := c.asking(c.r.Context())
	o, err := s.Objects.Object(ctx, c.who.Account, c.bucketName(), key, "")
	if isAbsent(err) || err == nil && o.Marker {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	content, err := s.Objects.Open(ctx, c.who.Account, &o)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	file, err := out.CreateHeader(&zip.FileHeader{Name: zipPath(strings.TrimPrefix(key, folder), o.Size), Method: zip.Deflate, Modified: o.Created.Time().UTC()})
	if err != nil || o.Size == 0 {
		return err //nolint:wrapcheck // the caller wraps it
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, struct{ io.Reader }{content}, buffer)
	return err //nolint:wrapcheck // the caller wraps it
}

// zipPath returns the name in a ZIP file for an object with size bytes. No part of it is empty or leads
// out of the folder that the ZIP file is unpacked into, and none has a character that Windows takes for
// the end of a part. A key that ends in "/" is an empty folder, if it has no content.
func zipPath(key string, size uint64) string {
	name, folder := strings.CutSuffix(key, "/")
	parts := strings.Split(name, "/")
	for i, p := range parts {
		p = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f || r == '\\' || r == ':' {
				return '_'
			}
			return r
		}, p)
		if p == "" || p == "." || p == ".." {
			p = "_" + p
		}
		parts[i] = p
	}
	switch name = strings.Join(parts, "/"); {
	case folder && size == 0:
		return name + "/"
	case folder:
		return name + "/_"
	}
	return name
}
