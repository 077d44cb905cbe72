package seal

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Metadata is the private metadata of an object, which the server cannot read.
type Metadata struct {
	Path        string // member original_key
	ContentType string
	Created     time.Time // with a resolution of one second
	Modified    time.Time // with a resolution of one second
	User        map[string]string
	Size        int64    // size of the plaintext in bytes
	Hash        [32]byte // BLAKE3 of the plaintext
	// Unknown has the members that this package does not know, by name, as JSON values. Writing the
	// metadata again preserves them.
	Unknown map[string]json.RawMessage

	chunks chunking // zero if the content is in one piece
}

// chunking is the chunk size in bytes and the number of chunks.
type chunking struct{ size, count int64 }

// known are the JSON members that this package reads and writes.
var known = []string{
	"original_key", "actual_size", "content_type", "created_at", "modified_at", "user_metadata", "content_hash", "chunk_size", "chunk_count",
}

// encode returns the private metadata as JSON, with members ordered by name.
func (m Metadata) encode() ([]byte, error) {
	out := map[string]any{}
	for name, value := range m.Unknown {
		out[name] = value
	}
	user := m.User
	if user == nil {
		user = map[string]string{}
	}
	out["original_key"], out["content_type"], out["user_metadata"] = m.Path, m.ContentType, user
	out["actual_size"], out["created_at"], out["modified_at"] = m.Size, m.Created.Unix(), m.Modified.Unix()
	out["content_hash"] = hex.EncodeToString(m.Hash[:])
	if m.chunks.size > 0 {
		out["chunk_size"], out["chunk_count"] = m.chunks.size, m.chunks.count
	}
	return json.Marshal(out)
}

// seal encrypts the metadata under the data key of the object.
func (m Metadata) seal(key DataKey) (*sealedMetadata, error) {
	plain, err := m.encode()
	if err != nil {
		return nil, fmt.Errorf("private metadata: %w", err)
	}
	nonce := random(nonceSize)
	return &sealedMetadata{Nonce: nonce, Ciphertext: key.aead().Seal(nil, nonce, plain, nil)}, nil
}

// open decrypts and checks private metadata. The error is [ErrMetadata].
func (s *sealedMetadata) open(key DataKey) (Metadata, error) {
	plain, err := key.aead().Open(nil, s.Nonce, s.Ciphertext, nil)
	if err != nil {
		return Metadata{}, ErrMetadata
	}
	m, err := parseMetadata(plain)
	if err != nil {
		return Metadata{}, fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	return m, nil
}

func parseMetadata(plain []byte) (m Metadata, err error) {
	f, err := parseFields(plain)
	if err != nil {
		return m, err
	}
	if m.Path, err = f.text("original_key"); err != nil {
		return m, err
	}
	if m.ContentType, err = f.text("content_type"); err != nil {
		return m, err
	}
	if m.Size, err = f.integer("actual_size"); err != nil {
		return m, err
	}
	created, err := f.integer("created_at")
	if err != nil {
		return m, err
	}
	modified, err := f.integer("modified_at")
	if err != nil {
		return m, err
	}
	m.Created, m.Modified = time.Unix(created, 0).UTC(), time.Unix(modified, 0).UTC()
	sum, err := f.text("content_hash")
	if err != nil {
		return m, err
	}
	hash, err := hex.DecodeString(sum)
	if err != nil || len(hash) != len(m.Hash) {
		return m, fmt.Errorf("content_hash: %w", errField)
	}
	m.Hash = [32]byte(hash)
	if err := json.Unmarshal(f["user_metadata"], &m.User); err != nil {
		return m, fmt.Errorf("user_metadata: %w", err)
	}
	if f.has("chunk_size") || f.has("chunk_count") {
		if m.chunks.size, err = f.integer("chunk_size"); err != nil {
			return m, err
		}
		if m.chunks.count, err = f.integer("chunk_count"); err != nil {
			return m, err
		}
		if err := m.chunks.check(m.Size); err != nil {
			return m, err
		}
	}
	if m.Size < 0 || m.Size > maxSize {
		return m, fmt.Errorf("actual_size: %w", errField)
	}
	for _, name := range known {
		delete(f, name)
	}
	if len(f) > 0 {
		m.Unknown = f
	}
	return m, nil
}
