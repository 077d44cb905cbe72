package s3

import (
	"bytes"
	"crypto/md5"  //nolint:gosec // what S3 calls an ETag
	"crypto/sha1" //nolint:gosec // one of the checksums of S3
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

// algorithm is one of the checksums that a client may send beside MD5.
type algorithm struct {
	name   string // as state.Checksum has it
	header string // as net/http writes it
	size   int    // bytes
	parts  bool   // the object's can be composed of those of its parts
	whole  bool   // the object's can be that of all bytes, though it came in parts
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

// checksumNotValue are headers that begin as those of checksums do.
var checksumNotValue = []string{"X-Amz-Checksum-Algorithm", "X-Amz-Checksum-Mode", checksumTypeHeader}

// checksumTypeHeader says whether a checksum is of all bytes or of those of the parts.
const checksumTypeHeader = "X-Amz-Checksum-Type"

// algorithmNamed finds a checksum by its name; nil is none.
func algorithmNamed(name string) *algorithm {
	return algorithmWhose(func(a algorithm) string { return a.name }, name)
}

// algorithmWhose finds a checksum by something that it has, in any case; nil is none.
func algorithmWhose(has func(algorithm) string, text string) *algorithm {
	for _, a := range algorithms {
		if strings.EqualFold(has(a), text) {
			found := a // of its own, so that only what is found is memory
			return &found
		}
	}
	return nil
}

// algorithmBy is algorithmNamed for one that has to be known.
func algorithmBy(name string) (*algorithm, error) {
	if a := algorithmNamed(name); a != nil {
		return a, nil
	}
	return nil, errorf(InvalidRequest, "checksum algorithm provided is unsupported: please try again with any of %s", strings.Join(objects.Algorithms(), ", "))
}

// algorithmOf finds a checksum by the name of its header; nil is none.
func algorithmOf(header string) *algorithm {
	return algorithmWhose(func(a algorithm) string { return a.header }, header)
}

// decode reads the value of a checksum.
func (a *algorithm) decode(text string) ([]byte, error) {
	value, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(value) != a.size {
		return nil, errorf(InvalidRequest, "the value for the %s header is invalid", strings.ToLower(a.header))
	}
	return value, nil
}

// checksumText is a checksum as a header has it; parts are those of its object.
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

// checksumHeader returns the checksum that the headers of a request carry, which
// has to be the only one; nil is none.
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

// content is the body of a request: how it is read, and what it has to be.
type content struct {
	reader io.Reader
	wire   *web.Patient // what reader reads from
	body   *sigv4.Body
	size   int64 // bytes; -1 when the request does not say

	md5       []byte     // nil is not given
	algorithm *algorithm // of the checksum beside it; nil is none
	want      []byte     // the checksum; nil when a trailer has it or it is only asked for
	trailer   bool       // it follows the body
	beside    []string   // algorithms that are computed and kept although nobody asked for them
}

// contentOf reads what the headers say of a body, and refuses one that is larger
// than most bytes. Nothing of the body is read.
// It has to be there by a time, if that is not zero.
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

// patient returns the reader of a body that has to be there by a time, if that is not zero.
func (s *surface) patient(w http.ResponseWriter, r *request, until time.Time) *web.Patient {
	return &web.Patient{
		Body: r.Body, Control: http.NewResponseController(w), Stall: s.stall, Until: until,
		Broken: errorf(IncompleteBody, "the request body could not be read to its end"),
	}
}

// announced reads which checksum follows the body, or is to be computed.
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

// orDefault gives an object that came without a checksum that of Amazon S3's
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html).
func (c *content) orDefault() {
	if c.algorithm == nil {
		c.algorithm = algorithmNamed(objects.DefaultAlgorithm)
	}
}

// contentMD5 reads Content-MD5, which has to be the base64 of 16 bytes: the error is
// InvalidDigest otherwise. Amazon S3 takes the last character also where bits of it are set
// that belong to no byte (PutBucketCors_md5 of versity/versitygw), so the decoder is not strict.
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

// sums are the algorithms that have to be computed.
func (c *content) sums() []string {
	if c.algorithm == nil {
		return c.beside
	}
	return append([]string{c.algorithm.name}, c.beside...)
}

// check compares what came with what the request says of it, once all was read,
// and returns the checksums to keep.
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

// whole is the body for a use case, whose context the fuse ends.
func (c *content) whole(f *web.Fuse) objects.Body {
	return objects.Body{
		Reader: f.Reader(c.reader, c.wire), Size: c.size, Sums: c.sums(),
		Check: func(sums objects.Sums) ([]state.Checksum, error) {
			f.Checked()
			return c.check(sums)
		},
	}
}

// smallTimeout is how long a body may take to arrive that is read into memory.
const smallTimeout = 30 * time.Second

// readSmall reads a body of at most most bytes into memory of the account's, and checks
// it.
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

// bounded ends in an error behind a number of bytes.
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
