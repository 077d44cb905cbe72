package pinning

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits of the query of a list.
const (
	DefaultLimit = 10               // rows of a list without a limit
	MaxLimit     = pins.MaxList     // maximum number of rows
	MaxCIDs      = pins.MaxListCIDs // maximum number of CIDs in the cid filter
)

// parseQuery parses the query of a list. It ignores unknown parameters. If a parameter is
// repeated, the first value counts, but cid and status accept values from all repetitions. An
// empty value is an error, except for name. Errors are 400.
func parseQuery(raw string) (q state.PinQuery, err error) {
	q.Limit = DefaultLimit
	if raw == "" {
		return q, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, badQuery()
	}
	for _, p := range []struct {
		name  string
		parse func(*state.PinQuery, []string) error
	}{
		{"cid", parseCIDs},
		{"name", parseName},
		{"match", parseMatch},
		{"status", parseStatuses},
		{"before", parseBefore},
		{"after", parseAfter},
		{"limit", parseLimit},
		{"meta", parseMeta},
	} {
		if given, ok := values[p.name]; ok {
			if err := p.parse(&q, given); err != nil {
				return q, err
			}
		}
	}
	return q, addMeta(&q, values)
}

// badQuery returns the 400 error for a malformed query. It does not contain the error of package
// net/url, whose text differs between releases of Go.
func badQuery() error {
	return web.BadRequest("the query is not valid: a %% must stand before two hexadecimal digits, and a ; is written %%3B")
}

func parseCIDs(q *state.PinQuery, given []string) error {
	for _, list := range given {
		for text := range strings.SplitSeq(list, ",") {
			if len(q.CIDs) == MaxCIDs {
				return web.BadRequest("cid has too many entries, at most %d are allowed", MaxCIDs)
			}
			c, err := pins.ParseCID(text)
			if err != nil {
				return err
			}
			q.CIDs = append(q.CIDs, c)
		}
	}
	return nil
}

func parseName(q *state.PinQuery, given []string) error {
	if !utf8.ValidString(given[0]) {
		return web.BadRequest("name is not UTF-8")
	}
	if n := utf8.RuneCountInString(given[0]); n > state.MaxNameRunes {
		return web.BadRequest("name has %d characters, at most %d are allowed", n, state.MaxNameRunes)
	}
	q.Name = given[0]
	return nil
}

func parseMatch(q *state.PinQuery, given []string) error {
	switch given[0] {
	case "exact":
		q.Match = state.Exact
	case "iexact":
		q.Match = state.IExact
	case "partial":
		q.Match = state.Partial
	case "ipartial":
		q.Match = state.IPartial
	default:
		return web.BadRequest("match must be one of exact, iexact, partial, ipartial")
	}
	return nil
}

func parseStatuses(q *state.PinQuery, given []string) error {
	for _, list := range given {
		for name := range strings.SplitSeq(list, ",") {
			status, ok := parseStatus(name)
			if !ok {
				return web.BadRequest("status must be one or more of queued, pinning, pinned, failed, with commas between them")
			}
			known := false
			for _, s := range q.Statuses {
				known = known || s == status
			}
			if !known {
				q.Statuses = append(q.Statuses, status)
			}
		}
	}
	return nil
}

func parseStatus(name string) (state.Status, bool) {
	for _, s := range state.Statuses() {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

// parseBefore parses the upper bound before of the creation time. It rounds up to whole
// milliseconds, the resolution of creation times.
func parseBefore(q *state.PinQuery, given []string) error {
	t, err := parseTime("before", given[0])
	if err != nil {
		return err
	}
	q.Before = state.MillisOf(t)
	if q.Before.Time().Before(t) {
		q.Before++
	}
	q.Before = max(q.Before, 1) // 0 would mean no bound
	return nil
}

func parseAfter(q *state.PinQuery, given []string) error {
	t, err := parseTime("after", given[0])
	if err != nil {
		return err
	}
	q.After = max(state.MillisOf(t), 0)
	return nil
}

// timeForm is the pattern of an RFC 3339 time up to the seconds. 0 stands for any digit.
const timeForm = "0000-00-00T00:00:00"

// maxTimeLen is the maximum length of a time in bytes. It allows for many digits of a fraction.
const maxTimeLen = 64

// parseTime parses an RFC 3339 time strictly; name is the parameter in the 400 error. Package
// time alone would also accept hours of one digit and a comma before the fraction.
func parseTime(name, text string) (time.Time, error) {
	wrong := web.BadRequest("%s must be a date and time of RFC 3339, such as 2026-01-31T23:59:59.999Z; a + in a query is written %%2B", name)
	upper := strings.ToUpper(text)
	if len(upper) <= len(timeForm) || len(upper) > maxTimeLen {
		return time.Time{}, wrong
	}
	for i := range len(timeForm) {
		digit := upper[i] >= '0' && upper[i] <= '9'
		if digit != (timeForm[i] == '0') || !digit && upper[i] != timeForm[i] {
			return time.Time{}, wrong
		}
	}
	if upper[len(timeForm)] == ',' {
		return time.Time{}, wrong
	}
	t, err := time.Parse(time.RFC3339Nano, upper)
	if err != nil {
		return time.Time{}, wrong
	}
	return t, nil
}

func parseLimit(q *state.PinQuery, given []string) error {
	n, err := strconv.ParseUint(given[0], 10, 16)
	if err != nil || n < 1 || n > MaxLimit {
		return web.BadRequest("limit must be a whole number from 1 to %d", MaxLimit)
	}
	q.Limit = int(n)
	return nil
}

func parseMeta(q *state.PinQuery, given []string) error {
	meta, err := web.Strings("meta", []byte(given[0]))
	if err != nil {
		return err
	}
	if len(meta) > state.MaxMetaPairs {
		return web.BadRequest("meta has %d pairs, at most %d are allowed", len(meta), state.MaxMetaPairs)
	}
	q.Meta = meta
	return nil
}

// addMeta adds parameters of the form meta[KEY]=VALUE to the metadata filter of q. The public
// JavaScript client sends its filter in this form.
func addMeta(q *state.PinQuery, values url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(values)) { // sorted, so that the same mistake is reported each time
		key, isMeta := strings.CutPrefix(name, "meta[")
		key, closed := strings.CutSuffix(key, "]")
		if !isMeta || !closed {
			continue
		}
		given := values[name]
		if !utf8.ValidString(key) || !utf8.ValidString(given[0]) {
			return web.BadRequest("meta is not UTF-8")
		}
		if known, twice := q.Meta[key]; twice && known != given[0] {
			return web.BadRequest("meta has a member twice, with different values")
		}
		if q.Meta == nil {
			q.Meta = map[string]string{}
		}
		if q.Meta[key] = given[0]; len(q.Meta) > state.MaxMetaPairs {
			return web.BadRequest("meta has more than %d pairs", state.MaxMetaPairs)
		}
	}
	return nil
}
