package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Sizes of uploads by the script of a page, in bytes.
const (
	largeFile = 64 << 20 // a larger file is sent by a multipart upload
	filePart  = 16 << 20 // size of a part, see partSize
)

// Limits of a form with files.
const (
	maxFiles  = 10_000
	maxType   = 255 // bytes of a Content-Type
	maxFailed = 500 // failed files that the answer names
)

// partSize returns the size in bytes of each part of an upload by the script, except the last.
func (s *surface) partSize() int64 { return max(filePart, s.MinPart) }

// Errors for bodies that a browser does not send completely or too slowly.
var (
	errFiles = web.BadRequest("the files could not be read to their end")
	errStall = web.Errorf(http.StatusRequestTimeout, "REQUEST_TIMEOUT", "the browser has sent too little for a minute")
)

// body returns a reader of the request's body that fails if the browser stops sending.
func (c *call) body() *web.Patient {
	return &web.Patient{Body: c.r.Body, Control: http.NewResponseController(c.w), Stall: web.StallTimeout, Broken: errFiles}
}

// checkKey returns an error for a key that the S3 gateway would not accept.
func checkKey(key string) error {
	if len(key) > state.MaxKeyBytes {
		return web.BadRequest("the key has %d bytes with its folders, and at most %d are possible: take a shorter name or folder", len(key), state.MaxKeyBytes)
	}
	if key == "" || !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0 {
		return web.BadRequest("the key of an object has 1 to %d bytes of UTF-8 without the character U+0000", state.MaxKeyBytes)
	}
	return nil
}

// attributesOf returns the attributes of an uploaded file. kind is the Content-Type that the
// browser sent; an invalid one is ignored.
func attributesOf(kind string) objects.Attributes {
	if _, _, err := mime.ParseMediaType(kind); err != nil || len(kind) > maxType {
		return objects.Attributes{}
	}
	return objects.Attributes{Headers: map[string]string{"Content-Type": kind}}
}

// bodyOf returns the content r, of at most MaxObject bytes, as the body of a call of Objects. The
// cluster computes the default checksum of objects for it. wire is the reader of the connection
// below r. fuse bounds the waits for the cluster.
func (s *surface) bodyOf(r io.Reader, size int64, wire *web.Patient, fuse *web.Fuse) objects.Body {
	limited := &limited{r, s.MaxObject}
	return objects.Body{
		Reader: fuse.Reader(limited, wire), Size: size, Sums: []string{objects.DefaultAlgorithm},
		Check: func(sums objects.Sums) ([]state.Checksum, error) {
			fuse.Checked()
			return []state.Checksum{{Algorithm: objects.DefaultAlgorithm, Value: sums.By[objects.DefaultAlgorithm]}}, nil
		},
	}
}

// limited is a reader that fails after more than left bytes.
type limited struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, web.Errorf(http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "the file is larger than an object may be in one request")
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF): // the end of the form is missing
		err = errFiles
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errStall
	}
	return n, err //nolint:wrapcheck // a reader
}

// put stores a file as the object key. kind is its Content-Type, and size its length in bytes or
// -1 if unknown.
func (s *surface) put(c *call, key, kind string, r io.Reader, size int64, wire *web.Patient) error {
	if err := checkKey(key); err != nil {
		return err
	}
	ctx, fuse, cancel := web.Burn(c.asking(c.r.Context()), caseTimeout)
	defer cancel()
	_, err := s.Objects.Put(ctx, c.who.Account, c.bucketName(), objects.PutRequest{
		Key: key, Attributes: attributesOf(kind), Body: s.bodyOf(r, size, wire, fuse),
	})
	if err != nil {
		return fmt.Errorf("store file: %w", err)
	}
	return nil
}

// filesData is the data of the page after an upload by a form in which some files failed.
type filesData struct {
	Bucket, Address string
	Stored          int          // number of files that were stored
	NotStored       int          // number of files that were not stored
	Failed          []failedFile // the first maxFailed of the files that were not stored
	After           bool         // the node stopped after the last failed file; later files were not read
}

// Unnamed returns the number of files that were not stored and that Failed does not name.
func (d filesData) Unnamed() int { return d.NotStored - len(d.Failed) }

// fail adds a file that was not stored, and why. It cuts the name to the maximum length of a key.
func (d *filesData) fail(name, reason string) {
	if d.NotStored++; len(d.Failed) == maxFailed {
		return
	}
	if len(name) > state.MaxKeyBytes {
		name = strings.ToValidUTF8(name[:state.MaxKeyBytes], "") + "…"
	}
	d.Failed = append(d.Failed, failedFile{strings.Clone(name), reason})
}

// failedFile is a file that was not stored, and why.
type failedFile struct{ Name, Reason string }

// filesForm returns the form with files in the body, behind its first field, which is the form token, and
// the reader of the connection below it.
func (c *call) filesForm() (*web.FilesForm, *web.Patient, error) {
	wire := c.body()
	form, err := web.NewFilesForm(c.r.Header, wire, errFiles)
	if err != nil {
		return nil, nil, web.Errorf(http.StatusForbidden, "FORBIDDEN", "files are sent as multipart/form-data")
	}
	if token, err := form.Field(tokenField); err != nil || !c.isToken(token) {
		return nil, nil, errForm
	}
	return form, wire, nil
}

// uploadFiles serves POST /buckets/{bucket}/files, a multipart/form-data form with the form token
// and files. The key of each file is the query parameter prefix followed by the name of the file.
func (s *surface) uploadFiles(c *call) error {
	form, wire, err := c.filesForm()
	if err != nil {
		return err
	}
	// It is in the query: a form changes the ends of lines.
	prefix := c.r.URL.Query().Get("prefix")
	b, err := s.Objects.Bucket(c.asking(c.ctx), c.who.Account, c.bucketName())
	if err != nil {
		return fmt.Errorf("find bucket: %w", err)
	}
	d := filesData{Bucket: b.Name, Address: bucketAddress(b.Name, prefix)}
	status := http.StatusOK
	for {
		name, part, err := form.File()
		if errors.Is(err, io.EOF) {
			break
		}
		last := d.Stored+d.NotStored == maxFiles
		if err == nil && last {
			err = web.Errorf(http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "a form has %d files at most", maxFiles)
		}
		if err == nil {
			err = s.put(c, prefix+name, part.Header.Get("Content-Type"), part, -1, wire)
		}
		if err == nil {
			d.Stored++
			continue
		}
		t := s.oneOfMany(c, err)
		status = max(status, t.Status)
		d.fail(name, t.Detail)
		// Nothing more is stored once the session has ended.
		if last || errors.Is(err, state.ErrUnauthorized) || part == nil || form.Skip(part, s.MaxObject) != nil {
			d.After = true
			break
		}
	}
	if d.NotStored == 0 {
		return c.redirect(d.Address)
	}
	return s.show(c, status, "files", "Upload", "buckets", d)
}

// putObject serves PUT /buckets/{bucket}/object, whose body is the content of an object.
func (s *surface) putObject(c *call) error {
	if c.r.ContentLength > s.MaxObject {
		return web.Errorf(http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "an object has %d bytes at most in one request", s.MaxObject)
	}
	wire := c.body()
	if err := s.put(c, c.r.URL.Query().Get("key"), c.r.Header.Get("Content-Type"), wire, c.r.ContentLength, wire); err != nil {
		return err
	}
	return web.Empty(c.w, http.StatusNoContent)
}

// createUpload serves POST /buckets/{bucket}/uploads. It starts a multipart upload and answers
// with its id.
func (s *surface) createUpload(c *call) error {
	key := c.r.URL.Query().Get("key")
	if err := checkKey(key); err != nil {
		return err
	}
	id, err := s.Objects.CreateUpload(c.asking(c.ctx), c.who.Account, c.bucketName(), objects.UploadRequest{
		Key: key, Attributes: attributesOf(c.r.Header.Get("Content-Type")),
	})
	if err != nil {
		return fmt.Errorf("begin upload: %w", err)
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err = io.WriteString(c.w, string(id))
	return err //nolint:wrapcheck // the client has left
}

// upload returns the key and the upload id in a request, and the query.
func (c *call) upload() (key string, id state.UploadID, query url.Values) {
	query = c.r.URL.Query()
	return query.Get("key"), state.UploadID(c.r.PathValue("upload")), query
}

// putPart serves PUT /buckets/{bucket}/uploads/{upload}, whose body is a part.
func (s *surface) putPart(c *call) error {
	key, id, query := c.upload()
	number, err := strconv.Atoi(query.Get("part"))
	if err != nil {
		return web.BadRequest("no number of a part: %q", query.Get("part"))
	}
	wire := c.body()
	ctx, fuse, cancel := web.Burn(c.asking(c.r.Context()), caseTimeout)
	defer cancel()
	_, err = s.Objects.PutPart(ctx, c.who.Account, c.bucketName(), objects.PartRequest{
		Key: key, Upload: id, Number: number, Body: s.bodyOf(wire, c.r.ContentLength, wire, fuse),
	})
	if err != nil {
		return fmt.Errorf("store part: %w", err)
	}
	return web.Empty(c.w, http.StatusNoContent)
}

// completeUpload serves POST /buckets/{bucket}/uploads/{upload}/complete. It creates an object
// from all stored parts. Their sizes must add up to the query parameter size, so that no part is
// missing.
func (s *surface) completeUpload(c *call) error {
	key, id, query := c.upload()
	ctx, cancel := context.WithTimeout(c.asking(c.r.Context()), web.JoinTimeout)
	defer cancel()
	r := objects.CompleteRequest{Key: key, Upload: id}
	var size uint64
	for more, after := true, 0; more; {
		var parts []state.Part
		var err error
		parts, more, err = s.Objects.Parts(ctx, c.who.Account, c.bucketName(), key, id, after, state.MaxListLimit)
		if errors.Is(err, state.ErrNoUpload) {
			return s.completed(c, key, id, err)
		}
		if err != nil {
			return fmt.Errorf("list parts: %w", err)
		}
		for _, p := range parts {
			after = int(p.Number)
			size += p.Size
			r.Parts = append(r.Parts, objects.CompletePart{Number: after, ETag: p.ETag})
		}
	}
	if want := query.Get("size"); want != strconv.FormatUint(size, 10) {
		return web.Errorf(http.StatusConflict, "CONFLICT", "the parts have %d bytes, the file has %s", size, want)
	}
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(web.JoinTimeout + web.StallTimeout))
	if _, err := s.Objects.Complete(ctx, c.who.Account, c.bucketName(), r); err != nil {
		return fmt.Errorf("complete upload: %w", err)
	}
	return web.Empty(c.w, http.StatusNoContent)
}

// completed answers a repeated request to complete an upload that no longer exists. If the upload
// has become the object key, the first answer was lost, and completed answers with success.
// Otherwise it returns the error absent.
func (s *surface) completed(c *call, key string, id state.UploadID, absent error) error {
	o, err := s.Objects.Object(c.asking(c.ctx), c.who.Account, c.bucketName(), key, "")
	if err != nil || o.Upload != id {
		return fmt.Errorf("complete upload: %w", absent)
	}
	return web.Empty(c.w, http.StatusNoContent)
}

// abortUpload serves DELETE /buckets/{bucket}/uploads/{upload}: it aborts a multipart upload and
// deletes its parts.
func (s *surface) abortUpload(c *call) error {
	key, id, _ := c.upload()
	if err := s.Objects.Abort(c.asking(c.ctx), c.who.Account, c.bucketName(), key, id); err != nil {
		return fmt.Errorf("abort upload: %w", err)
	}
	return web.Empty(c.w, http.StatusNoContent)
}
