package s3

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

func (s *surface) putObject(w http.ResponseWriter, r *request) error {
	if r.query.has("versionId") {
		return errorf(InvalidArgument, "this operation does not accept a version-id")
	}
	if r.Header.Get("Content-Range") != "" {
		// A Content-Range makes the body a part of an upload that continues, as with curl
		// -C (RFC 9110, section 14.5). Stored as the whole object, it would replace the
		// first part.
		return notImplemented("content-range")
	}
	if err := s.checkPut(r); err != nil {
		return err
	}
	a, err := attributesOf(r.Header)
	if err != nil {
		return err
	}
	condition, err := writeCondition(r.Header)
	if err != nil {
		return err
	}
	c, err := s.contentOf(w, r, s.maxObject, EntityTooLarge, time.Time{})
	if err != nil {
		return err
	}
	c.orDefault()
	ctx, f, cancel := web.Burn(r.Context(), caseTimeout)
	defer cancel()
	o, err := s.objects.Put(ctx, r.account(), r.bucket, objects.PutRequest{
		Key: r.key, Attributes: a, Body: c.whole(f), If: condition,
	})
	if err != nil {
		return err
	}
	identify(w.Header(), &o)
	sayChecksums(w.Header(), &o)
	return web.Empty(w, http.StatusOK)
}

// overrides maps the query parameters response-* to the answer headers that they set. notModified
// is true if an answer with status 304 has the header too (RFC 9110, section 15.4.5).
var overrides = []struct {
	parameter, header string
	notModified       bool
}{
	{"response-cache-control", "Cache-Control", true},
	{"response-content-disposition", "Content-Disposition", false},
	{"response-content-encoding", "Content-Encoding", false},
	{"response-content-language", "Content-Language", false},
	{"response-content-type", "Content-Type", false},
	{"response-expires", "Expires", true},
}

func checkOverrides(q query) error {
	for _, o := range overrides {
		if !web.IsHeaderValue(q.get(o.parameter)) {
			return errorf(InvalidArgument, "%s cannot be the value of a header", o.parameter)
		}
	}
	return nil
}

// getObject answers GetObject and HeadObject.
func (s *surface) getObject(w http.ResponseWriter, r *request) error {
	if err := checkOverrides(r.query); err != nil {
		return err
	}
	if r.query.has("partNumber") {
		if _, err := partNumber(r.query); err != nil {
			return err
		}
	}
	return s.reading(r, func(o *state.Object) error { return s.answerWith(w, r, o) })
}

func (s *surface) answerWith(w http.ResponseWriter, r *request, o *state.Object) error {
	piece, partial, err := pieceOf(r, o)
	if answered, refused := conditional(w, r, o); answered || refused != nil {
		return refused
	}
	if err != nil {
		return err
	}
	if r.query.has("partNumber") && wantsChecksum(r) {
		if r.part, err = s.partSums(r, o); err != nil {
			return err
		}
	}
	if r.Method == http.MethodHead || piece.count == 0 {
		head(w.Header(), r, o, piece, partial)
		w.WriteHeader(statusOf(partial))
		return nil
	}
	return s.sendContent(w, r, o, piece, partial)
}

// maxReads is how often a read tries if another request replaces the object before its content is
// read.
const maxReads = 3

// reading calls answer with the requested version of the object. If another request replaces the
// object before its first byte is sent, the old content may be deleted; reading then calls answer
// with the new version, because the object existed all the time. It starts no further attempt
// after caseTimeout.
func (s *surface) reading(r *request, answer func(*state.Object) error) error {
	began := time.Now()
	for tries := 0; tries < maxReads && time.Since(began) < caseTimeout; tries++ {
		o, err := s.current(r)
		if err != nil {
			return err
		}
		if err := answer(&o); !errors.Is(err, state.ErrNotFound) {
			return err
		}
	}
	return state.Errorf(state.CodeUnavailable, "the object was replaced each time before its content could be read")
}

func wantsChecksum(r *request) bool {
	return strings.EqualFold(r.Header.Get("X-Amz-Checksum-Mode"), "ENABLED")
}

// partSums returns the checksums of an object's parts, or nil if none are stored.
func (s *surface) partSums(r *request, o *state.Object) (*state.PartSums, error) {
	if !o.HasPartSums() {
		return nil, nil
	}
	ctx, cancel := r.soon()
	defer cancel()
	return s.objects.PartSums(ctx, r.account(), r.bucket, o)
}

// conditional evaluates the conditional headers of a read. If the client already has the version,
// it answers 304 and returns true. If a condition is false, it returns a PreconditionFailed
// error.
func conditional(w http.ResponseWriter, r *request, o *state.Object) (answered bool, err error) {
	c := conditionsOf(r.Header)
	switch c.judge(o.ETag, o.Created) {
	case verdictFailed:
		return false, errorf(PreconditionFailed, "at least one of the preconditions you specified did not hold").
			with("Etag", `"`+o.ETag+`"`).with("Last-Modified", httpTime(o.Created))
	case verdictNotModified:
		identify(w.Header(), o)
		w.Header().Set("Last-Modified", httpTime(o.Created))
		keepable(w.Header())
		confine(w.Header(), typeOf(r.query, o)) // a cache updates its stored headers
		for _, h := range overrides {
			if value := cmp.Or(r.query.get(h.parameter), o.Headers[h.header]); h.notModified && value != "" {
				w.Header().Set(h.header, value)
			}
		}
		w.WriteHeader(http.StatusNotModified)
		return true, nil
	}
	return false, nil
}

func statusOf(partial bool) int {
	if partial {
		return http.StatusPartialContent
	}
	return http.StatusOK
}

// head sets the headers of an answer with the range piece of an object. partial is true for
// status 206.
func head(h http.Header, r *request, o *state.Object, piece span, partial bool) {
	describe(h, o)
	for _, o := range overrides {
		if value := r.query.get(o.parameter); value != "" {
			h.Set(o.header, value)
		}
	}
	h.Set("Content-Type", typeOf(r.query, o))
	confine(h, h.Get("Content-Type"))
	if len(o.Tags) > 0 {
		h.Set("X-Amz-Tagging-Count", strconv.Itoa(len(o.Tags)))
	}
	switch {
	case !wantsChecksum(r):
	case r.part != nil:
		sayPartSum(h, r, o)
	case uint64(piece.count) == o.Size && (!r.query.has("partNumber") || !composed(o)):
		sayChecksums(h, o)
	}
	if r.query.has("partNumber") {
		if n := partsOf(o); n > 0 {
			h.Set("X-Amz-Mp-Parts-Count", strconv.FormatUint(n, 10))
		}
	}
	if partial {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", piece.first, piece.first+piece.count-1, o.Size))
	}
	h.Set("Content-Length", strconv.FormatInt(piece.count, 10))
}

// pieceOf returns the range of an object that the Range header or the parameter partNumber asks
// for. partial is false if the answer is the whole object with status 200.
func pieceOf(r *request, o *state.Object) (p span, partial bool, err error) {
	size := int64(o.Size)
	header := r.Header.Get("Range")
	if r.query.has("partNumber") {
		n, err := partNumber(r.query)
		switch {
		case err != nil:
			return p, false, err
		case header != "":
			return p, false, errorf(InvalidRequest, "cannot specify both Range header and partNumber query parameter")
		}
		p, ok := partOf(o, uint64(n))
		if !ok {
			return p, false, errorf(InvalidPartNumber, "the requested partnumber is not satisfiable")
		}
		return p, p.count > 0, nil
	}
	if header != "" && len(r.Header["Range"]) == 1 && ifRange(r.Header.Get("If-Range"), o) {
		p, partial, err := rangeOf(header, size)
		if partial || err != nil {
			return p, partial, err
		}
	}
	return span{0, size}, false, nil
}

// ifRange reports whether the If-Range value names the current version, so that a Range header
// applies (RFC 9110, section 13.1.5). An empty value does.
func ifRange(value string, o *state.Object) bool {
	if value == "" {
		return true
	}
	if at, err := http.ParseTime(value); err == nil {
		return httpTime(o.Created) == at.UTC().Format(http.TimeFormat)
	}
	return !strings.HasPrefix(value, "W/") && unquote(value) == o.ETag
}

// partOf returns the range of part number n in an object. An object that was not a multipart
// upload has only part 1.
func partOf(o *state.Object, n uint64) (span, bool) {
	if len(o.Parts) == 0 {
		return span{0, int64(o.Size)}, n == 1
	}
	first := uint64(0)
	for _, run := range o.Parts {
		if n <= run.Count {
			return span{int64(first + (n-1)*run.Size), int64(run.Size)}, true
		}
		first += run.Count * run.Size
		n -= run.Count
	}
	return span{}, false
}

// unsatisfiable returns the InvalidRange error for an object of size bytes. asked is the Range
// header, or "". The body of the error contains the size, because smart_open reads the size only
// there.
func unsatisfiable(asked string, size int64) *Error {
	e := errorf(InvalidRange, "the requested range is not satisfiable").with("Content-Range", fmt.Sprintf("bytes */%d", size))
	if asked != "" {
		e = e.element("RangeRequested", asked)
	}
	return e.element("ActualObjectSize", strconv.FormatInt(size, 10))
}

// contentBlock is the maximum size of a block of an object's DAG, in bytes. The node verifies a
// block before it sends any byte of it, and has the block in memory until all of it is sent.
const contentBlock = 1 << 20

// blockOf returns the number of bytes of memory that a download of the object needs.
func blockOf(o *state.Object) int64 { return min(int64(o.Size), contentBlock) }

// sendContent answers with the range piece of an object. It begins the answer only after the
// first bytes were read, so that content that cannot be read gets an error answer.
func (s *surface) sendContent(w http.ResponseWriter, r *request, o *state.Object, piece span, partial bool) (err error) {
	held := s.limits.HoldContent(r.account())
	defer held.Release()
	if err := held.Grow(blockOf(o)); err != nil {
		return err
	}
	f, err := s.objects.Open(r.Context(), r.account(), o)
	if err != nil {
		return err
	}
	defer func() {
		if closing := f.Close(); closing != nil && err == nil {
			err = fmt.Errorf("close content: %w", closing)
		}
	}()
	if _, err := f.Seek(piece.first, io.SeekStart); err != nil {
		return fmt.Errorf("seek in content: %w", err)
	}
	out := &sending{out: web.NewSteady(w, s.stall), left: piece.count, begin: func() {
		head(w.Header(), r, o, piece, partial)
		w.WriteHeader(statusOf(partial))
	}}
	_, err = io.Copy(out, f) // the reader writes block by block
	switch {
	case out.left == 0:
		return nil
	case err == nil:
		err = io.ErrUnexpectedEOF // the content is shorter than the record says
	}
	return fmt.Errorf("send content: %w", err)
}

// sending is a writer of a range of content to the client. It calls begin before the first bytes.
type sending struct {
	out   io.Writer
	begin func() // nil after the first Write
	left  int64  // bytes still to send
}

// errSent stops io.Copy when the whole range is sent.
var errSent = errors.New("all of it is sent")

// Write implements io.Writer. It returns errSent with the last byte of the range.
func (s *sending) Write(b []byte) (written int, err error) {
	if s.begin != nil {
		s.begin()
		s.begin = nil
	}
	for len(b) > 0 && s.left > 0 {
		n, err := s.out.Write(b[:min(int64(len(b)), s.left, web.WriteBuffer)])
		written += n
		s.left -= int64(n)
		if err != nil {
			return written, err
		}
		b = b[n:]
	}
	if s.left == 0 {
		return written, errSent
	}
	return written, nil
}

// deleteObject answers DeleteObject: it deletes an object, or the version that the query names. A
// missing object is no error. In a bucket without versioning, every answer has the header
// x-amz-delete-marker, as the specification of this API requires.
func (s *surface) deleteObject(w http.ResponseWriter, r *request) error {
	condition, err := deleteCondition(r.Header)
	if err != nil {
		return err
	}
	id, err := r.query.version()
	if err != nil {
		return err
	}
	ctx, cancel := r.soon()
	defer cancel()
	gone, err := s.objects.Delete(ctx, r.account(), r.bucket, r.key, id, condition)
	if err != nil {
		return err
	}
	if gone.Marker || !gone.Versioned {
		w.Header().Set("X-Amz-Delete-Marker", "true")
	}
	if gone.Versioned {
		w.Header().Set("X-Amz-Version-Id", string(gone.ID))
	}
	return web.Empty(w, http.StatusNoContent)
}
