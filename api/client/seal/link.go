package seal

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"
)

const (
	linkVersion  = "1" // version of a link to encrypted content
	plainVersion = "2" // version of a PlainLink
)

// maxEndpoints is the maximum number of endpoints in a link.
const maxEndpoints = 64

// Link is a share in the form of a URL. All secrets are in its fragment, which browsers do not
// send to servers.
type Link struct {
	// Page is the URL of the web page that opens the link, without a fragment. If it is empty, the
	// text of the link is only the fragment, which programs can open.
	Page  string
	Token *Token
	// Secret is the X25519 private key of a recipient that was generated for this link, so that
	// everybody who has the link can open it. It is zero if the token is for a person with an identity.
	Secret [32]byte
	// Access is the credential with which the server lets the holder of the link read the ciphertext.
	// It is empty if the holder has another credential.
	Access string
	// Endpoints are URLs of servers that store the ciphertext.
	Endpoints []string
}

// NewLink generates a recipient and a token for it, and returns both as a link. page and access
// become Page and Access of the link.
func (id *Identity) NewLink(page, access string, s Share) (*Link, error) {
	if err := checkPage(page); err != nil {
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
	return &Link{Page: page, Token: token, Secret: secret, Access: access}, nil
}

// linkRecipient returns the identity of the recipient of a link from its Secret. Only its X25519
// key is used.
func linkRecipient(secret [keySize]byte) (*Identity, error) {
	return newIdentity(secrets{classic: secret})
}

// checkPage returns [ErrToken] unless page is empty or a valid URL of a web page.
func checkPage(page string) error {
	u, err := url.Parse(page)
	if page != "" && (err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil || u.Fragment != "") {
		return fmt.Errorf("%w: link needs the URL of a page", ErrToken)
	}
	return nil
}

// Personal reports whether the token of the link is for a person with an identity. Only that
// identity can open it.
func (l *Link) Personal() bool { return l.Secret == [keySize]byte{} }

// URL returns the link as text. The text is a secret.
func (l *Link) URL() string {
	text := "v=" + linkVersion
	if !l.Personal() {
		text += "&k=" + base64.RawURLEncoding.EncodeToString(l.Secret[:])
	}
	text += "&t=" + l.Token.String()
	if l.Access != "" {
		text += "&a=" + url.QueryEscape(l.Access)
	}
	for _, e := range l.Endpoints {
		text += "&e=" + url.QueryEscape(e)
	}
	if l.Page == "" {
		return text
	}
	return l.Page + "#" + text
}

// String describes the link without its secret.
func (l *Link) String() string { return "link " + l.Token.ShareID + " at " + l.Page }

// GoString describes the link without its secret.
func (l *Link) GoString() string { return "seal.Link{" + l.Token.ShareID + "}" }

// ParseLink parses the result of [Link.URL]. The error is [ErrToken], [ErrVersion],
// [ErrPlainLink] or [ErrTooLarge].
func ParseLink(s string) (*Link, error) {
	page, values, err := linkValues(s)
	if err != nil {
		return nil, err
	}
	if v := values.Get("v"); v == plainVersion {
		return nil, ErrPlainLink
	} else if v != linkVersion {
		return nil, fmt.Errorf("%w: link %.16q", ErrVersion, v)
	}
	link := &Link{Page: page, Access: values.Get("a"), Endpoints: values["e"]}
	if err := checkEndpoints(link.Endpoints); err != nil {
		return nil, err
	}
	if values.Has("k") {
		secret, err := base64.RawURLEncoding.Strict().DecodeString(values.Get("k"))
		if err != nil || len(secret) != keySize {
			return nil, fmt.Errorf("%w: the key of the link is damaged", ErrToken)
		}
		if link.Secret = [keySize]byte(secret); link.Personal() {
			return nil, fmt.Errorf("%w: the key of the link is zero", ErrToken)
		}
	}
	if link.Token, err = ParseToken(values.Get("t")); err != nil {
		return nil, err
	}
	return link, nil
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

// Open verifies the token of the link and opens its key, as [Token.Open] does. Without known
// owners, it accepts the owner that the token names, because the holder trusts the sender of the
// link. The error is [ErrTokenRecipient] for a [Link.Personal] link, whose Token the recipient
// opens instead.
func (l *Link) Open(now time.Time, known ...PublicIdentity) (*Grant, error) {
	if l.Personal() {
		return nil, fmt.Errorf("%w, who has an identity", ErrTokenRecipient)
	}
	recipient, err := linkRecipient(l.Secret)
	if err != nil {
		return nil, fmt.Errorf("%w: link key: %w", ErrToken, err)
	}
	if len(known) == 0 {
		known = []PublicIdentity{l.Token.Owner}
	}
	return l.Token.Open(recipient, now, known...)
}
