package seal

import "fmt"

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
