package client

import (
	"context"
	"crypto/md5" //nolint:gosec // the ETag of S3
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Sizes of uploads. The gateway accepts parts of at least 5,000,000 bytes, and at most 10,000
// parts.
const (
	// SinglePut is the largest object in bytes that the client sends in one request.
	SinglePut       = 16 << 20
	DefaultPartSize = 8 << 20
	maxParts        = 10_000
	// DefaultParallel is the number of parts or ranges of one object that are in transfer at once.
	// With DefaultPartSize, an upload from a stream needs 32 MiB of memory.
	DefaultParallel = 4
)

// UploadOptions describe an upload. The zero value is usable.
type UploadOptions struct {
	ContentType string            // "" means application/octet-stream
	Metadata    map[string]string // x-amz-meta-*, names without the prefix

	// Parallel is the number of parts that are in transfer at once; 0 means DefaultParallel.
	Parallel int

	// Journal is the path of a file in which the client records a multipart upload; "" means no
	// journal. A later call of UploadFile with the same file and target continues the upload. An
	// upload of a stream cannot be continued, but Client.Abandon can remove its parts. The client
	// deletes the journal when the upload has ended.
	Journal string

	// Progress is called from several goroutines, with the number of bytes that were stored since
	// the last call. In a continued upload the bytes of earlier runs count too.
	Progress func(bytes int64)
}

func (o UploadOptions) parallel() int {
	if o.Parallel > 0 {
		return o.Parallel
	}
	return DefaultParallel
}

func (o UploadOptions) progress(n int64) {
	if o.Progress != nil {
		o.Progress(n)
	}
}

// Upload stores an object with the content of src, which it reads to the end. Content of up to
// SinglePut bytes is sent in one request, and longer content in parts, of which Parallel are in
// memory. If Upload fails, it removes the stored parts, unless no node can be reached.
func (c *Client) Upload(ctx context.Context, bucket, key string, src io.Reader, o UploadOptions) (Object, error) {
	first := make([]byte, 0, DefaultPartSize)
	first, err := fill(src, first)
	if err != nil {
		return Object{}, err
	}
	if len(first) < cap(first) { // src has ended
		return c.put(ctx, bucket, key, newPart(1, first), o)
	}
	return c.uploadParts(ctx, bucket, key, &stream{from: src, first: first}, o)
}

// UploadFile stores the regular file at path as an object. If the file changes during the upload,
// the error is ErrChanged and no object is stored.
func (c *Client) UploadFile(ctx context.Context, bucket, key, path string, o UploadOptions) (Object, error) {
	f, err := os.Open(path)
	if err != nil {
		return Object{}, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	info, err := f.Stat()
	if err != nil {
		return Object{}, err
	}
	if !info.Mode().IsRegular() {
		return Object{}, fmt.Errorf("%s is not a regular file", path)
	}
	src := &sections{file: f, size: info.Size(), modified: info.ModTime(), partSize: partSize(info.Size())}
	if src.size <= SinglePut {
		p, err := src.section(1, 0, src.size)
		if err != nil {
			return Object{}, err
		}
		object, err := c.put(ctx, bucket, key, p, o)
		return object, errors.Join(err, src.changed())
	}
	return c.uploadParts(ctx, bucket, key, src, o)
}

// partSize returns the size in bytes of each part of a file of size bytes.
func partSize(size int64) int64 {
	const step = 1 << 20
	return max(DefaultPartSize, (size/maxParts+step)/step*step)
}

// part is a part of a multipart upload, or a whole object, that the client can send repeatedly.
type part struct {
	number int
	body   io.ReadSeeker
	size   int64
	plain  int64  // bytes of the file in the part; 0 means size
	crc    string // value of x-amz-checksum-crc32c; "" if the bytes differ on each attempt
	buffer []byte // memory of body that release can reuse, or nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeCRC(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func newPart(number int, data []byte) part {
	return part{
		number: number, body: newBytes(data), size: int64(len(data)),
		crc: encodeCRC(crc32.Checksum(data, castagnoli)), buffer: data,
	}
}

// put stores the part p as a whole object.
func (c *Client) put(ctx context.Context, bucket, key string, p part, o UploadOptions) (Object, error) {
	p, release, err := c.filled(ctx, p)
	if err != nil {
		return Object{}, err
	}
	defer release()
	options := o.put()
	if p.crc != "" {
		options.UserMetadata["x-amz-checksum-crc32c"] = p.crc
	}
	seen, err := c.send(ctx, operation{verb: "put", bucket: bucket, key: key}, p, func(ctx context.Context, n *node, body io.Reader) (string, error) {
		stored, err := n.core.PutObject(ctx, bucket, key, body, p.size, "", "", options)
		return stored.ETag, err
	})
	if err != nil {
		return Object{}, err
	}
	o.progress(p.content())
	object := fromHeader(bucket, key, seen.header)
	object.Size, object.ContentType, object.Metadata = p.size, options.ContentType, o.Metadata
	return object, nil
}

// content returns the number of bytes of the source file in the part.
func (p part) content() int64 {
	if p.plain > 0 {
		return p.plain
	}
	return p.size
}

// errDamaged means that a node received other bytes than the client sent. The client then sends
// them again.
var errDamaged = errors.New("the node received other bytes than were sent")

// send sends a part with the function request, from the beginning of the part on each attempt.
// request returns the ETag of the stored bytes. If the part has a CRC, the node verifies it.
// Otherwise the client compares the ETag with the MD5 of the bytes that it sent.
func (c *Client) send(ctx context.Context, op operation, p part, request func(ctx context.Context, n *node, body io.Reader) (etag string, err error)) (answer, error) {
	return c.do(ctx, op, func(ctx context.Context, n *node) error {
		if _, err := p.body.Seek(0, io.SeekStart); err != nil {
			return &sourceError{err}
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		body := &localReader{ReadSeeker: p.body, size: p.size, within: c.stall}
		body.timer = time.AfterFunc(c.stall, func() { cancel(errStalled) })
		defer body.timer.Stop()
		if p.crc == "" {
			body.sum = md5.New() //nolint:gosec // the ETag of S3
		}
		etag, err := request(ctx, n, body)
		switch {
		case err != nil && errors.Is(context.Cause(ctx), errStalled):
			return &bodyError{errStalled}
		case err != nil:
			return errors.Join(body.failed, err)
		}
		if body.sum != nil && strings.Trim(etag, `"`) != hex.EncodeToString(body.sum.Sum(nil)) {
			return &bodyError{errDamaged}
		}
		return nil
	})
}

func (o UploadOptions) put() minio.PutObjectOptions {
	metadata := make(map[string]string, len(o.Metadata)+1)
	for name, value := range o.Metadata {
		metadata[metadataPrefix+name] = value
	}
	kind := o.ContentType
	if kind == "" {
		kind = "application/octet-stream"
	}
	return minio.PutObjectOptions{ContentType: kind, UserMetadata: metadata}
}

// source returns the parts of an object in order, and io.EOF after the last part.
type source interface {
	next(number int) (part, error)
	// sizeOf returns the number of bytes of the source file in a part. changed returns ErrChanged if
	// the file has changed since the start of the upload. head describes the file for the journal;
	// the client cannot continue an upload whose head has no path.
	sizeOf(number int) int64
	changed() error
	head() journalHead
	// release returns the memory of a part that was stored or has failed.
	release(p part)
}

// sections is the source of an upload of a file. It reads a part from the disk while the part is
// sent, so parts need no memory.
type sections struct {
	file     *os.File
	size     int64
	modified time.Time
	partSize int64
}

func (s *sections) next(number int) (part, error) {
	from := int64(number-1) * s.partSize
	if from >= s.size {
		return part{}, io.EOF
	}
	return s.section(number, from, s.sizeOf(number))
}

// sizeOf returns the size of a part of the file in bytes.
func (s *sections) sizeOf(number int) int64 {
	return min(s.partSize, s.size-int64(number-1)*s.partSize)
}

func (s *sections) section(number int, from, size int64) (part, error) {
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, io.NewSectionReader(s.file, from, size))
	if err == nil && n != size {
		err = fmt.Errorf("%s %w", s.file.Name(), ErrChanged)
	}
	return part{number: number, body: io.NewSectionReader(s.file, from, size), size: size, crc: encodeCRC(sum.Sum32())}, err
}

func (s *sections) release(part) {}

func (s *sections) head() journalHead {
	return journalHead{Path: s.file.Name(), Size: s.size, Modified: s.modified.UnixNano(), PartSize: s.partSize}
}

// changed returns ErrChanged if the file has changed since the start of the upload.
func (s *sections) changed() error {
	info, err := s.file.Stat()
	if err == nil && (info.Size() != s.size || !info.ModTime().Equal(s.modified)) {
		err = fmt.Errorf("%s %w", s.file.Name(), ErrChanged)
	}
	return err
}

// stream is the source of an upload of a reader. It reads the parts into memory, and reuses the
// memory of released parts.
type stream struct {
	from  io.Reader
	first []byte      // the first part, which the caller has read already; nil after next returned it
	free  chan []byte // memory for parts
	ended bool
}

func (s *stream) next(number int) (part, error) {
	if s.free == nil {
		s.free = make(chan []byte, maxParts)
	}
	if s.first != nil {
		data := s.first
		s.first = nil
		return newPart(number, data), nil
	}
	if s.ended {
		return part{}, io.EOF
	}
	var data []byte
	select {
	case data = <-s.free:
	default:
		data = make([]byte, 0, DefaultPartSize)
	}
	data, err := fill(s.from, data[:0])
	if err != nil {
		return part{}, err
	}
	if s.ended = len(data) < cap(data); s.ended && len(data) == 0 {
		return part{}, io.EOF
	}
	return newPart(number, data), nil
}

func (s *stream) release(p part)    { s.free <- p.buffer }
func (s *stream) sizeOf(int) int64  { return 0 }
func (s *stream) changed() error    { return nil }
func (s *stream) head() journalHead { return journalHead{} }

// fill appends bytes of src to data until the capacity of data is used up or src ends.
func fill(src io.Reader, data []byte) ([]byte, error) {
	n, err := io.ReadFull(src, data[:cap(data)])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return data[:n], err
}
