package seal

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gowebpki/jcs"
)

// Limits of tokens.
const (
	maxToken = 16 << 10         // bytes of the JSON of a token
	skew     = 60 * time.Second // tolerated difference between clocks
	shareID  = 16               // bytes of a share id
)

// keyKindFolder is the value of the member key_kind if the key in the token is a folder key.
const keyKindFolder = "folder"

// Permissions are the actions that a token grants.
type Permissions struct{ Read, Write, Delete bool }

// ReadOnly grants reading.
func ReadOnly() Permissions { return Permissions{Read: true} }

// ReadWrite grants reading and uploading.
func ReadWrite() Permissions { return Permissions{Read: true, Write: true} }

// FullAccess grants reading, uploading and deleting.
func FullAccess() Permissions { return Permissions{Read: true, Write: true, Delete: true} }

// Token shares a folder or a single object with one recipient. The owner signs it, and only the
// recipient can open its key. A parsed token is not verified until [Token.Open] or [Token.Verify]
// is called.
type Token struct {
	ShareID     string // 32 hex digits
	PathScope   string // path of the shared folder or object
	Bucket      string // empty in tokens of other implementations
	StorageKey  string // storage key of the object; empty if the token shares a folder
	Created     time.Time
	Expires     time.Time // zero if it does not expire
	Permissions Permissions
	Owner       PublicIdentity

	text    string // canonical JSON
	wrapped wrappedKey
	kind    string // member key_kind
	signed  []byte // canonical JSON without the signature: the bytes that the owner signed
	bound   []byte // canonical JSON without signature and encrypted_dek: additional data of the wrapped key
	sign    []byte // signature
}

// Share describes a token for [Identity.NewToken].
type Share struct {
	Bucket      string
	PathScope   string // path of the folder, or of the object if Object is set
	Permissions Permissions
	Created     time.Time // zero means now
	Expires     time.Time // zero means never
	Object      *DataKey  // data key of the one object to share; nil shares a folder
	StorageKey  string    // storage key of that object, which the recipient cannot compute
}

// NewToken returns a signed token for the recipient to. The error is [ErrPath] or [ErrPathEscape]
// if the scope is not a valid path, and [ErrToken] if the expiry is not after the creation.
func (id *Identity) NewToken(to PublicIdentity, s Share) (*Token, error) {
	scope, err := CleanPath(s.PathScope)
	if err != nil {
		return nil, err
	}
	s.Created = orElse(s.Created, time.Now())
	if !s.Expires.IsZero() && !s.Expires.After(s.Created) {
		return nil, fmt.Errorf("%w: it expires before it begins", ErrToken)
	}
	own := id.Public()
	members := map[string]any{
		"share_id": hex.EncodeToString(random(shareID)), "path_scope": scope, "created_at": s.Created.Unix(),
		"permissions":      map[string]bool{"read": s.Permissions.Read, "write": s.Permissions.Write, "delete": s.Permissions.Delete},
		"owner_public_key": encode64(own.Encryption[:]), "signer_public_key": encode64(own.Signing[:]),
	}
	if !s.Expires.IsZero() {
		members["expires_at"] = s.Expires.Unix()
	}
	if s.Bucket != "" {
		members["bucket"] = s.Bucket
	}
	var key [keySize]byte
	if s.Object != nil {
		key = *s.Object
		if s.StorageKey != "" {
			members["storage_key"] = s.StorageKey
		}
	} else {
		root, err := id.FolderKey(s.Bucket)
		if err != nil {
			return nil, err
		}
		folder, err := root.Folder(scope)
		if err != nil {
			return nil, err
		}
		key, members["key_kind"] = folder.key, keyKindFolder
	}
	return id.sign(to, members, key)
}

// sign adds to members the key, wrapped for to, and the signature. It parses the result as a
// recipient does, and returns the token.
func (id *Identity) sign(to PublicIdentity, members map[string]any, key [keySize]byte) (*Token, error) {
	bound, err := canonical(members)
	if err != nil {
		return nil, err
	}
	public, err := to.PublicKey()
	if err != nil {
		return nil, err
	}
	wrapped, err := wrapKey(public, key, bound)
	if err != nil {
		return nil, err
	}
	members["encrypted_dek"] = wrapped.json()
	signed, err := canonical(members)
	if err != nil {
		return nil, err
	}
	members["signature"] = encode64(ed25519.Sign(id.signing, signed))
	text, err := canonical(members)
	if err != nil {
		return nil, err
	}
	return ParseToken(string(text))
}

// canonical returns members as canonical JSON (RFC 8785).
func canonical(members any) ([]byte, error) {
	text, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	text, err = jcs.Transform(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	return text, nil
}

// JSON returns the token as canonical JSON.
func (t *Token) JSON() string { return t.text }

// String returns the canonical JSON of the token in base64url.
func (t *Token) String() string { return base64.RawURLEncoding.EncodeToString([]byte(t.text)) }

// ParseToken parses a token in JSON or in base64url, without verifying it. The error is
// [ErrToken] or [ErrTooLarge].
func ParseToken(s string) (*Token, error) {
	if s = strings.TrimSpace(s); len(s) > base64.RawURLEncoding.EncodedLen(maxToken) {
		return nil, fmt.Errorf("%w: share token of %d bytes", ErrTooLarge, len(s))
	}
	text := []byte(s)
	if !strings.HasPrefix(s, "{") {
		var err error
		if text, err = base64.RawURLEncoding.Strict().DecodeString(s); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrToken, err)
		}
	}
	if len(text) > maxToken {
		return nil, fmt.Errorf("%w: share token of %d bytes", ErrTooLarge, len(text))
	}
	if _, err := parseFields(text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	// All members are read from the canonical form, so that the verified values are the values in
	// use.
	text, err := jcs.Transform(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	f, err := parseFields(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	t := &Token{text: string(text)}
	if err := t.parse(f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	return t, nil
}

func (t *Token) parse(f fields) (err error) {
	if t.ShareID, err = f.text("share_id"); err != nil {
		return err
	}
	if id, err := hex.DecodeString(t.ShareID); err != nil || len(id) != shareID {
		return fmt.Errorf("share_id: %w", errField)
	}
	if t.PathScope, err = f.text("path_scope"); err != nil {
		return err
	}
	created, err := f.integer("created_at")
	if err != nil {
		return err
	}
	t.Created = time.Unix(created, 0).UTC()
	if f.has("expires_at") && string(f["expires_at"]) != "null" {
		expires, err := f.integer("expires_at")
		if err != nil {
			return err
		}
		t.Expires = time.Unix(expires, 0).UTC()
	}
	if f.has("bucket") {
		if t.Bucket, err = f.text("bucket"); err != nil {
			return err
		}
	}
	if f.has("storage_key") {
		if t.StorageKey, err = f.text("storage_key"); err != nil {
			return err
		}
	}
	if f.has("key_kind") {
		if t.kind, err = f.text("key_kind"); err != nil {
			return err
		}
		if t.kind != keyKindFolder {
			return fmt.Errorf("key_kind: %.32q is not known", t.kind)
		}
	}
	if err := t.parseKeys(f); err != nil {
		return err
	}
	delete(f, "signature")
	if t.signed, err = canonical(f); err != nil {
		return err
	}
	delete(f, "encrypted_dek")
	t.bound, err = canonical(f)
	return err
}

func (t *Token) parseKeys(f fields) error {
	grants, err := f.object("permissions")
	if err != nil {
		return err
	}
	for name, to := range map[string]*bool{"read": &t.Permissions.Read, "write": &t.Permissions.Write, "delete": &t.Permissions.Delete} {
		if !grants.has(name) {
			name = "can_" + name // name in other implementations
		}
		if *to, err = grants.boolean(name); err != nil {
			return fmt.Errorf("permissions: %w", err)
		}
	}
	wrapped, err := f.object("encrypted_dek")
	if err != nil {
		return err
	}
	if t.wrapped, err = parseWrapped(wrapped, false); err != nil {
		return fmt.Errorf("encrypted_dek: %w", err)
	}
	owner, err := f.bytes("owner_public_key", keySize)
	if err != nil {
		return err
	}
	signer, err := f.bytes("signer_public_key", ed25519.PublicKeySize)
	if err != nil {
		return err
	}
	t.Owner = PublicIdentity{[32]byte(owner), [32]byte(signer)}
	t.sign, err = f.bytes("signature", ed25519.SignatureSize)
	return err
}

// Verify checks the token at the time now, in this order: the signature ([ErrTokenSignature]), that
// the owner is one of known ([ErrTokenOwner]), that the token was not created in the future
// ([ErrTokenNotYet]), and that the token has not expired ([ErrTokenExpired]). Verify allows a
// difference of one minute between clocks.
func (t *Token) Verify(now time.Time, known ...PublicIdentity) error {
	if !ed25519.Verify(t.Owner.Signing[:], t.signed, t.sign) {
		return ErrTokenSignature
	}
	if !slices.Contains(known, t.Owner) {
		return fmt.Errorf("%w: %s", ErrTokenOwner, t.Owner)
	}
	if t.Created.After(now.Add(skew)) {
		return fmt.Errorf("%w: before %s", ErrTokenNotYet, t.Created.Format(time.RFC3339))
	}
	if !t.Expires.IsZero() && !now.Before(t.Expires.Add(skew)) {
		return fmt.Errorf("%w: at %s", ErrTokenExpired, t.Expires.Format(time.RFC3339))
	}
	return nil
}

// Open verifies the token and opens its key with the identity of the recipient. The error is one
// of those of [Token.Verify], [ErrTokenRecipient], or [ErrPathEscape] if the scope of the token
// is not a valid path.
func (t *Token) Open(recipient *Identity, now time.Time, known ...PublicIdentity) (*Grant, error) {
	if err := t.Verify(now, known...); err != nil {
		return nil, err
	}
	key, err := unwrapKey(recipient.classic, t.wrapped, t.bound)
	if err != nil {
		return nil, ErrTokenRecipient
	}
	scope, err := scopeOf(t.PathScope)
	if err != nil {
		return nil, err
	}
	return &Grant{token: t, key: key, scope: scope}, nil
}
