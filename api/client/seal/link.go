package seal

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// linkVersion is the version of the form of a link.
const linkVersion = "1"

// Link is a share for somebody who has no identity. Secret is the private key of a recipient that
// was made for this link, so anybody who has the link can use it. All secrets are in the fragment
// of the URL, which browsers do not send.
type Link struct {
	Page   string // URL of the page that opens the link, without a fragment
	Token  *Token
	Secret [32]byte // X25519 private key
	// Access is a credential with which the server lets the holder read the ciphertext. Access is
	// empty if the holder has another credential.
	Access string
}

// NewLink makes a recipient and a token for it, and returns both as a link. page is the URL of the
// page that opens the link.
func (id *Identity) NewLink(page, access string, s Share) (*Link, error) {
	if _, err := linkPage(page); err != nil {
		return nil, err
	}
	secret := [keySize]byte(random(keySize))
	recipient, err := linkRecipient(secret)
	if err != nil {
		return nil, err
	}
	token, err := id.NewToken(recipient.Public(), s)
	if err != nil {
		return nil, err
	}
	return &Link{page, token, secret, access}, nil
}

// linkRecipient returns the identity of the holder of a link. Only its X25519 key is used.
func linkRecipient(secret [keySize]byte) (*Identity, error) {
	return newIdentity(secrets{classic: secret})
}

func linkPage(page string) (*url.URL, error) {
	u, err := url.Parse(page)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil {
		return nil, fmt.Errorf("%w: link needs the URL of a page", ErrToken)
	}
	return u, nil
}

// URL returns the link as text. Treat the text as a secret.
func (l *Link) URL() string {
	text := l.Page + "#v=" + linkVersion + "&k=" + base64.RawURLEncoding.EncodeToString(l.Secret[:]) + "&t=" + l.Token.String()
	if l.Access != "" {
		text += "&a=" + url.QueryEscape(l.Access)
	}
	return text
}

// String describes the link without its secret.
func (l *Link) String() string { return "link " + l.Token.ShareID + " at " + l.Page }

// GoString describes the link without its secret.
func (l *Link) GoString() string { return "seal.Link{" + l.Token.ShareID + "}" }

// ParseLink parses a text that [Link.URL] returned. The error is [ErrToken], [ErrVersion] or
// [ErrTooLarge].
func ParseLink(s string) (*Link, error) {
	if len(s) > 2*maxToken {
		return nil, fmt.Errorf("%w: link of %d bytes", ErrTooLarge, len(s))
	}
	page, fragment, ok := strings.Cut(strings.TrimSpace(s), "#")
	if !ok {
		return nil, fmt.Errorf("%w: link has no fragment", ErrToken)
	}
	if _, err := linkPage(page); err != nil {
		return nil, err
	}
	values, err := url.ParseQuery(fragment)
	if err != nil {
		return nil, fmt.Errorf("%w: fragment", ErrToken) // the error has no cause, because the cause quotes the secret
	}
	if v := values.Get("v"); v != linkVersion {
		return nil, fmt.Errorf("%w: link %.16q", ErrVersion, v)
	}
	secret, err := base64.RawURLEncoding.Strict().DecodeString(values.Get("k"))
	if err != nil || len(secret) != keySize {
		return nil, fmt.Errorf("%w: link has no key", ErrToken)
	}
	token, err := ParseToken(values.Get("t"))
	if err != nil {
		return nil, err
	}
	return &Link{page, token, [keySize]byte(secret), values.Get("a")}, nil
}

// Open verifies the token of the link and opens its key, as [Token.Open] does. Without known
// owners, Open accepts the owner that the token names: the holder trusts the sender of the link.
func (l *Link) Open(now time.Time, known ...PublicIdentity) (*Grant, error) {
	recipient, err := linkRecipient(l.Secret)
	if err != nil {
		return nil, fmt.Errorf("%w: link key: %w", ErrToken, err)
	}
	if len(known) == 0 {
		known = []PublicIdentity{l.Token.Owner}
	}
	return l.Token.Open(recipient, now, known...)
}
