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

// classes are the storage classes that Amazon S3 has
// (https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html). Here they are names:
// content of all of them is stored alike.
var classes = []string{
	standard, "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER", "DEEP_ARCHIVE", "OUTPOSTS", "GLACIER_IR", "SNOW",
	"EXPRESS_ONEZONE", "FSX_OPENZFS", "FSX_ONTAP",
}

// classOf reads the storage class that headers ask for; "" is the usual one.
func classOf(h http.Header) (string, error) {
	switch class := h.Get(classHeader); {
	case class == "" || class == standard:
		return "", nil
	case slices.Contains(classes, class):
		return class, nil
	}
	return "", errorf(InvalidStorageClass, "the storage class you specified is not valid: there are %s", strings.Join(classes, ", "))
}

// className is a storage class as answers have it.
func className(class string) string { return cmp.Or(class, standard) }

// kept are the headers that are stored with an object and come back with it.
var kept = []string{"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Expires", redirectLocation}

// redirectLocation is where a website of Amazon S3 would send who asks for the object. There are
// no websites here: it is kept and answered. Each object has its own, which no copy takes over.
const redirectLocation = "X-Amz-Website-Redirect-Location"

// maxRedirectLocation bounds it, in bytes, as Amazon S3 does.
const maxRedirectLocation = 2 << 10

// checkRedirect refuses a place that nobody can be sent to.
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

// attributesOf reads what an object is to carry.
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

// withoutChunks takes the framing out of a content encoding: it is not there any
// more when the object is read. All else stays as it is written.
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

// checkPut refuses headers that ask for what there is not. To pass over them would
// store something else than was asked for.
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

// parseTags reads tags as a header has them: a query.
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

// systemTags is what the keys of tags of the service itself begin with. There are none
// here, but tools take such keys for reserved.
const systemTags = "aws:"

// checkTags refuses tags that break a rule, and more than most. Lengths are of characters.
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

// sealed tells whether a client has encrypted an object. Its bytes are nobody's
// type but the client's.
func sealed(o *state.Object) bool {
	_, wrapped := o.Meta["encryption"]
	return wrapped || strings.EqualFold(o.Meta["encrypted"], "true")
}

// describe sets the headers that an object is answered with.
func describe(h http.Header, o *state.Object) {
	keepable(h)
	for name, value := range o.Headers {
		h.Set(name, value)
	}
	exposed := h.Get(exposeHeaders)
	if !strings.HasPrefix(exposed, corsExposed) { // nobody reads it, or who a rule says what to
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

// spell writes the names of an answer's header as Amazon S3 does where that is not how
// net/http would. botocore keeps the letters of metadata's names, whatever they are, and
// scripts look for ETag.
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

// keepable prepares an answer that a browser or a cache may keep: it is another one
// for scripts of other origins.
func keepable(h http.Header) {
	h.Del("Cache-Control")
	if h.Get("Vary") == "" {
		h.Set("Vary", "Origin")
	}
}

// identify sets the headers that say which content a version has.
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

// partsOf is of how many parts an object was made; 0 for one that came in one piece.
func partsOf(o *state.Object) (n uint64) {
	for _, run := range o.Parts {
		n += run.Count
	}
	return n
}

// sayChecksums sets the headers of an object's checksums.
func sayChecksums(h http.Header, o *state.Object) {
	parts := partsOf(o)
	for i := range o.Checksums {
		c := &o.Checksums[i]
		a, err := algorithmBy(c.Algorithm)
		if err != nil {
			continue // of a newer release
		}
		h.Set(a.header, checksumText(c, parts))
	}
	sayChecksumType(h, o)
}

// sayChecksumType sets the header that says what the checksum of an object is of, if it
// has one. Answers whose body has the checksum have that header too.
func sayChecksumType(h http.Header, o *state.Object) {
	for i := range o.Checksums {
		h.Set(checksumTypeHeader, checksumType(o.Checksums[i].Composite))
	}
}

// composed tells whether an object has a checksum of those of its parts: it is that of
// none of them, also where there is one.
func composed(o *state.Object) bool {
	return slices.ContainsFunc(o.Checksums, func(c state.Checksum) bool { return c.Composite })
}

// sayPartSum sets the headers of the checksum of the part that a request asks for.
func sayPartSum(h http.Header, r *request, o *state.Object) {
	n, err := partNumber(r.query)
	a, known := algorithmBy(r.part.Algorithm)
	if err != nil || known != nil {
		return
	}
	h.Set(a.header, base64.StdEncoding.EncodeToString(r.part.Of(n)))
	h.Set(checksumTypeHeader, checksumType(o.Checksums[0].Composite))
}
