package s3

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxComplete is the maximum size of the body of CompleteMultipartUpload in bytes. A list of
// 10,000 parts with a checksum each needs about 2 MiB.
const maxComplete = 4 << 20

// partNumber returns the query parameter partNumber, or an InvalidArgument error.
func partNumber(q query) (int, error) {
	n, ok := web.Decimal(q.get("partNumber"))
	if !ok || n < 1 || n > state.MaxPartNumber {
		return 0, errorf(InvalidArgument, "part number must be an integer between 1 and %d, inclusive", state.MaxPartNumber)
	}
	return int(n), nil
}

// uploadID returns the query parameter uploadId, or state.ErrNoUpload if no upload can have such
// an id.
func uploadID(q query) (state.UploadID, error) {
	id := q.get("uploadId")
	if id == "" || len(id) > state.MaxIDLen || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", state.ErrNoUpload
	}
	return state.UploadID(id), nil
}

// kindOf returns the checksum algorithm that CreateMultipartUpload asks for, or nil, and whether
// the checksum of the object will be COMPOSITE.
func kindOf(h http.Header) (a *algorithm, composite bool, err error) {
	name, kind := h.Get("X-Amz-Checksum-Algorithm"), h.Get("X-Amz-Checksum-Type")
	if name == "" {
		if kind != "" {
			return nil, false, errorf(InvalidRequest, "the x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header")
		}
		return nil, false, nil
	}
	if a, err = algorithmBy(name); err != nil {
		return nil, false, err
	}
	switch strings.ToUpper(kind) {
	case "":
		composite = a.parts
	case "COMPOSITE":
		composite = true
	case "FULL_OBJECT":
	default:
		return nil, false, errorf(InvalidRequest, "the value specified in the x-amz-checksum-type header is invalid: COMPOSITE and FULL_OBJECT are known")
	}
	if composite && !a.parts || !composite && !a.whole {
		return nil, false, errorf(InvalidRequest, "the %s checksum type cannot be used with the %s checksum algorithm", checksumType(composite), strings.ToLower(a.name))
	}
	return a, composite, nil
}

func (s *surface) createUpload(w http.ResponseWriter, r *request) error {
	if err := s.checkPut(r); err != nil {
		return err
	}
	attributes, err := attributesOf(r.Header)
	if err != nil {
		return err
	}
	a, composite, err := kindOf(r.Header)
	if err != nil {
		return err
	}
	made := objects.UploadRequest{Key: r.key, Attributes: attributes, Composite: composite}
	if a != nil {
		made.Algorithm = a.name
		w.Header().Set("X-Amz-Checksum-Algorithm", a.name)
		w.Header().Set(checksumTypeHeader, checksumType(composite))
	}
	ctx, cancel := r.soon()
	defer cancel()
	id, err := s.objects.CreateUpload(ctx, r.account(), r.bucket, made)
	if err != nil {
		// The other limits of an upload were checked before.
		return tooMany(err, InvalidRequest, "the bucket has as many open uploads as it may, %d: complete or abort some", state.MaxUploads)
	}
	x := newXML()
	x.root("InitiateMultipartUploadResult")
	x.text("Bucket", r.bucket)
	x.text("Key", r.key)
	x.text("UploadId", string(id))
	x.end("InitiateMultipartUploadResult")
	return x.send(w, http.StatusOK)
}

// upload returns the multipart upload with the id in the query.
func (s *surface) upload(r *request) (state.Upload, error) {
	id, err := uploadID(r.query)
	if err != nil {
		return state.Upload{}, err
	}
	ctx, cancel := r.soon()
	defer cancel()
	return s.objects.Upload(ctx, r.account(), r.bucket, r.key, id)
}

// putPart answers UploadPart: it stores a part. It looks up the upload before it reads the body,
// because the upload determines the checksum algorithm of its parts.
func (s *surface) putPart(w http.ResponseWriter, r *request) error {
	n, err := partNumber(r.query)
	if err != nil {
		return err
	}
	c, err := s.contentOf(w, r, s.maxObject, EntityTooLarge, time.Time{})
	if err != nil {
		return err
	}
	up, err := s.upload(r)
	if err != nil {
		return err
	}
	if err := c.suits(&up); err != nil {
		return err
	}
	ctx, f, cancel := web.Burn(r.Context(), caseTimeout)
	defer cancel()
	part, err := s.objects.PutPart(ctx, r.account(), r.bucket, objects.PartRequest{
		Key: r.key, Upload: up.ID, Number: n, Body: c.whole(f),
	})
	if err != nil {
		return err
	}
	w.Header().Set("Etag", `"`+part.ETag+`"`)
	sums := without(part.Checksums, c.beside...)
	for i := range sums {
		if a, err := algorithmBy(sums[i].Algorithm); err == nil {
			w.Header().Set(a.header, checksumText(&sums[i], 0))
		}
	}
	sayPartsType(w.Header(), &up, sums)
	return web.Empty(w, http.StatusOK)
}

// askedSums returns those checksums of a part that the client asked for. An upload without an
// algorithm also stores a CRC64NVME of each part, for the default checksum of the object, which
// is not shown.
func askedSums(up *state.Upload, sums []state.Checksum) []state.Checksum {
	if up.Checksum.Algorithm != "" {
		return sums
	}
	return without(sums, objects.DefaultAlgorithm)
}

// without returns the checksums in sums whose algorithm is not one of algorithms.
func without(sums []state.Checksum, algorithms ...string) []state.Checksum {
	return slices.DeleteFunc(slices.Clone(sums), func(c state.Checksum) bool { return slices.Contains(algorithms, c.Algorithm) })
}

// sayPartsType sets the header with the checksum type of a part's answer, which is the type of
// the object's checksum, if sums is not empty.
func sayPartsType(h http.Header, up *state.Upload, sums []state.Checksum) {
	if len(sums) > 0 {
		h.Set(checksumTypeHeader, checksumType(up.Checksum.Algorithm != "" && up.Checksum.Composite))
	}
}

// suits selects the checksum algorithm that the upload requires for its parts. For an upload
// without an algorithm it adds the one from which the default checksum of the object is computed.
// It returns an error if the request has a checksum of another algorithm.
func (c *content) suits(up *state.Upload) error {
	wanted := up.Checksum.Algorithm
	if wanted == "" {
		if c.algorithm == nil || c.algorithm.name != objects.DefaultAlgorithm {
			c.beside = []string{objects.DefaultAlgorithm}
		}
		return nil
	}
	if c.algorithm == nil {
		var err error
		c.algorithm, err = algorithmBy(wanted)
		return err
	}
	if c.algorithm.name != wanted {
		return errorf(InvalidRequest, "checksum type mismatch occurred, expected checksum type: %s, actual checksum type: %s",
			strings.ToLower(wanted), strings.ToLower(c.algorithm.name))
	}
	return nil
}

func (s *surface) copyPart(w http.ResponseWriter, r *request) error {
	n, err := partNumber(r.query)
	if err != nil {
		return err
	}
	src, err := sourceOf(r.Header)
	if err != nil {
		return err
	}
	piece, err := sourceRange(r.Header.Get("X-Amz-Copy-Source-Range"), uint64(s.maxObject))
	if err != nil {
		return err
	}
	up, err := s.upload(r) // it determines the checksum of the part
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), piecesTimeout)
	defer cancel()
	part, err := s.objects.CopyPart(ctx, r.account(), r.bucket, objects.PartCopyRequest{
		Key: r.key, Upload: up.ID, Number: n, SourceBucket: src.bucket, Source: src.key, SourceVersion: src.version,
		SourceIf: src.guard(r.Header, nil), Range: piece,
	})
	if err != nil {
		return sourceMissing(&src, err)
	}
	src.identify(w.Header())
	sums := askedSums(&up, part.Checksums)
	sayPartsType(w.Header(), &up, sums)
	x := newXML()
	x.root("CopyPartResult")
	x.time("LastModified", part.Created)
	x.etag(part.ETag)
	for i := range sums {
		x.text("Checksum"+sums[i].Algorithm, checksumText(&sums[i], 0))
	}
	x.end("CopyPartResult")
	return x.send(w, http.StatusOK)
}

// sourceRange parses x-amz-copy-source-range, bytes=FIRST-LAST; an empty header means the whole
// source. It returns a function that checks the range for a source of size bytes and returns its
// offset and length. A range may have up to most bytes.
func sourceRange(header string, most uint64) (func(size uint64) (first, count uint64, err error), error) {
	first, last := int64(0), int64(-1)
	if header != "" {
		text, ok := strings.CutPrefix(header, "bytes=")
		from, to, dash := strings.Cut(text, "-")
		var good [2]bool
		first, good[0] = web.Decimal(from)
		last, good[1] = web.Decimal(to)
		if !ok || !dash || !good[0] || !good[1] || last < first {
			return nil, errorf(InvalidArgument, "the x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy")
		}
	}
	return func(size uint64) (uint64, uint64, error) {
		count := size
		if header != "" {
			if uint64(last) >= size {
				return 0, 0, errorf(InvalidArgument, "range specified is not valid for source object of size: %d", size)
			}
			count = uint64(last-first) + 1
		}
		if count > most {
			return 0, 0, errorf(InvalidRequest, "the specified copy source is larger than the maximum allowable size for a copy source: %d", most)
		}
		return uint64(first), count, nil
	}, nil
}

func (s *surface) completeUpload(w http.ResponseWriter, r *request) error {
	id, err := uploadID(r.query)
	if err != nil {
		return err
	}
	condition, err := writeCondition(r.Header)
	if err != nil {
		return err
	}
	whole, err := wholeOf(r.Header)
	if err != nil {
		return err
	}
	body, err := s.readSmall(w, r, maxComplete)
	if err != nil {
		return err
	}
	listed, err := readParts(body, state.MaxPartNumber)
	if err != nil {
		return err
	}
	parts, err := completeParts(listed)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), web.JoinTimeout)
	defer cancel()
	o, err := s.objects.Complete(ctx, r.account(), r.bucket, objects.CompleteRequest{
		Key: r.key, Upload: id, Parts: parts, If: condition, Check: whole,
	})
	if err != nil {
		return err
	}
	identify(w.Header(), &o)
	w.Header().Del("Etag")
	sayChecksumType(w.Header(), &o)
	x := newXML()
	x.root("CompleteMultipartUploadResult")
	x.text("Location", s.locationOf(r))
	x.text("Bucket", r.bucket)
	x.text("Key", r.key)
	x.etag(o.ETag)
	x.checksums(o.Checksums, partsOf(&o))
	x.end("CompleteMultipartUploadResult")
	return x.send(w, http.StatusOK)
}

// wholeOf parses the checksum, checksum type and size of the object in the headers of
// CompleteMultipartUpload. It returns a function that compares them with the object before that
// is stored, or nil if there are none. It removes the checksum header from h, because the
// checksum is not that of the request body.
func wholeOf(h http.Header) (func(*state.Object) error, error) {
	size, kind := h.Get("X-Amz-Mp-Object-Size"), strings.ToUpper(h.Get("X-Amz-Checksum-Type"))
	n, ok := web.Decimal(size)
	if size != "" && !ok {
		return nil, errorf(InvalidRequest, "the value for x-amz-mp-object-size is not a number")
	}
	if kind != "" && kind != checksumType(true) && kind != checksumType(false) {
		return nil, errorf(InvalidRequest, "the value specified in the x-amz-checksum-type header is invalid: COMPOSITE and FULL_OBJECT are known")
	}
	counted, count := uncount(h)
	composite := counted || kind == checksumType(true) // minio-go omits the number of parts
	sum, want, err := checksumHeader(h)
	if err != nil {
		return nil, err
	}
	if sum != nil {
		h.Del(sum.header)
	}
	if size == "" && kind == "" && sum == nil {
		return nil, nil
	}
	return func(o *state.Object) error {
		if size != "" && o.Size != uint64(n) {
			return errorf(InvalidRequest, "the provided x-amz-mp-object-size header value %d does not match what was computed: %d", n, o.Size)
		}
		found := sum == nil
		for i := range o.Checksums {
			c := &o.Checksums[i]
			if kind != "" && kind != checksumType(c.Composite) {
				return errorf(InvalidRequest, "the upload was created using the %s checksum mode: the complete request must use the same checksum mode", checksumType(c.Composite))
			}
			if sum == nil || sum.name != c.Algorithm || c.Composite != composite {
				continue
			}
			if found = bytes.Equal(want, c.Value); !found || counted && count != partsOf(o) {
				return errorf(BadDigest, "the %s you specified did not match the calculated checksum", sum.name)
			}
		}
		if !found {
			return errorf(InvalidRequest, "the upload was not created with a checksum %s of this kind", sum.name)
		}
		return nil
	}, nil
}

// uncount removes the suffix -N, where N is the number of parts, from the value of a checksum
// header. counted is false if no checksum has the suffix.
func uncount(h http.Header) (counted bool, parts uint64) {
	for i := range algorithms {
		name := algorithms[i].header
		value, count, found := strings.Cut(h.Get(name), "-")
		if n, number := web.Decimal(count); found && number {
			h.Set(name, value)
			counted, parts = true, uint64(n)
		}
	}
	return counted, parts
}

// completeParts converts the Part elements of CompleteMultipartUpload. It returns an error for
// invalid numbers, order or checksums.
func completeParts(listed []listedPart) ([]objects.CompletePart, error) {
	if len(listed) == 0 {
		return nil, malformed("there is no Part")
	}
	parts := make([]objects.CompletePart, len(listed))
	for i, l := range listed {
		n, ok := web.Decimal(l.number)
		if !ok || n < 1 || n > state.MaxPartNumber {
			return nil, errorf(InvalidArgument, "PartNumber must be an integer between 1 and %d, inclusive", state.MaxPartNumber)
		}
		if i > 0 && int(n) <= parts[i-1].Number {
			return nil, errorf(InvalidPartOrder, "the list of parts was not in ascending order: parts must be ordered by part number")
		}
		parts[i] = objects.CompletePart{Number: int(n), ETag: unquote(l.etag)}
		if len(l.checksums) > 1 {
			return nil, errorf(InvalidArgument, "part %d has more than one checksum", n)
		}
		for name, text := range l.checksums {
			a, err := algorithmBy(name)
			if err != nil {
				return nil, err
			}
			value, err := a.decode(text)
			if err != nil {
				return nil, errorf(InvalidArgument, "the checksum of part %d cannot be read", n)
			}
			if parts[i].Checksums == nil {
				parts[i].Checksums = map[string][]byte{}
			}
			parts[i].Checksums[a.name] = value
		}
	}
	return parts, nil
}

// locationOf returns the URL of an object as the client sees it.
func (s *surface) locationOf(r *request) string {
	path := "/" + escapeKey(r.key)
	if !r.hosted {
		path = "/" + r.bucket + path
	}
	return s.limits.Scheme(r.Request) + "://" + r.Host + path
}

func (s *surface) abortUpload(w http.ResponseWriter, r *request) error {
	id, err := uploadID(r.query)
	if err != nil {
		return err
	}
	ctx, cancel := r.soon()
	defer cancel()
	if text := r.Header.Get(ifMatchInitiated); text != "" {
		second, err := timeCondition(text)
		if err != nil {
			return err
		}
		up, err := s.objects.Upload(ctx, r.account(), r.bucket, r.key, id)
		if err != nil {
			return err
		}
		// The time of an upload never changes, so any node can check it. As in Amazon S3, a
		// time in the future is ignored.
		if up.Created.Time().Unix() != second && second <= s.now().Unix() {
			return errorf(PreconditionFailed, "at least one of the preconditions you specified did not hold")
		}
	}
	if err := s.objects.Abort(ctx, r.account(), r.bucket, r.key, id); err != nil {
		return err
	}
	return web.Empty(w, http.StatusNoContent)
}

func (s *surface) listParts(w http.ResponseWriter, r *request) error {
	id, err := uploadID(r.query)
	if err != nil {
		return err
	}
	l, err := r.query.listing("max-parts")
	if err != nil {
		return err
	}
	after, err := r.query.ranged("part-number-marker", 0, math.MaxInt32)
	after = min(after, state.MaxPartNumber)
	if err != nil {
		return err
	}
	ctx, cancel := r.soon()
	defer cancel()
	up, err := s.objects.Upload(ctx, r.account(), r.bucket, r.key, id)
	if err != nil {
		return err
	}
	var parts []state.Part
	var more bool
	if l.limit > 0 {
		if parts, more, err = s.objects.Parts(ctx, r.account(), r.bucket, r.key, id, after, l.limit); err != nil {
			return err
		}
	}
	next := after
	if len(parts) > 0 {
		next = int(parts[len(parts)-1].Number)
	}
	x := newXML()
	x.root("ListPartsResult")
	x.text("Bucket", r.bucket)
	x.text("Key", l.encode(r.key))
	x.text("UploadId", string(id))
	x.person("Initiator", r)
	x.owner(r)
	x.text("StorageClass", className(up.StorageClass))
	x.number("PartNumberMarker", int64(after))
	x.number("NextPartNumberMarker", int64(next))
	x.number("MaxParts", int64(l.limit))
	if l.encoding != "" {
		x.text("EncodingType", l.encoding)
	}
	x.truth("IsTruncated", more)
	if up.Checksum.Algorithm != "" {
		x.text("ChecksumAlgorithm", up.Checksum.Algorithm)
		x.text("ChecksumType", checksumType(up.Checksum.Composite))
	}
	for i := range parts {
		p := &parts[i]
		sums := askedSums(&up, p.Checksums)
		sayPartsType(w.Header(), &up, sums)
		x.begin("Part")
		x.number("PartNumber", int64(p.Number))
		x.time("LastModified", p.Created)
		x.etag(p.ETag)
		x.text("Size", strconv.FormatUint(p.Size, 10))
		for j := range sums {
			x.text("Checksum"+sums[j].Algorithm, checksumText(&sums[j], 0))
		}
		x.end("Part")
	}
	x.end("ListPartsResult")
	return x.sendPage(w, r)
}

func (s *surface) listUploads(w http.ResponseWriter, r *request) error {
	l, err := r.query.listing("max-uploads")
	if err != nil {
		return err
	}
	keyMarker, idMarker := r.query.get("key-marker"), r.query.get("upload-id-marker")
	if keyMarker == "" {
		idMarker = "" // as in Amazon S3, it has no effect without a key marker
	}
	if len(idMarker) > state.MaxIDLen {
		return errorf(InvalidArgument, "the upload-id-marker is no id of an upload")
	}
	ctx, cancel := r.soon()
	defer cancel()
	var page state.UploadsPage
	if l.limit == 0 {
		_, err = s.objects.Bucket(ctx, r.account(), r.bucket)
	} else {
		page, err = s.objects.Uploads(ctx, r.account(), r.bucket, state.UploadsQuery{
			Prefix: l.prefix, Delimiter: l.delimiter, AfterKey: l.behind(keyMarker), AfterID: state.UploadID(idMarker), Limit: l.limit,
		})
	}
	if err != nil {
		return err
	}
	x := newXML()
	x.root("ListMultipartUploadsResult")
	x.text("Bucket", r.bucket)
	x.text("KeyMarker", l.encode(keyMarker))
	x.text("UploadIdMarker", idMarker)
	if page.Truncated {
		x.text("NextKeyMarker", l.encode(page.NextKey))
		x.text("NextUploadIdMarker", string(page.NextID))
	}
	x.text("Prefix", l.encode(l.prefix))
	if l.delimiter != "" {
		x.text("Delimiter", l.encode(l.delimiter))
	}
	if l.encoding != "" {
		x.text("EncodingType", l.encoding)
	}
	x.number("MaxUploads", int64(l.limit))
	x.truth("IsTruncated", page.Truncated)
	for i := range page.Uploads {
		u := &page.Uploads[i]
		x.begin("Upload")
		x.text("Key", l.encode(u.Key))
		x.text("UploadId", string(u.ID))
		x.person("Initiator", r)
		x.owner(r)
		x.text("StorageClass", className(u.StorageClass))
		x.time("Initiated", u.Created)
		if u.Checksum.Algorithm != "" {
			x.text("ChecksumAlgorithm", u.Checksum.Algorithm)
			x.text("ChecksumType", checksumType(u.Checksum.Composite))
		}
		x.end("Upload")
	}
	for _, prefix := range page.Prefixes {
		x.commonPrefix(l.encode(prefix))
	}
	x.end("ListMultipartUploadsResult")
	return x.sendPage(w, r)
}
