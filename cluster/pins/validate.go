package pins

import (
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multiaddr"
)

// Limits of lists in the Pinning Service API 1.0.0. Package state has the limits of a pin's
// fields.
const (
	MaxListCIDs = 10   // largest number of CIDs in the filter of a list
	MaxList     = 1000 // largest number of pins in a page
)

// maxQuoted is the largest number of bytes of an invalid value that an error text contains.
const maxQuoted = 80

// ParseCID parses a CID of version 0 or 1 in any multibase of printable characters. It accepts
// every codec and hash; whether the content can be stored turns out during the fetch. Errors:
// state.ErrInvalid.
func ParseCID(text string) (cid.Cid, error) {
	switch {
	case text == "":
		return cid.Undef, state.Errorf(state.CodeInvalid, "cid is missing or empty")
	case len(text) > state.MaxCIDLen:
		return cid.Undef, state.Errorf(state.CodeInvalid, "cid is longer than %d bytes", state.MaxCIDLen)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, control):
		return cid.Undef, state.Errorf(state.CodeInvalid, "cid holds characters that no CID has")
	}
	c, err := cid.Decode(text)
	if err != nil {
		return cid.Undef, state.Errorf(state.CodeInvalid, "cid %q is not a valid CID", quoted(text))
	}
	// The decoder lets a version 0 with the prefix of a multibase pass, which
	// the CID specification forbids.
	if c.Version() == 0 && c.String() != text {
		return cid.Undef, state.Errorf(state.CodeInvalid, "cid %q is not a valid CID: one of version 0 has no multibase prefix", quoted(text))
	}
	return c, nil
}

// Validate checks all fields of a request except End, and returns its CID. The error is a
// state.ErrInvalid that describes the mistake for the client.
func (r *Request) Validate() (cid.Cid, error) {
	c, err := ParseCID(r.CID)
	if err != nil {
		return cid.Undef, err
	}
	if !utf8.ValidString(r.Name) {
		return cid.Undef, state.Errorf(state.CodeInvalid, "name is not valid UTF-8")
	}
	if n := utf8.RuneCountInString(r.Name); n > state.MaxNameRunes {
		return cid.Undef, state.Errorf(state.CodeInvalid, "name has %d characters, at most %d are allowed", n, state.MaxNameRunes)
	}
	if err := checkOrigins(r.Origins); err != nil {
		return cid.Undef, err
	}
	if err := checkMeta(r.Meta); err != nil {
		return cid.Undef, err
	}
	return c, nil
}

func checkOrigins(origins []string) error {
	if len(origins) > state.MaxOrigins {
		return state.Errorf(state.CodeInvalid, "origins has %d entries, at most %d are allowed", len(origins), state.MaxOrigins)
	}
	for i, o := range origins {
		if len(o) > state.MaxAddrLen {
			return state.Errorf(state.CodeInvalid, "origins[%d] is longer than %d bytes", i, state.MaxAddrLen)
		}
		if !utf8.ValidString(o) {
			return state.Errorf(state.CodeInvalid, "origins[%d] is not valid UTF-8", i)
		}
		if _, err := multiaddr.NewMultiaddr(o); err != nil {
			return state.Errorf(state.CodeInvalid, "origins[%d]: %q is not a multiaddr", i, quoted(o))
		}
	}
	return nil
}

func checkMeta(meta map[string]string) error {
	if len(meta) > state.MaxMetaPairs {
		return state.Errorf(state.CodeInvalid, "meta has %d pairs, at most %d are allowed", len(meta), state.MaxMetaPairs)
	}
	size := 0
	for k, v := range meta {
		if size += len(k) + len(v); size > state.MaxMetaBytes {
			return state.Errorf(state.CodeInvalid, "meta is larger than %d bytes", state.MaxMetaBytes)
		}
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return state.Errorf(state.CodeInvalid, "meta is not valid UTF-8")
		}
	}
	return nil
}

// validateQuery returns state.ErrInvalid if a filter or the limit of a list is invalid.
func validateQuery(q *state.PinQuery) error {
	if q.Limit < 0 || q.Limit > MaxList {
		return state.Errorf(state.CodeInvalid, "limit %d is not between 0 and %d", q.Limit, MaxList)
	}
	if len(q.CIDs) > MaxListCIDs {
		return state.Errorf(state.CodeInvalid, "cid has %d entries, at most %d are allowed", len(q.CIDs), MaxListCIDs)
	}
	for _, c := range q.CIDs {
		if !c.Defined() {
			return state.Errorf(state.CodeInvalid, "cid is missing or empty")
		}
	}
	for _, s := range q.Statuses {
		if s < state.Queued || s > state.Failed {
			return state.Errorf(state.CodeInvalid, "status %d is unknown", s)
		}
	}
	if q.Match > state.IPartial {
		return state.Errorf(state.CodeInvalid, "match %d is unknown", q.Match)
	}
	return nil
}

// validID returns whether id can be the id of a pin.
func validID(id state.RequestID) bool { return id != "" && len(id) <= state.MaxIDLen }

func control(r rune) bool { return r < ' ' || r == 0x7f }

// quoted returns at most maxQuoted bytes of an invalid value for an error text, with "..." if the
// value is longer.
func quoted(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "..."
}
