package s3

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// verdict is the result of the conditions of a read.
type verdict uint8

const (
	verdictServe verdict = iota
	verdictNotModified
	verdictFailed
)

// conditions has the conditions of a read, or those of the source of a copy.
type conditions struct {
	match, noneMatch        []string // header values; nil: not given
	modified, unmodifiedFor string   // If-Modified-Since, If-Unmodified-Since
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

// judge evaluates the conditions like RFC 9110, section 13.2.2, and Amazon S3: an ETag wins
// over a time, and an invalid time is ignored.
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

// matches returns whether one of the ETags in values is etag or *. They may have quotes. If
// strong is set, weak ETags do not match (RFC 9110, section 8.8.3.2).
func matches(values []string, etag string, strong bool) bool {
	for _, tag := range etags(values, strong) {
		if tag == etag || tag == "*" {
			return true
		}
	}
	return false
}

// etags returns the ETags in a header without quotes. If strong is set, weak ones stay
// unchanged and so match no ETag.
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

// unquote returns an ETag in the form of the state.
func unquote(tag string) string {
	tag = strings.Trim(tag, blank)
	tag = strings.TrimPrefix(tag, weak)
	return strings.Trim(tag, `"`)
}

// writeCondition returns the condition on the object that a change replaces.
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

// deleteCondition returns the condition on the version that is deleted. If there is no
// version, it holds, because nothing is deleted.
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

// unknownConditions refuses a change with one of these headers. Ignoring the condition
// could make a change that the client excluded.
func unknownConditions(h http.Header, names ...string) error {
	for _, name := range names {
		if h.Get(name) != "" {
			return notImplemented(name + " of this change")
		}
	}
	return nil
}

// conditionTags returns the ETags of a header that becomes part of a command.
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

// timeCondition parses a time in the form of HTTP or ISO 8601 and returns its seconds since
// 1970.
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

// Bounds of a condition, which becomes part of a command.
const (
	maxConditionTags = 16
	// maxTagBytes is longer than any ETag, so a truncated one matches none.
	maxTagBytes = 64
)

func notImplemented(what string) *Error {
	return errorf(NotImplemented, "a header you provided implies functionality that is not implemented: %s", what)
}

// span is a range of content in bytes.
type span struct{ first, count int64 }

// rangeOf parses a Range header. Only a single range of bytes counts. Other forms and
// several ranges are ignored as in Amazon S3; then given is false. A range that starts past
// the end is an InvalidRange error.
func rangeOf(header string, size int64) (s span, given bool, err error) {
	part, given := web.ParseRange(header, size)
	if given && part.Count == 0 {
		return s, true, unsatisfiable(header, size)
	}
	return span{part.First, part.Count}, given, nil
}
