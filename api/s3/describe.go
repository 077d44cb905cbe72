package s3

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// objectAttributes are the attributes of GetObjectAttributes, each with the function that writes
// its elements, in the order of the answer. See
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObjectAttributes.html.
var objectAttributes = []struct {
	name  string
	write func(x *xmlWriter, o *state.Object, p partsPage)
}{
	{"ETag", func(x *xmlWriter, o *state.Object, _ partsPage) { x.text("ETag", o.ETag) }}, // without quotes, as in Amazon S3
	{"Checksum", func(x *xmlWriter, o *state.Object, _ partsPage) { x.checksum(o) }},
	{"ObjectParts", func(x *xmlWriter, o *state.Object, p partsPage) { x.parts(o, p) }},
	{"StorageClass", func(x *xmlWriter, o *state.Object, _ partsPage) { x.text("StorageClass", className(o.StorageClass)) }},
	{"ObjectSize", func(x *xmlWriter, o *state.Object, _ partsPage) {
		x.text("ObjectSize", strconv.FormatUint(o.Size, 10))
	}},
}

// partsPage is the page of an object's parts that a request asks for.
type partsPage struct {
	after, limit int             // part number before the page, and maximum number of parts
	sums         *state.PartSums // checksums of all parts; nil: none are stored
}

func partsPageOf(h http.Header) (p partsPage, err error) {
	const most, marker = "x-amz-max-parts", "x-amz-part-number-marker"
	q := query{{most, h.Get(most)}, {marker, h.Get(marker)}}
	if p.limit, err = q.number(most, state.MaxListLimit, 0, state.MaxListLimit); err != nil {
		return p, err
	}
	p.after, err = q.number(marker, 0, 0, state.MaxPartNumber)
	return p, err
}

// wantedOf returns the set of attributes that x-amz-object-attributes asks for.
func wantedOf(h http.Header) (wanted map[string]bool, err error) {
	const header = "X-Amz-Object-Attributes"
	wanted = map[string]bool{}
	for _, value := range h[header] {
		for name := range strings.SplitSeq(value, ",") {
			wanted[strings.Trim(name, " \t")] = true
		}
	}
	if len(wanted) == 0 || len(wanted) == 1 && wanted[""] {
		return nil, errorf(InvalidRequest, "the x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty")
	}
	known := 0
	for _, a := range objectAttributes {
		if wanted[a.name] {
			known++
		}
	}
	if known != len(wanted) {
		return nil, errorf(InvalidArgument, "invalid attribute name specified: there are ETag, Checksum, ObjectParts, StorageClass and ObjectSize")
	}
	return wanted, nil
}

// getAttributes answers GetObjectAttributes from the record of an object.
func (s *surface) getAttributes(w http.ResponseWriter, r *request) error {
	wanted, err := wantedOf(r.Header)
	if err != nil {
		return err
	}
	page, err := partsPageOf(r.Header)
	if err != nil {
		return err
	}
	o, err := s.current(r)
	if err != nil {
		return err
	}
	if done, err := conditional(w, r, &o); done || err != nil {
		return err
	}
	if wanted["ObjectParts"] && page.limit > 0 {
		if page.sums, err = s.partSums(r, &o); err != nil {
			return err
		}
	}
	identify(w.Header(), &o)
	w.Header().Del("Etag") // the body has it if it was requested
	if wanted["Checksum"] {
		sayChecksumType(w.Header(), &o)
	}
	if !o.Versioned && o.ID != state.NullVersion && !r.query.has("versionId") {
		w.Header().Del("X-Amz-Version-Id") // the bucket has never had versions
	}
	w.Header().Set("Last-Modified", httpTime(o.Created))
	x := newXML()
	x.root("GetObjectAttributesOutput")
	for _, a := range objectAttributes {
		if wanted[a.name] {
			a.write(x, &o, page)
		}
	}
	x.end("GetObjectAttributesOutput")
	return x.send(w, http.StatusOK)
}

// checksum writes the checksum of an object, if it has one. As in Amazon S3, the number of parts
// is not appended, unlike in the header.
func (x *xmlWriter) checksum(o *state.Object) {
	if len(o.Checksums) == 0 {
		return
	}
	x.begin("Checksum")
	for i := range o.Checksums {
		c := &o.Checksums[i]
		x.text("Checksum"+c.Algorithm, base64.StdEncoding.EncodeToString(c.Value))
		x.text("ChecksumType", checksumType(c.Composite))
	}
	x.end("Checksum")
}

// parts writes a page of the parts of an object, or no parts if it was not stored by a multipart
// upload. The part numbers are those that GetObject accepts as partNumber: from 1, without gaps.
func (x *xmlWriter) parts(o *state.Object, p partsPage) {
	total := int(partsOf(o))
	if total == 0 {
		return
	}
	last := min(total, p.after+p.limit)
	x.begin("ObjectParts")
	x.number("PartsCount", int64(total))
	x.number("PartNumberMarker", int64(p.after))
	x.number("NextPartNumberMarker", int64(max(last, p.after)))
	x.number("MaxParts", int64(p.limit))
	x.truth("IsTruncated", p.limit > 0 && last < total) // as in ListParts, an empty page has no next one
	number := 0
	for _, run := range o.Parts {
		for n := max(number, p.after); n < min(number+int(run.Count), last); n++ {
			x.begin("Part")
			x.number("PartNumber", int64(n+1))
			x.text("Size", strconv.FormatUint(run.Size, 10))
			if p.sums != nil {
				x.text("Checksum"+p.sums.Algorithm, base64.StdEncoding.EncodeToString(p.sums.Of(n+1)))
			}
			x.end("Part")
		}
		number += int(run.Count)
	}
	x.end("ObjectParts")
}
