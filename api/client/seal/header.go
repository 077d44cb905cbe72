package seal

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Names of the headers that mark an encrypted object. Uploads have the first pair; readers accept
// both pairs.
const (
	HeaderEncrypted        = "x-amz-meta-encrypted"
	HeaderEncryption       = "x-amz-meta-encryption"
	legacyHeaderEncrypted  = "x-amz-meta-x-fula-encrypted"
	legacyHeaderEncryption = "x-amz-meta-x-fula-encryption"
)

// MaxHeader is the maximum size of a header in bytes. Every server can store this much user
// metadata, besides the names of the two headers and the value of [HeaderEncrypted].
const MaxHeader = 16<<10 - 64

// Versions and algorithms in the header.
const (
	versionPlain     = 2   // content in one piece, encrypted without additional data
	versionBound     = 4   // content in one piece or in chunks, with the storage key as additional data
	versionHybrid    = 100 // is added to the version if the data key is wrapped for a hybrid key
	versionMetadata  = 1
	algorithm        = "AES-256-GCM"
	cipherOfWrapping = "chacha20poly1305"
)

// Header is the encryption header of an object, the value of [HeaderEncryption]. It is JSON, and
// its secrets are encrypted.
type Header string

// FindHeader returns the encryption header of an object from its metadata headers. get returns
// the value of a header and ignores the case of the name, as http.Header.Get does. The error is
// [ErrNotEncrypted], or [ErrHeader] if the object is marked as encrypted but has no encryption
// header.
func FindHeader(get func(name string) string) (Header, error) {
	for _, pair := range [][2]string{{HeaderEncrypted, HeaderEncryption}, {legacyHeaderEncrypted, legacyHeaderEncryption}} {
		if get(pair[0]) != "true" {
			continue
		}
		if value := get(pair[1]); value != "" {
			return Header(value), nil
		}
		return "", fmt.Errorf("%w: %s is missing", ErrHeader, pair[1])
	}
	return "", ErrNotEncrypted
}

// Map returns the two headers that an upload must send, by their full names.
func (h Header) Map() map[string]string {
	return map[string]string{HeaderEncrypted: "true", HeaderEncryption: string(h)}
}

// header is a parsed Header.
type header struct {
	Version  int
	Nonce    []byte
	Wrapped  wrappedKey
	Metadata *sealedMetadata // nil without metadata privacy
	Folder   *folderKey      // data key wrapped for the folder; nil if only the owner can open the object
	rest     fields          // all members that were read, from which a rewrap copies unknown ones
}

type sealedMetadata struct{ Nonce, Ciphertext []byte }

type folderKey struct{ Nonce, Ciphertext []byte }

func (h *header) hybrid() bool { return h.Version >= versionHybrid }

// bound reports whether the storage key is authenticated together with the content.
func (h *header) bound() bool { return h.Version%versionHybrid == versionBound }

// encode returns the header as JSON, with its members in the order of the specification.
func (h *header) encode() (Header, error) {
	type nonceAndCiphertext struct {
		Version    int    `json:"version,omitempty"`
		Ciphertext string `json:"ciphertext"`
		Nonce      string `json:"nonce"`
	}
	out := struct {
		Version   int    `json:"version"`
		Algorithm string `json:"algorithm"`
		Nonce     string `json:"nonce"`
		Wrapped   any    `json:"wrapped_key"`
		Privacy   bool   `json:"metadata_privacy"`
		Private   string `json:"private_metadata,omitempty"`
		Folder    any    `json:"folder_key,omitempty"`
	}{Version: h.Version, Algorithm: algorithm, Nonce: encode64(h.Nonce), Wrapped: h.Wrapped.json()}
	if h.Metadata != nil {
		inner, err := json.Marshal(nonceAndCiphertext{versionMetadata, encode64(h.Metadata.Ciphertext), encode64(h.Metadata.Nonce)})
		if err != nil {
			return "", err
		}
		out.Privacy, out.Private = true, string(inner)
	}
	if h.Folder != nil {
		out.Folder = nonceAndCiphertext{0, encode64(h.Folder.Ciphertext), encode64(h.Folder.Nonce)}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return "", err
	}
	if len(text) > MaxHeader {
		return "", fmt.Errorf("%w: encryption header of %d bytes, at most %d", ErrTooLarge, len(text), MaxHeader)
	}
	return Header(text), nil
}

// wrappedJSON is the JSON form of a wrapped key. The nonce of a wrapped key is always zero, because
// HPKE has no nonce of its own; see docs/encryption.md.
type wrappedJSON struct {
	Encapsulated string `json:"encapsulated_key"`
	Ciphertext   string `json:"ciphertext"`
	Nonce        string `json:"nonce"`
}

func (w wrappedKey) json() wrappedJSON {
	return wrappedJSON{encode64(w.Encapsulated), encode64(w.Ciphertext), encode64(make([]byte, nonceSize))}
}

// parseHeader parses a header. The error is [ErrHeader], [ErrVersion], [ErrAlgorithm] or
// [ErrTooLarge].
func parseHeader(text Header) (*header, error) {
	if len(text) > MaxHeader {
		return nil, fmt.Errorf("%w: encryption header of %d bytes, at most %d", ErrTooLarge, len(text), MaxHeader)
	}
	f, err := parseFields([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHeader, err)
	}
	h := &header{rest: f}
	version, err := f.integer("version")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHeader, err)
	}
	switch version {
	case versionPlain, versionBound, versionHybrid + versionPlain, versionHybrid + versionBound:
		h.Version = int(version)
	default:
		return nil, fmt.Errorf("%w: %d", ErrVersion, version)
	}
	if name, err := f.text("algorithm"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHeader, err)
	} else if name != algorithm {
		return nil, fmt.Errorf("%w: %.64q", ErrAlgorithm, name)
	}
	if err := h.parseParts(f); err != nil {
		if errors.Is(err, ErrAlgorithm) || errors.Is(err, ErrVersion) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", ErrHeader, err)
	}
	return h, nil
}

func (h *header) parseParts(f fields) (err error) {
	if h.Nonce, err = f.bytes("nonce", nonceSize); err != nil {
		return err
	}
	wrapped, err := f.object("wrapped_key")
	if err != nil {
		return err
	}
	if h.Wrapped, err = parseWrapped(wrapped, h.hybrid()); err != nil {
		return fmt.Errorf("wrapped_key: %w", err)
	}
	if f.has("folder_key") {
		folder, err := f.object("folder_key")
		if err != nil {
			return err
		}
		h.Folder = &folderKey{}
		if h.Folder.Nonce, err = folder.bytes("nonce", nonceSize); err != nil {
			return fmt.Errorf("folder_key: %w", err)
		}
		if h.Folder.Ciphertext, err = folder.bytes("ciphertext", keySize+tagSize); err != nil {
			return fmt.Errorf("folder_key: %w", err)
		}
	}
	private, err := f.boolean("metadata_privacy")
	if err != nil || !private {
		return err
	}
	text, err := f.text("private_metadata")
	if err != nil {
		return err
	}
	h.Metadata, err = parseSealedMetadata([]byte(text))
	return err
}

func parseSealedMetadata(text []byte) (*sealedMetadata, error) {
	f, err := parseFields(text)
	if err != nil {
		return nil, fmt.Errorf("private_metadata: %w", err)
	}
	if version, err := f.integer("version"); err != nil {
		return nil, fmt.Errorf("private_metadata: %w", err)
	} else if version != versionMetadata {
		return nil, fmt.Errorf("%w: private metadata %d", ErrVersion, version)
	}
	m := &sealedMetadata{}
	if m.Nonce, err = f.bytes("nonce", nonceSize); err != nil {
		return nil, fmt.Errorf("private_metadata: %w", err)
	}
	if m.Ciphertext, err = f.bytes("ciphertext", 0); err != nil {
		return nil, fmt.Errorf("private_metadata: %w", err)
	}
	return m, nil
}

// Lengths of an encapsulated key in bytes: with X25519, and with ML-KEM-768 and X25519.
const (
	encapsulatedClassic = 32
	encapsulatedHybrid  = 1120
)

// parseWrapped parses a wrapped key in the flat form, which this package writes, or in the nested
// form of other implementations. It ignores the nonce.
func parseWrapped(f fields, hybrid bool) (w wrappedKey, err error) {
	size := encapsulatedClassic
	if hybrid {
		size = encapsulatedHybrid
	}
	if raw := f["encapsulated_key"]; len(raw) > 0 && raw[0] == '{' {
		if version, err := f.integer("version"); err != nil {
			return w, err
		} else if version != 2 {
			return w, fmt.Errorf("%w: wrapped key %d", ErrVersion, version)
		}
		name, err := f.text("cipher")
		if err != nil {
			return w, err
		}
		if strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name)) != cipherOfWrapping {
			return w, fmt.Errorf("%w: %.64q", ErrAlgorithm, name)
		}
		inner, err := f.object("encapsulated_key")
		if err != nil {
			return w, err
		}
		w.Encapsulated, err = inner.bytes("ephemeral_public", size)
		if err != nil {
			return w, err
		}
	} else if w.Encapsulated, err = f.bytes("encapsulated_key", size); err != nil {
		return w, err
	}
	w.Ciphertext, err = f.bytes("ciphertext", keySize+tagSize)
	return w, err
}
