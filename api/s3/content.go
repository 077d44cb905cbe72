package s3

import (
	"bytes"
	"crypto/md5"  //nolint:gosec // S3 uses MD5 for ETags
	"crypto/sha1" //nolint:gosec // a checksum of S3
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// algorithm is a checksum algorithm of S3 besides MD5.
type algorithm struct {
	name   string // name in state.Checksum
	header string // name of the checksum header, in the letter case of net/http
	size   int    // bytes of a checksum
	parts  bool   // a multipart object may have a COMPOSITE checksum, computed from those of its parts
	whole  bool   // a multipart object may have a FULL_OBJECT checksum of all its bytes
}

var algorithms = []algorithm{
	{objects.CRC32, "X-Amz-Checksum-Crc32", crc32.Size, true, true},
	{objects.CRC32C, "X-Amz-Checksum-Crc32c", crc32.Size, true, true},
	{objects.CRC64NVME, "X-Amz-Checksum-Crc64nvme", crc64.Size, false, true},
	{objects.SHA1, "X-Amz-Checksum-Sha1", sha1.Size, true, false},
	{objects.SHA256, "X-Amz-Checksum-Sha256", sha256.Size, true, false},
	{objects.SHA512, "X-Amz-Checksum-Sha512", sha512.Size, true, false},
	{objects.MD5, "X-Amz-Checksum-Md5", md5.Size, true, false},
	{objects.XXHASH64, "X-Amz-Checksum-Xxhash64", 8, true, false},
	{objects.XXHASH3, "X-Amz-Checksum-Xxhash3", 8, true, false},
	{objects.XXHASH128, "X-Amz-Checksum-Xxhash128", 16, true, false},
}

// checksumNotValue are the headers with the prefix x-amz-checksum- that contain no checksum.
var checksumNotValue = []string{"X-Amz-Checksum-Algorithm", "X-Amz-Checksum-Mode", checksumTypeHeader}

// checksumTypeHeader is the header with the type of a checksum: FULL_OBJECT, or COMPOSITE for one
// computed from those of the parts.
const checksumTypeHeader = "X-Amz-Checksum-Type"

// algorithmNamed returns the algorithm with a name, or nil. Letter case does not matter.
func algorithmNamed(name string) *algorithm {
	return algorithmWhose(func(a algorithm) string { return a.name }, name)
}

// algorithmWhose returns the algorithm a for which of(a) equals text, or nil. Letter case does
// not matter.
func algorithmWhose(of func(algorithm) string, text string) *algorithm {
	for _, a := range algorithms {
		if strings.EqualFold(of(a), text) {
			found := a // a copy, so that only a result is allocated
			return &found
		}
	}
	return nil
}

// algorithmBy returns the algorithm with a name, or an InvalidRequest error if the name is
// unknown.
func algorithmBy(name string) (*algorithm, error) {
	if a := algorithmNamed(name); a != nil {
		return a, nil
	}
	return nil, errorf(InvalidRequest, "checksum algorithm provided is unsupported: please try again with any of %s", strings.Join(objects.Algorithms(), ", "))
}

// algorithmOf returns the algorithm of a checksum header, or nil for another header.
func algorithmOf(header string) *algorithm {
	return algorithmWhose(func(a algorithm) string { return a.header }, header)
}

// decode parses the base64 value of a checksum header.
func (a *algorithm) decode(text string) ([]byte, error) {
	value, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(value) != a.size {
		return nil, errorf(InvalidRequest, "the value for the %s header is invalid", strings.ToLower(a.header))
	}
	return value, nil
}

// checksumText returns the value of the checksum header for c. parts is the number of parts of
// the object, which follows a COMPOSITE checksum.
func checksumText(c *state.Checksum, parts uint64) string {
	text := base64.StdEncoding.EncodeToString(c.Value)
	if c.Composite {
		text += fmt.Sprintf("-%d", parts)
	}
	return text
}

func checksumType(composite bool) string {
	if composite {
		return "COMPOSITE"
	}
	return "FULL_OBJECT"
}

// checksumHeader returns the algorithm and the value of the checksum header of a request, or nil
// if there is none. More than one checksum is an error.
func checksumHeader(h http.Header) (a *algorithm, value []byte, err error) {
	for name, values := range h {
		if !strings.HasPrefix(name, "X-Amz-Checksum-") || slices.Contains(checksumNotValue, name) {
			continue
		}
		known := algorithmOf(name)
		switch {
		case known == nil:
			return nil, nil, errorf(InvalidRequest, "the header %.64s is of no checksum that is known", strings.ToLower(name))
		case a != nil || len(values) != 1:
			return nil, nil, errorf(InvalidRequest, "expecting a single x-amz-checksum- header: multiple checksum types are not allowed")
		}
		a = known
		if value, err = a.decode(values[0]); err != nil {
			return nil, nil, err
		}
	}
	return a, value, nil
}

// content is the body of an upload, with the checksums that the body must match.
type content struct {
	reader io.Reader    // decoded bytes of the object
	wire   *web.Patient // bytes of the connection, from which reader reads
	body   *sigv4.Body  // decoder between wire and reader; its trailers may have the checksum
	size   int64        // in bytes; -1: unknown

	md5       []byte     // value of Content-MD5; nil: absent
	algorithm *algorithm // algorithm of the checksum besides MD5; nil: none
	want      []byte     // expected checksum; nil: it is in a trailer, or is only computed and stored
	trailer   bool       // the checksum is in a trailer
	beside    []string   // further algorithms to compute and store
}

// contentOf returns the body of r with the checksums in its headers. It reads no body. If the
// body is announced as longer than most bytes, the error has the code tooLarge; a longer body of
// unknown length fails with it later. The body must arrive before until, unless that is zero.
func (s *surface) contentOf(w http.ResponseWriter, r *request, most int64, tooLarge Code, until time.Time) (*content, error) {
	f := &r.caller.framing
	c := &content{size: f.Length}
	if r.ContentLength == 0 && len(r.TransferEncoding) == 0 && r.ProtoMajor < 2 && r.Header.Get("Content-Length") == "" && r.Method == http.MethodPut && r.level == levelObject {
		return nil, errorf(MissingContentLength, "you must provide the Content-Length HTTP header")
	}
	over := errorf(tooLarge, "your proposed upload exceeds the maximum allowed size of %d bytes", most)
	if c.size > most {
		return nil, over
	}
	var err error
	if c.md5, err = contentMD5(r.Header); err != nil {
		return nil, err
	}
	if c.algorithm, c.want, err = checksumHeader(r.Header); err != nil {
		return nil, err
	}
	if err := c.announced(r.Header, f.Trailers); err != nil {
		return nil, err
	}
	c.wire = s.patient(w, r, until)
	s.reads(r, c.wire)
	c.body = r.caller.body(c.wire)
	c.reader = &bounded{c.body, most, over}
	return c, nil
}

// patient returns the reader of the body of r on the connection. The body must arrive before
// until, unless that is zero.
func (s *surface) patient(w http.ResponseWriter, r *request, until time.Time) *web.Patient {
	return &web.Patient{
		Body: r.Body, Control: http.NewResponseController(w), Stall: s.stall, Until: until,
		Broken: errorf(IncompleteBody, "the request body could not be read to its end"),
	}
}

// announced sets the algorithm of a checksum that is announced for a trailer, or that
// x-amz-sdk-checksum-algorithm asks the server to compute.
func (c *content) announced(h http.Header, trailers []string) error {
	for _, name := range trailers {
		known := algorithmOf(name)
		if known == nil {
			return errorf(InvalidRequest, "the value specified in the x-amz-trailer header is not supported: %.64s", name)
		}
		if c.algorithm != nil {
			return errorf(InvalidRequest, "expecting a single x-amz-checksum- header: multiple checksum types are not allowed")
		}
		c.algorithm, c.trailer = known, true
	}
	asked := h.Get("X-Amz-Sdk-Checksum-Algorithm")
	if asked == "" {
		return nil
	}
	a, err := algorithmBy(asked)
	switch {
	case err != nil:
		return err
	case c.algorithm == nil:
		c.algorithm = a
	case c.algorithm.name != a.name:
		return errorf(InvalidRequest, "the value for x-amz-sdk-checksum-algorithm is not the checksum that was sent")
	}
	return nil
}

// orDefault selects the default checksum algorithm of Amazon S3 if the request has none
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html).
func (c *content) orDefault() {
	if c.algorithm == nil {
		c.algorithm = algorithmNamed(objects.DefaultAlgorithm)
	}
}

// contentMD5 returns the 16 bytes of Content-MD5, or nil if it is absent. A malformed value is an
// InvalidDigest error. Like Amazon S3 it accepts extra bits in the last base64 character
// (PutBucketCors_md5 of versity/versitygw).
func contentMD5(h http.Header) ([]byte, error) {
	values := h["Content-Md5"]
	if len(values) == 0 {
		return nil, nil
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimSpace(values[0]))
	if err != nil || len(sum) != md5.Size || len(values) > 1 {
		return nil, errorf(InvalidDigest, "the Content-MD5 you specified is not valid")
	}
	return sum, nil
}

// sums returns the names of the checksum algorithms to compute.
func (c *content) sums() []string {
	if c.algorithm == nil {
		return c.beside
	}
	return append([]string{c.algorithm.name}, c.beside...)
}

// check compares the computed checksums sums with those of the request, and returns the checksums
// to store with the object. The caller has read the whole body.
func (c *content) check(sums objects.Sums) ([]state.Checksum, error) {
	if c.md5 != nil && !bytes.Equal(c.md5, sums.MD5[:]) {
		return nil, errorf(BadDigest, "the Content-MD5 you specified did not match what we received")
	}
	var kept []state.Checksum
	for _, name := range c.beside {
		kept = append(kept, state.Checksum{Algorithm: name, Value: sums.By[name]})
	}
	if c.algorithm == nil {
		return kept, nil
	}
	got := sums.By[c.algorithm.name]
	want := c.want
	if c.trailer {
		for _, t := range c.body.Trailers() {
			if strings.EqualFold(t.Name, c.algorithm.header) {
				var err error
				if want, err = c.algorithm.decode(t.Value); err != nil {
					return nil, err
				}
			}
		}
		if want == nil {
			return nil, errorf(InvalidRequest, "the trailer of the checksum did not come")
		}
	}
	if want != nil && !bytes.Equal(want, got) {
		return nil, errorf(BadDigest, "the %s you specified did not match the calculated checksum", c.algorithm.name)
	}
	return append([]state.Checksum{{Algorithm: c.algorithm.name, Value: got}}, kept...), nil
}

// whole returns the content as the body of a call of Objects. f bounds the waits for the cluster.
func (c *content) whole(f *web.Fuse) objects.Body {
	return objects.Body{
		Reader: f.Reader(c.reader, c.wire), Size: c.size, Sums: c.sums(),
		Check: func(sums objects.Sums) ([]state.Checksum, error) {
			f.Checked()
			return c.check(sums)
		},
	}
}

// smallTimeout is how long a body that is read into memory may take to arrive.
const smallTimeout = 30 * time.Second

// readSmall reads a body of up to most bytes into memory that counts for the account, and
// verifies its checksums.
func (s *surface) readSmall(w http.ResponseWriter, r *request, most int64) ([]byte, error) {
	c, err := s.contentOf(w, r, most, MaxMessageLengthExceeded, time.Now().Add(smallTimeout))
	if err != nil {
		return nil, err
	}
	body, err := web.ReadAll(c.reader, c.size, r.held)
	if err != nil {
		return nil, err
	}
	sums := objects.Sums{MD5: md5.Sum(body)}
	if c.algorithm != nil {
		h := objects.NewHash(c.algorithm.name)
		h.Write(body)
		sums.By = map[string][]byte{c.algorithm.name: h.Sum(nil)}
	}
	if _, err := c.check(sums); err != nil {
		return nil, err
	}
	return body, nil
}

// bounded is a reader that returns the error over after more than left bytes.
type bounded struct {
	r    io.Reader
	left int64
	over *Error
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.over
	}
	return n, err
}
