package s3

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// verdict is the result of the conditional headers of a read.
type verdict uint8

const (
	verdictServe verdict = iota
	verdictNotModified
	verdictFailed
)

// conditions are the conditional headers of a read, or those about the source of a copy.
type conditions struct {
	match, noneMatch        []string // values of If-Match and If-None-Match; nil: absent
	modified, unmodifiedFor string   // values of If-Modified-Since and If-Unmodified-Since
}

func conditionsOf(h http.Header) conditions {
	return conditions{h["If-Match"], h["If-None-Match"], h.Get("If-Modified-Since"), h.Get("If-Unmodified-Since")}
}

// sourceConditionsOf returns the conditions of the source of a copy.
func sourceConditionsOf(h http.Header) conditions {
	return conditions{
		h["X-Amz-Copy-Source-If-Match"], h["X-Amz-Copy-Source-If-None-Match"],
		h.Get("X-Amz-Copy-Source-If-Modified-Since"), h.Get("X-Amz-Copy-Source-If-Unmodified-Since"),
	}
}

// judge evaluates the conditions for an object with this ETag and creation time, as RFC 9110,
// section 13.2.2, and Amazon S3 do: a condition on the ETag has precedence over one on the time,
// and an invalid time is ignored.
func (c *conditions) judge(etag string, created state.Millis) verdict {
	changed := created.Time().Truncate(time.Second)
	if len(c.match) > 0 {
		if !matches(c.match, etag, true) {
			return verdictFailed
		}
	} else if at, err := http.ParseTime(c.unmodifiedFor); err == nil && changed.After(at) {
		return verdictFailed
	}
	if len(c.noneMatch) > 0 {
		if matches(c.noneMatch, etag, false) {
			return verdictNotModified
		}
	} else if at, err := http.ParseTime(c.modified); err == nil && !changed.After(at) {
		return verdictNotModified
	}
	return verdictServe
}

// matches reports whether values contain etag or *. They may be quoted. With strong, weak ETags
// do not match (RFC 9110, section 8.8.3.2).
func matches(values []string, etag string, strong bool) bool {
	for _, tag := range etags(values, strong) {
		if tag == etag || tag == "*" {
			return true
		}
	}
	return false
}

// etags returns the ETags in the values of a header, without quotes. With strong, weak ETags keep
// their prefix W/, so that they match no ETag.
func etags(values []string, strong bool) []string {
	var tags []string
	for _, value := range values {
		for tag := range strings.SplitSeq(value, ",") {
			if !strong || !strings.HasPrefix(strings.Trim(tag, blank), weak) {
				tag = unquote(tag)
			}
			if tag != "" {
				tags = append(tags, tag)
			}
		}
	}
	return tags
}

const (
	weak  = "W/" // prefix of a weak ETag
	blank = " \t\r\n"
)

// unquote returns an ETag without white space, the weak prefix and quotes, as the cluster stores
// it.
func unquote(tag string) string {
	tag = strings.Trim(tag, blank)
	tag = strings.TrimPrefix(tag, weak)
	return strings.Trim(tag, `"`)
}

// writeCondition returns the condition that the headers of a PUT put on the object that it
// replaces.
func writeCondition(h http.Header) (c state.Condition, err error) {
	if values := h["If-None-Match"]; len(values) > 0 {
		tags, err := conditionTags("If-None-Match", values, false)
		if err != nil {
			return c, err
		}
		if c.Absent = slices.Contains(tags, "*"); !c.Absent {
			c.NoneMatch = tags
		}
	}
	if values := h["If-Match"]; len(values) > 0 {
		if c.Match, err = conditionTags("If-Match", values, true); err != nil {
			return c, err
		}
	}
	return c, unknownConditions(h, ifModifiedSince, ifUnmodifiedSince, ifMatchSize, ifMatchTime)
}

// deleteCondition returns the condition that the headers of a DELETE put on the deleted version.
// The condition is true if there is no such version, because then nothing is deleted.
func deleteCondition(h http.Header) (c state.Condition, err error) {
	if values := h["If-Match"]; len(values) > 0 {
		if c.Match, err = conditionTags("If-Match", values, true); err != nil {
			return c, err
		}
	}
	if text := h.Get(ifMatchSize); text != "" {
		if c.Size, c.Sized, err = sizeCondition(text); err != nil {
			return c, err
		}
	}
	if text := h.Get(ifMatchTime); text != "" {
		if c.Modified, err = timeCondition(text); err != nil {
			return c, err
		}
	}
	c.AbsentOK = !c.None()
	return c, unknownConditions(h, "If-None-Match", ifModifiedSince, ifUnmodifiedSince)
}

// Names of headers with conditions.
const (
	ifModifiedSince   = "If-Modified-Since"
	ifUnmodifiedSince = "If-Unmodified-Since"
	ifMatchSize       = "X-Amz-If-Match-Size"
	ifMatchTime       = "X-Amz-If-Match-Last-Modified-Time"
	ifMatchInitiated  = "X-Amz-If-Match-Initiated-Time"
)

// unknownConditions returns an error if a change has one of the conditional headers names, which
// it does not support. To ignore a condition could make a change that the client wanted to
// exclude.
func unknownConditions(h http.Header, names ...string) error {
	for _, name := range names {
		if h.Get(name) != "" {
			return notImplemented(name + " of this change")
		}
	}
	return nil
}

// conditionTags returns the ETags in the values of a conditional header, for a condition in a
// Raft command. It limits their number and length.
func conditionTags(header string, values []string, strong bool) ([]string, error) {
	tags := etags(values, strong)
	if len(tags) == 0 {
		return nil, errorf(InvalidArgument, "%s has no ETag", header)
	}
	if len(tags) > maxConditionTags {
		return nil, errorf(InvalidArgument, "%s has more than %d ETags", header, maxConditionTags)
	}
	for i, tag := range tags {
		tags[i] = tag[:min(len(tag), maxTagBytes)]
	}
	return tags, nil
}

func sizeCondition(text string) (size uint64, sized bool, err error) {
	n, ok := web.Decimal(text)
	if !ok {
		return 0, false, errorf(InvalidArgument, "a size as a condition is a number of bytes")
	}
	return uint64(n), true, nil
}

// timeCondition parses a time in HTTP or ISO 8601 format and returns it in seconds since 1970.
func timeCondition(text string) (second int64, err error) {
	at, err := http.ParseTime(text)
	if err != nil {
		at, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return 0, errorf(InvalidArgument, "a time as a condition is of the form of Last-Modified")
	}
	if second = at.Unix(); second == 0 {
		second = -1 // 0 would mean no condition, and no version is older than either
	}
	return second, nil
}

// Limits of a condition, which becomes part of a Raft command.
const (
	maxConditionTags = 16
	// maxTagBytes is the length to which longer ETags are cut. It exceeds that of any real ETag,
	// so a cut one matches none.
	maxTagBytes = 64
)

func notImplemented(what string) *Error {
	return errorf(NotImplemented, "a header you provided implies functionality that is not implemented: %s", what)
}

// span is a range of content: count bytes from the offset first.
type span struct{ first, count int64 }

// rangeOf parses a Range header for content of size bytes. It supports a single range of bytes.
// For any other header given is false, as in Amazon S3. A range that begins after the end is an
// InvalidRange error.
func rangeOf(header string, size int64) (s span, given bool, err error) {
	part, given := web.ParseRange(header, size)
	if given && part.Count == 0 {
		return s, true, unsatisfiable(header, size)
	}
	return span{part.First, part.Count}, given, nil
}
