package seal

import (
	"fmt"
	"net/url"
	"strings"
)

// PlainLink is a link to content that is not encrypted, such as a page of the console makes. The
// format is described in docs/encryption.md, Links.
type PlainLink struct {
	Bucket string
	// Place is the key of an object, or a folder: the beginning of keys, with its last slash.
	Place string
	// Access is the credential with which the server lets the holder of the link read the content. It
	// is a secret.
	Access string
	// Endpoints are URLs of servers that have the content. Old links have none.
	Endpoints []string
}

// String describes the link without its secret.
func (l PlainLink) String() string { return "plain link to " + l.Bucket + "/" + l.Place }

// GoString describes the link without its secret.
func (l PlainLink) GoString() string { return "seal.PlainLink{" + l.Bucket + "/" + l.Place + "}" }

// ParsePlainLink parses the text of a link for which [ParseLink] returns [ErrPlainLink]. The error
// is [ErrToken], [ErrVersion] or [ErrTooLarge].
func ParsePlainLink(s string) (PlainLink, error) {
	_, values, err := linkValues(s)
	if err != nil {
		return PlainLink{}, err
	}
	if v := values.Get("v"); v != plainVersion {
		return PlainLink{}, fmt.Errorf("%w: link %.16q", ErrVersion, v)
	}
	l := PlainLink{Bucket: values.Get("b"), Place: values.Get("p"), Access: values.Get("a"), Endpoints: values["e"]}
	if l.Bucket == "" || l.Place == "" || l.Access == "" {
		return PlainLink{}, fmt.Errorf("%w: link without bucket, place or access", ErrToken)
	}
	return l, checkEndpoints(l.Endpoints)
}

// checkEndpoints returns [ErrTooLarge] if a link has more endpoints than maxEndpoints.
func checkEndpoints(endpoints []string) error {
	if len(endpoints) > maxEndpoints {
		return fmt.Errorf("%w: link with %d endpoints", ErrTooLarge, len(endpoints))
	}
	return nil
}

// linkValues parses the text of a link of any version to the URL of its page and the values of its
// fragment. The error is [ErrToken] or [ErrTooLarge]. It never quotes the text, which is a secret.
func linkValues(s string) (page string, values url.Values, err error) {
	if len(s) > 2*maxToken {
		return "", nil, fmt.Errorf("%w: link of %d bytes", ErrTooLarge, len(s))
	}
	page, fragment, ok := strings.Cut(strings.TrimSpace(s), "#")
	if !ok {
		if !strings.HasPrefix(page, "v=") {
			return "", nil, fmt.Errorf("%w: link has no fragment", ErrToken)
		}
		page, fragment = "", page
	}
	if err := checkPage(page); err != nil {
		return "", nil, err
	}
	if values, err = url.ParseQuery(fragment); err != nil {
		return "", nil, fmt.Errorf("%w: fragment", ErrToken) // the error has no cause, because the cause quotes the secret
	}
	return page, values, nil
}
