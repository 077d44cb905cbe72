package s3

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const (
	copySource  = "X-Amz-Copy-Source"
	metaPrefix  = "X-Amz-Meta-"
	classHeader = "X-Amz-Storage-Class"
	standard    = "STANDARD"
	defaultType = "application/octet-stream"
)

// classes has the storage classes of Amazon S3
// (https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html). The cluster stores the
// class as a label; it has no other effect.
var classes = []string{
	standard, "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER", "DEEP_ARCHIVE", "OUTPOSTS", "GLACIER_IR", "SNOW",
	"EXPRESS_ONEZONE", "FSX_OPENZFS", "FSX_ONTAP",
}

// classOf returns the storage class in the headers, "" for STANDARD. An unknown class is an
// error.
func classOf(h http.Header) (string, error) {
	switch class := h.Get(classHeader); {
	case class == "" || class == standard:
		return "", nil
	case slices.Contains(classes, class):
		return class, nil
	}
	return "", errorf(InvalidStorageClass, "the storage class you specified is not valid: there are %s", strings.Join(classes, ", "))
}

// className returns the name of a storage class for answers. "" is STANDARD.
func className(class string) string { return cmp.Or(class, standard) }

// kept are the headers of a PUT that are stored with the object, and that a GET returns.
var kept = []string{"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Expires", redirectLocation}

// redirectLocation is the header with which a static website of Amazon S3 redirects its visitors.
// The gateway serves no websites: it only stores and returns the header. A copy does not inherit
// it.
const redirectLocation = "X-Amz-Website-Redirect-Location"

// maxRedirectLocation is the maximum length of a redirect location in bytes, as in Amazon S3.
const maxRedirectLocation = 2 << 10

// checkRedirect returns an error if to is not a valid redirect location.
func checkRedirect(to string) error {
	switch {
	case to == "":
		return nil
	case len(to) > maxRedirectLocation:
		return errorf(InvalidRedirectLocation, "the website redirect location has at most %d bytes", maxRedirectLocation)
	case strings.HasPrefix(to, "/"), strings.HasPrefix(to, "http://"), strings.HasPrefix(to, "https://"):
		return nil
	}
	return errorf(InvalidRedirectLocation, "the website redirect location must have a prefix of 'http://' or 'https://' or '/'")
}

// attributesOf returns the attributes of a new object from the headers of a request: storage
// class, stored headers, user metadata and tags.
func attributesOf(h http.Header) (a objects.Attributes, err error) {
	if a.StorageClass, err = classOf(h); err != nil {
		return a, err
	}
	size := 0
	for _, name := range kept {
		value := strings.Join(h[name], ", ")
		if name == "Content-Encoding" {
			value = withoutChunks(value)
		}
		if value == "" {
			continue
		}
		if a.Headers == nil {
			a.Headers = map[string]string{}
		}
		a.Headers[name] = value
		size += len(name) + len(value)
	}
	for name, values := range h {
		if !strings.HasPrefix(name, metaPrefix) || len(name) == len(metaPrefix) {
			continue
		}
		if a.Meta == nil {
			a.Meta = map[string]string{}
		}
		value := strings.Join(values, ",")
		a.Meta[strings.ToLower(name[len(metaPrefix):])] = value
		size += len(name) - len(metaPrefix) + len(value)
	}
	if err := checkRedirect(a.Headers[redirectLocation]); err != nil {
		return a, err
	}
	if len(a.Meta) > state.MaxMetaPairs {
		return a, errorf(MetadataTooLarge, "your metadata has more than %d headers", state.MaxMetaPairs)
	}
	if size > state.MaxHeaderBytes {
		return a, errorf(MetadataTooLarge, "your metadata headers exceed the maximum allowed metadata size of %d bytes", state.MaxHeaderBytes)
	}
	if values := h["X-Amz-Tagging"]; len(values) > 0 {
		if a.Tags, err = parseTags(strings.Join(values, "&")); err != nil {
			return a, err
		}
	}
	return a, nil
}

// withoutChunks removes aws-chunked from a Content-Encoding, because the stored object does not
// have this framing. The rest of the value stays unchanged.
func withoutChunks(encoding string) string {
	codings := strings.Split(encoding, ",")
	rest := slices.DeleteFunc(slices.Clone(codings), func(coding string) bool {
		return strings.EqualFold(strings.Trim(coding, " \t"), "aws-chunked")
	})
	if len(rest) == len(codings) {
		return encoding
	}
	return strings.Trim(strings.Join(rest, ","), " \t")
}

// checkPut returns an error for headers of an upload that the gateway does not support, such as
// Object Lock. To ignore them would store something else than the client asked for.
func (s *surface) checkPut(r *request) error {
	h := r.Header
	if _, err := classOf(h); err != nil {
		return err
	}
	if err := s.checkObjectACL(r); err != nil {
		return err
	}
	for name, values := range h {
		switch {
		case strings.HasPrefix(name, "X-Amz-Object-Lock-"), name == "X-Amz-Write-Offset-Bytes":
			if len(values) > 0 && values[0] != "" {
				return notImplemented(strings.ToLower(name))
			}
		}
	}
	return nil
}

// parseTags parses the value of x-amz-tagging, which has the form of a query string.
func parseTags(text string) ([]state.Tag, error) {
	q, err := parseQuery(text)
	if err != nil {
		return nil, errorf(InvalidArgument, "the header x-amz-tagging shall be encoded as UTF-8 then URL encoded query parameters without tag name duplicates")
	}
	tags := make([]state.Tag, len(q))
	for i, p := range q {
		tags[i] = state.Tag{Key: p.name, Value: p.value}
	}
	return tags, checkTags(tags, state.MaxTags)
}

// systemTags is the prefix of keys of system tags, which Amazon S3 reserves. The gateway has no
// such tags.
const systemTags = "aws:"

// checkTags returns an error for invalid tags, or for more than most of them. Lengths are in
// characters.
func checkTags(tags []state.Tag, most int) error {
	if len(tags) > most {
		return errorf(InvalidTag, "tags cannot be greater than %d", most)
	}
	for i, t := range tags {
		switch n := utf8.RuneCountInString(t.Key); {
		case !utf8.ValidString(t.Key) || n == 0 || n > state.MaxTagKeyRunes:
			return errorf(InvalidTag, "the TagKey you have provided is invalid: it has 1 to %d characters", state.MaxTagKeyRunes)
		case strings.HasPrefix(strings.ToLower(t.Key), systemTags):
			return errorf(InvalidTag, "system tags, which begin with %s, cannot be added or updated by requester", systemTags)
		case !utf8.ValidString(t.Value) || utf8.RuneCountInString(t.Value) > state.MaxTagValueRunes:
			return errorf(InvalidTag, "the TagValue you have provided is invalid: it has at most %d characters", state.MaxTagValueRunes)
		}
		for _, other := range tags[:i] {
			if other.Key == t.Key {
				return errorf(InvalidTag, "cannot provide multiple tags with the same key")
			}
		}
	}
	return nil
}

// sealed reports whether the client has encrypted an object, by its metadata. The gateway cannot
// know the type of its content.
func sealed(o *state.Object) bool {
	_, wrapped := o.Meta["encryption"]
	return wrapped || strings.EqualFold(o.Meta["encrypted"], "true")
}

// describe sets the headers of an answer to GET or HEAD of an object: its stored headers,
// metadata, ETag, version and time.
func describe(h http.Header, o *state.Object) {
	keepable(h)
	for name, value := range o.Headers {
		h.Set(name, value)
	}
	exposed := h.Get(exposeHeaders)
	if !strings.HasPrefix(exposed, corsExposed) { // no script reads them, or a rule decides which it may read
		exposed = ""
	}
	for _, name := range slices.Sorted(maps.Keys(o.Meta)) {
		h.Set(metaPrefix+name, o.Meta[name])
		if exposed != "" {
			exposed += ", " + metaPrefix + name
		}
	}
	if exposed != "" {
		h.Set(exposeHeaders, exposed)
	}
	identify(h, o)
	if o.StorageClass != "" {
		h.Set(classHeader, o.StorageClass)
	}
	h.Set("Last-Modified", httpTime(o.Created))
	h.Set("Accept-Ranges", "bytes")
}

// spell changes header names to the letter case of Amazon S3 where net/http uses another.
// botocore preserves the case of metadata names, and scripts search for ETag.
func spell(h http.Header) {
	for name, values := range h {
		switch {
		case strings.HasPrefix(name, metaPrefix):
			delete(h, name)
			h[strings.ToLower(name)] = values
		case name == "Etag":
			delete(h, name)
			h["ETag"] = values
		}
	}
}

// keepable lets browsers and caches store an answer: it removes Cache-Control, and sets Vary,
// because the CORS headers depend on the origin.
func keepable(h http.Header) {
	h.Del("Cache-Control")
	if h.Get("Vary") == "" {
		h.Set("Vary", "Origin")
	}
}

// identify sets the headers with the ETag, the version id, the CID and the BLAKE3 hash of a
// version.
func identify(h http.Header, o *state.Object) {
	h.Set("Etag", `"`+o.ETag+`"`)
	if o.ID != "" {
		h.Set("X-Amz-Version-Id", string(o.ID))
	}
	if root := o.Root.Cid(); root.Defined() {
		h.Set("X-Holdfast-Cid", root.String())
	}
	if len(o.Blake3) > 0 {
		h.Set("X-Holdfast-Blake3", hex.EncodeToString(o.Blake3))
	}
}

// partsOf returns the number of parts of an object, or 0 if it was not stored by a multipart
// upload.
func partsOf(o *state.Object) (n uint64) {
	for _, run := range o.Parts {
		n += run.Count
	}
	return n
}

// sayChecksums sets the answer headers with the checksums of an object.
func sayChecksums(h http.Header, o *state.Object) {
	parts := partsOf(o)
	for i := range o.Checksums {
		c := &o.Checksums[i]
		a, err := algorithmBy(c.Algorithm)
		if err != nil {
			continue // an algorithm of a newer release
		}
		h.Set(a.header, checksumText(c, parts))
	}
	sayChecksumType(h, o)
}

// sayChecksumType sets x-amz-checksum-type if the object has a checksum. Answers with the
// checksum in their body have this header too.
func sayChecksumType(h http.Header, o *state.Object) {
	for i := range o.Checksums {
		h.Set(checksumTypeHeader, checksumType(o.Checksums[i].Composite))
	}
}

// composed reports whether the object has a composite checksum: one computed from those of its
// parts. Such a checksum is never that of a part, even if there is only one part.
func composed(o *state.Object) bool {
	return slices.ContainsFunc(o.Checksums, func(c state.Checksum) bool { return c.Composite })
}

// sayPartSum sets the answer headers with the checksum of the part that the query names.
func sayPartSum(h http.Header, r *request, o *state.Object) {
	n, err := partNumber(r.query)
	a, known := algorithmBy(r.part.Algorithm)
	if err != nil || known != nil {
		return
	}
	h.Set(a.header, base64.StdEncoding.EncodeToString(r.part.Of(n)))
	h.Set(checksumTypeHeader, checksumType(o.Checksums[0].Composite))
}
