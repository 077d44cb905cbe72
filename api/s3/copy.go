package s3

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// source is the source object of a copy, from x-amz-copy-source.
type source struct {
	bucket, key string
	version     state.VersionID // requested version; "": the current one
	found       state.VersionID // version that was copied; "" for a bucket without versioning
}

// sourceOf parses x-amz-copy-source: [/]BUCKET/KEY[?versionId=ID] in URL encoding, in which a
// plus is a space.
func sourceOf(h http.Header) (src source, err error) {
	wrong := errorf(InvalidArgument, "copy source must mention the source bucket and key: sourcebucket/sourcekey")
	values := h[copySource]
	if len(values) != 1 {
		return src, wrong
	}
	text := values[0]
	const versionIs = "?versionId="
	if at := strings.LastIndex(text, versionIs); at >= 0 {
		if src.version, err = versionID(text[at+len(versionIs):]); err != nil {
			return src, err
		}
		text = text[:at]
	}
	text, ok := sigv4.Unescape(text, true)
	if !ok {
		return src, wrong
	}
	src.bucket, src.key, _ = strings.Cut(strings.TrimPrefix(text, "/"), "/")
	if src.key == "" || src.bucket == "" {
		return src, wrong
	}
	if !web.ValidBucket(src.bucket) {
		return src, errorf(InvalidArgument, "the source bucket %q is not a name of a bucket", src.bucket)
	}
	return src, checkKey(src.key)
}

// guard returns a function that checks the source object of a copy. The function rejects a delete
// marker, sets src.found, and evaluates the conditional headers in h. If all of them hold, it calls
// the function also, which may be nil.
func (src *source) guard(h http.Header, also func(*state.Object)) func(*state.Object) error {
	c := sourceConditionsOf(h)
	return func(o *state.Object) error {
		if o.Marker {
			return errorf(InvalidRequest, "the source of a copy request may not specifically refer to a delete marker by version id")
		}
		if src.found = ""; o.Versioned || o.ID == state.NullVersion {
			src.found = o.ID
		}
		switch v := c.judge(o.ETag, o.Created); {
		case v == verdictNotModified && len(c.match) > 0:
			// Amazon S3 answers so if the source matches If-Match but was not modified.
			return errorf(NotModified, "the source is not modified")
		case v != verdictServe:
			return errorf(PreconditionFailed, "at least one of the preconditions you specified for the source did not hold")
		}
		if also != nil {
			also(o)
		}
		return nil
	}
}

// identify sets X-Amz-Copy-Source-Version-Id to the copied version, if the bucket has versioning
// or the request named a version.
func (src *source) identify(h http.Header) {
	if src.found == "" && src.version != state.NullVersion {
		src.found = src.version
	}
	if src.found != "" {
		h.Set("X-Amz-Copy-Source-Version-Id", string(src.found))
	}
}

// directive parses a header whose value is COPY or REPLACE. replace is false if the header is
// absent.
func directive(h http.Header, name string) (replace bool, err error) {
	switch h.Get(name) {
	case "", "COPY":
		return false, nil
	case "REPLACE":
		return true, nil
	}
	return false, errorf(InvalidArgument, "unknown %s: COPY and REPLACE are known", strings.ToLower(name))
}

func (s *surface) copyObject(w http.ResponseWriter, r *request) error {
	if r.query.has("versionId") {
		return errorf(InvalidArgument, "this operation does not accept a version-id")
	}
	src, err := sourceOf(r.Header)
	if err != nil {
		return err
	}
	if err := s.checkPut(r); err != nil {
		return err
	}
	replaceMeta, err := directive(r.Header, "X-Amz-Metadata-Directive")
	if err != nil {
		return err
	}
	replaceTags, err := directive(r.Header, "X-Amz-Tagging-Directive")
	if err != nil {
		return err
	}
	// A storage class in the request counts as a change, even if it equals that of the
	// object.
	changed := replaceMeta || r.Header.Get(classHeader) != "" || r.Header.Get(redirectLocation) != ""
	if src.bucket == r.bucket && src.key == r.key && src.version == "" && !changed {
		return errorf(InvalidRequest, "this copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes")
	}
	given, err := attributesOf(r.Header)
	if err != nil {
		return err
	}
	condition, err := writeCondition(r.Header)
	if err != nil {
		return err
	}
	copied := objects.CopyRequest{Key: r.key, SourceBucket: src.bucket, Source: src.key, SourceVersion: src.version, If: condition}
	copied.StorageClass = given.StorageClass
	if name := r.Header.Get("X-Amz-Checksum-Algorithm"); name != "" {
		a, err := algorithmBy(name)
		if err != nil {
			return err
		}
		copied.Algorithm = a.name
	}
	copied.SourceIf = src.guard(r.Header, nil)
	copied.Replace, copied.KeepTags = &given, !replaceTags
	if !replaceMeta {
		// Headers and metadata stay those of the source, which SourceIf reads.
		own := objects.Attributes{Tags: given.Tags}
		copied.Replace = &own
		to := given.Headers[redirectLocation]
		copied.SourceIf = src.guard(r.Header, func(o *state.Object) { own.Headers, own.Meta = redirected(o.Headers, to), o.Meta })
	}
	ctx, cancel := context.WithTimeout(r.Context(), web.JoinTimeout)
	defer cancel()
	o, err := s.objects.Copy(ctx, r.account(), r.bucket, copied)
	if err != nil {
		return sourceMissing(&src, err)
	}
	src.identify(w.Header())
	identify(w.Header(), &o)
	w.Header().Del("Etag") // the body has it
	sayChecksumType(w.Header(), &o)
	x := newXML()
	x.root("CopyObjectResult")
	x.time("LastModified", o.Created)
	x.etag(o.ETag)
	x.checksums(o.Checksums, partsOf(&o))
	x.end("CopyObjectResult")
	return x.send(w, http.StatusOK)
}

// redirected returns the stored headers of a source for its copy, with the redirect location to.
// An empty to removes the redirect location.
func redirected(headers map[string]string, to string) map[string]string {
	if headers[redirectLocation] == to {
		return headers
	}
	headers = maps.Clone(headers)
	if delete(headers, redirectLocation); to == "" {
		return headers
	}
	if headers == nil {
		headers = map[string]string{}
	}
	headers[redirectLocation] = to
	return headers
}

// checksums writes the checksum elements of an object with this number of parts.
func (x *xmlWriter) checksums(sums []state.Checksum, parts uint64) {
	for i := range sums {
		x.text("Checksum"+sums[i].Algorithm, checksumText(&sums[i], parts))
		x.text("ChecksumType", checksumType(sums[i].Composite))
	}
}

// sourceMissing converts an error about a missing source object or bucket to one that names the
// source. It returns other errors unchanged.
func sourceMissing(src *source, err error) error {
	var missing *objects.SourceError
	switch {
	case !errors.As(err, &missing):
	case errors.Is(err, state.ErrNoKey):
		return &Error{Code: NoSuchKey, Message: "the specified key does not exist", Key: src.key}
	case errors.Is(err, state.ErrNoBucket):
		return &Error{Code: NoSuchBucket, Message: "the specified source bucket does not exist", Bucket: src.bucket}
	}
	return err
}
