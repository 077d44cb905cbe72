package s3

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// tokenVersion is the first byte of a continuation token. The last key or prefix of the previous
// page follows it. The token is both in base64url.
const tokenVersion = 1

// maxToken is the maximum length of a continuation token, which is that for the longest key.
const maxToken = (1+state.MaxKeyBytes)*4/3 + 4

func toToken(after string) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{tokenVersion}, after...))
}

// fromToken returns the key or prefix in a continuation token, after which the page begins. An
// empty token returns "".
func fromToken(token string) (after string, err error) {
	if token == "" {
		return "", nil
	}
	if len(token) <= maxToken {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
		if err == nil && len(raw) > 1 && raw[0] == tokenVersion {
			return string(raw[1:]), nil
		}
	}
	return "", errorf(InvalidArgument, "the continuation token provided is incorrect")
}

// listing has the parameters that all list requests share.
type listing struct {
	prefix, delimiter string
	limit             int
	encode            func(string) string // encodes keys and prefixes
	encoding          string              // value of encoding-type
}

func (q query) listing(limitName string) (l listing, err error) {
	l = listing{prefix: q.get("prefix"), delimiter: q.get("delimiter"), encoding: q.get("encoding-type")}
	switch l.encoding {
	case "":
		l.encode = func(text string) string { return text }
	case "url":
		l.encode = escapeKey
	default:
		return l, errorf(InvalidArgument, "invalid encoding method specified in request: encoding-type is url or not given")
	}
	l.limit, err = q.number(limitName, state.MaxListLimit, 0, state.MaxListLimit)
	return l, err
}

// behind returns the position after which a page begins for the marker of a request. If the
// marker contains a common prefix, the page begins after all keys with that prefix, as in Amazon
// S3, where the last entry of a page can be a common prefix.
func (l *listing) behind(marker string) string {
	if rest, ok := strings.CutPrefix(marker, l.prefix); ok && l.delimiter != "" {
		if at := strings.Index(rest, l.delimiter); at >= 0 {
			return marker[:len(l.prefix)+at+len(l.delimiter)]
		}
	}
	return marker
}

// objectsPage reads one page of a bucket's objects that begins after the position after. With a
// limit of 0 it only checks that the bucket exists.
func (s *surface) objectsPage(r *request, l listing, after string) (page state.ObjectsPage, err error) {
	ctx, cancel := r.soon()
	defer cancel()
	if l.limit == 0 {
		_, err := s.objects.Bucket(ctx, r.account(), r.bucket)
		return page, err
	}
	return s.objects.List(ctx, r.account(), r.bucket, state.ObjectsQuery{Prefix: l.prefix, Delimiter: l.delimiter, After: after, Limit: l.limit})
}

func (s *surface) listObjectsV2(w http.ResponseWriter, r *request) error {
	if r.query.get("list-type") != "2" {
		return errorf(InvalidArgument, "list-type has to be 2")
	}
	l, err := r.query.listing("max-keys")
	if err != nil {
		return err
	}
	token, resumed := r.query.find("continuation-token")
	after, err := fromToken(token)
	if err != nil {
		return err
	}
	start := r.query.get("start-after")
	if token == "" && start != "" {
		// start-after is a key, even if it looks like a common prefix: keys under that
		// prefix follow. No key lies between start and after.
		after = start + "\x00"
	}
	page, err := s.objectsPage(r, l, after)
	if err != nil {
		return err
	}
	x := newXML()
	x.root("ListBucketResult")
	x.text("Name", r.bucket)
	x.text("Prefix", l.encode(l.prefix))
	if resumed {
		x.text("ContinuationToken", token)
	}
	if page.Truncated {
		x.text("NextContinuationToken", toToken(page.Next))
	}
	if start != "" {
		x.text("StartAfter", l.encode(start))
	}
	x.number("KeyCount", int64(len(page.Objects)+len(page.Prefixes)))
	l.finish(x, r, &page, r.query.get("fetch-owner") == "true")
	return x.sendPage(w, r)
}

func (s *surface) listObjects(w http.ResponseWriter, r *request) error {
	l, err := r.query.listing("max-keys")
	if err != nil {
		return err
	}
	marker := r.query.get("marker")
	page, err := s.objectsPage(r, l, l.behind(marker))
	if err != nil {
		return err
	}
	x := newXML()
	x.root("ListBucketResult")
	x.text("Name", r.bucket)
	x.text("Prefix", l.encode(l.prefix))
	x.text("Marker", l.encode(marker))
	if page.Truncated {
		// Amazon S3 sends NextMarker only if there is a delimiter. Otherwise clients use
		// the last key, which is the same.
		x.text("NextMarker", l.encode(page.Next))
	}
	l.finish(x, r, &page, true)
	return x.sendPage(w, r)
}

// listedBytes is the approximate size of one object in a list, in bytes of XML.
const listedBytes = 320

// echo writes the elements that repeat the parameters of the request, and IsTruncated.
func (l *listing) echo(x *xmlWriter, truncated bool) {
	x.number("MaxKeys", int64(l.limit))
	if l.delimiter != "" {
		x.text("Delimiter", l.encode(l.delimiter))
	}
	x.truth("IsTruncated", truncated)
	if l.encoding != "" {
		x.text("EncodingType", l.encoding)
	}
}

// listed writes the elements of a list that describe the content of an object.
func (x *xmlWriter) listed(o *state.Object) {
	x.etag(o.ETag)
	for _, c := range o.Checksums {
		x.text("ChecksumAlgorithm", c.Algorithm)
		x.text("ChecksumType", checksumType(c.Composite))
	}
	x.b = append(x.b, "<Size>"...)
	x.b = strconv.AppendUint(x.b, o.Size, 10)
	x.b = append(x.b, "</Size>"...)
	x.text("StorageClass", className(o.StorageClass))
}

// finish writes the entries and the end of an object list, for both versions of ListObjects. With
// owner each object has an Owner element.
func (l *listing) finish(x *xmlWriter, r *request, page *state.ObjectsPage, owner bool) {
	l.echo(x, page.Truncated)
	x.b = slices.Grow(x.b, listedBytes*len(page.Objects))
	for i := range page.Objects {
		o := &page.Objects[i]
		x.begin("Contents")
		x.text("Key", l.encode(o.Key))
		x.time("LastModified", o.Created)
		x.listed(o)
		if owner {
			x.owner(r)
		}
		x.end("Contents")
	}
	for _, prefix := range page.Prefixes {
		x.commonPrefix(l.encode(prefix))
	}
	x.end("ListBucketResult")
}

func (x *xmlWriter) commonPrefix(prefix string) {
	x.begin("CommonPrefixes")
	x.text("Prefix", prefix)
	x.end("CommonPrefixes")
}
