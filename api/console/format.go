package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// functions returns the functions that templates can call. static/format.js implements bytesText,
// count, percentOf, span, ago, utcText and isoText by the same rules.
func functions(version string) template.FuncMap {
	return template.FuncMap{
		"scope":       scopeText,
		"may":         mayText,
		"static":      func(name string) string { return "/static/" + version + "/" + name },
		"short":       short,
		"bytes":       bytesText,
		"size":        sizeText,
		"ago":         func(t time.Time) string { return ago(time.Since(t)) },
		"utc":         utcText,
		"day":         func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
		"second":      func(t time.Time) string { return t.UTC().Format(time.DateTime) },
		"iso":         isoText,
		"time":        func(m state.Millis) time.Time { return m.Time() },
		"count":       func(n uint64) string { return count(n) },
		"digits":      grouped,
		"tally":       func(st state.Status, n uint64) statusCount { return statusCount{st, n} },
		"used":        func(q state.Quota) uint64 { return q.Used() },
		"number":      func(n int) string { return count(n) },
		"unlimited":   func(bytes uint64) bool { return bytes == state.Unlimited },
		"level":       levelText,
		"memberShape": memberShape,
		"heat":        heat,
		"missing": func(node state.NodeID, ages bool, class int) string {
			return missingAddress(node, members.Class{OfAges: ages, Number: class}, "")
		},
		"since":     func(t time.Time) string { return span(time.Since(t)) },
		"span":      span,
		"skew":      skewText,
		"sentence":  sentence,
		"perSecond": func(rate float64) string { return bytesText(uint64(rate/60)) + "/s" },
		"perMinute": func(rate float64) string { return count(int64(math.Ceil(rate))) },
		"copyShape": func(p state.Phase) state.Status { return copyShapes[p] },
		"copyWord":  func(p state.Phase) string { return copyWords[p] },
		"absolute":  func(link string) bool { return !strings.HasPrefix(link, "/") },
	}
}

// maxSize is the largest size that parseSize accepts, in bytes: 1 EiB.
const maxSize = 1 << 60

// sentence returns the text of an error, which begins with a small letter and has no full stop, as a
// sentence for people.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	if rest, ok := strings.CutPrefix(text, "cid "); ok {
		text = "The CID " + rest
	}
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.ContainsRune(".:!?", rune(text[len(text)-1])) {
		text += "."
	}
	return text
}

// shortLen is the length to which short shortens a CID or an id, in characters.
const shortLen = 14

// short shortens a CID or an id in the middle: bafybeig…q7x2.
func short(id string) string {
	if len(id) <= shortLen {
		return id
	}
	return id[:8] + "…" + id[len(id)-4:]
}

// bytesText formats a number of bytes for people, in units of 1,024 such as "1.5 MiB".
func bytesText(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), 0
	for units := "KMGTPE"; v >= 1024 && unit < len(units); unit++ {
		v /= 1024
	}
	text := fmt.Sprintf("%.1f", v)
	if v >= 100 {
		text = fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSuffix(text, ".0") + " " + "KMGTPE"[unit-1:unit] + "iB"
}

// percentOf returns part as a percentage of whole, rounded down. For a whole of 0 it is 100.
func percentOf(part, whole uint64) int {
	if whole == 0 {
		return 100
	}
	return int(100 * float64(part) / float64(whole))
}

// sizeText formats a decimal number of bytes as bytesText does. It returns other text unchanged.
func sizeText(decimal string) string {
	n, err := strconv.ParseUint(decimal, 10, 64)
	if err != nil {
		return decimal
	}
	return bytesText(n)
}

// count formats a number with separators between groups of three digits.
func count[N ~int | ~int64 | ~uint64](n N) string {
	return grouped(fmt.Sprint(n))
}

// grouped returns a whole number in decimal digits with separators between groups of three digits.
func grouped(text string) string {
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// memberShape returns the pin status whose symbol also stands for a member in this state.
func memberShape(memberState string) state.Status {
	switch memberState {
	case "alive":
		return state.Pinned
	case "suspect", "draining":
		return state.Pinning
	}
	return state.Failed
}

// parseSize parses a number of bytes with an optional unit of 1,024, such as 500 MiB or 2g.
// Errors are state.CodeInvalid.
func parseSize(text string) (uint64, error) {
	at := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') && r != ' ' })
	digits, unit := text, ""
	if at >= 0 {
		digits, unit = text[:at], strings.ToUpper(strings.TrimSpace(text[at:]))
	}
	power := 0
	if unit = strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "I"); unit != "" {
		if power = 1 + strings.Index("KMGTP", unit); power == 0 || len(unit) > 1 {
			return 0, state.Errorf(state.CodeInvalid, "%q is not a size: write 500 MiB or 2 TiB", text)
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	for range power {
		n *= 1024
	}
	if err != nil || n < 1 || n > maxSize {
		return 0, state.Errorf(state.CodeInvalid, "%q is not a size: write 500 MiB or 2 TiB", text)
	}
	return uint64(n), nil
}

// utcText formats a time for people, in UTC.
func utcText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// isoText formats a time for the HTML attribute datetime.
func isoText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ago returns a text for people about how long ago something was.
func ago(d time.Duration) string {
	switch {
	case d < -time.Minute:
		return "in the future"
	case d < time.Minute:
		return "just now"
	}
	return span(d) + " ago"
}

// span formats a duration for people, in its largest unit.
func span(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if n := int64(d / u.unit); n > 1 {
			return fmt.Sprintf("%d %ss", n, u.name)
		} else if n == 1 {
			return "1 " + u.name
		}
	}
	return "less than a minute"
}

// inStep is the clock difference between members from which on a page reports it. Smaller ones
// are noise, because status reports of members are on their way for up to some hundred
// milliseconds.
const inStep = time.Second

// skewText returns a text about how far a clock is ahead of that of this node, or "" if the
// difference is below inStep.
func skewText(d time.Duration) string {
	switch {
	case d >= inStep:
		return fmt.Sprintf("%s ahead of this node", d.Round(time.Second))
	case d <= -inStep:
		return fmt.Sprintf("%s behind this node", (-d).Round(time.Second))
	}
	return ""
}

// scopeText returns a text about what an API key with this one scope permits.
func scopeText(scope string) string {
	switch scope {
	case state.ScopeRead:
		return "read pins and objects"
	case state.ScopeWrite:
		return "change and delete them"
	case state.ScopeDelete:
		return "delete objects and buckets"
	}
	return scope
}

// mayText returns a short text about what a key with these scopes, separated by spaces, permits,
// such as "read and write".
func mayText(scopes string) string {
	words := strings.Fields(scopes)
	for i, scope := range words {
		switch scope {
		case state.ScopeRead:
			words[i] = "read"
		case state.ScopeWrite:
			words[i] = "write"
		case state.ScopeDelete:
			words[i] = "delete"
		}
	}
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}
