package seal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Format of an index object: indexMagic, a nonce, and a node in JSON, encrypted with AES-256-GCM.
const (
	indexMagic   = "hfindex1"
	indexVersion = 1
	aadIndex     = "holdfast:index:v1:" // + bucket + ":" + id + ":" + folder
	maxNodeFile  = 2 * maxNodeBytes
)

// node is one object of an index. A leaf has entries, ordered by name. An inner node has a split
// id instead, from which the ids of its 16 children follow.
type node struct {
	entries []Entry
	split   string
}

// entryJSON is the JSON form of an entry.
type entryJSON struct {
	Name     string `json:"name"`
	Key      string `json:"key,omitempty"`
	Size     int64  `json:"size"`
	Modified *int64 `json:"modified_at,omitempty"`
	Hash     string `json:"content_hash,omitempty"`
}

type nodeJSON struct {
	Version int         `json:"version"`
	Split   string      `json:"split,omitempty"`
	Entries []entryJSON `json:"entries,omitempty"`
}

// apply sets and removes entries of a leaf. If several changes have the same name, the last one
// wins.
func (n *node) apply(changes []change) {
	byName := make(map[string]Entry, len(n.entries)+len(changes))
	for _, e := range n.entries {
		byName[e.Name] = e
	}
	for _, c := range changes {
		if c.entry == nil {
			delete(byName, c.name)
		} else {
			byName[c.name] = *c.entry
		}
	}
	n.entries = slices.SortedFunc(maps.Values(byName), func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
}

// full reports whether a leaf has too many entries or bytes, so that it must be split.
func (n *node) full() bool {
	size := 0
	for _, e := range n.entries {
		size += jsonSize(e.Name) + jsonSize(e.StorageKey) + 256 // 256 for the names of members, numbers and the hash
	}
	return len(n.entries) > maxNode || (size > maxNodeBytes && len(n.entries) > 1)
}

// jsonSize returns the length of s as a string of JSON, where a character may take six bytes.
func jsonSize(s string) int {
	text, err := json.Marshal(s)
	if err != nil {
		panic("seal: " + err.Error()) // every string has a JSON form
	}
	return len(text)
}

func (n *node) encode() ([]byte, error) {
	out := nodeJSON{Version: indexVersion, Split: n.split}
	for _, e := range n.entries {
		j := entryJSON{Name: e.Name, Key: e.StorageKey, Size: e.Size}
		if !e.Modified.IsZero() {
			modified := e.Modified.Unix()
			j.Modified = &modified
		}
		if e.Hash != [32]byte{} {
			j.Hash = hex.EncodeToString(e.Hash[:])
		}
		out.Entries = append(out.Entries, j)
	}
	return json.Marshal(out)
}

func decodeNode(plain []byte) (node, error) {
	var in nodeJSON
	if err := json.Unmarshal(plain, &in); err != nil {
		return node{}, fmt.Errorf("%w: %w", ErrIndex, err)
	}
	if in.Version != indexVersion {
		return node{}, fmt.Errorf("%w: index %d", ErrVersion, in.Version)
	}
	n := node{split: in.Split, entries: make([]Entry, 0, len(in.Entries))}
	if id, err := hex.DecodeString(in.Split); err != nil || (len(id) != 0 && len(id) != 16) || (in.Split != "" && len(in.Entries) > 0) {
		return node{}, fmt.Errorf("%w: split", ErrIndex)
	}
	for _, j := range in.Entries {
		if !isSegment(strings.TrimSuffix(j.Name, "/")) { // a name such as ../ would lead a reader out of the folder
			return node{}, fmt.Errorf("%w: name of an entry", ErrIndex)
		}
		e := Entry{Name: j.Name, StorageKey: j.Key, Size: j.Size}
		if j.Modified != nil {
			e.Modified = time.Unix(*j.Modified, 0).UTC()
		}
		if j.Hash != "" {
			b, err := hex.DecodeString(j.Hash)
			if err != nil || len(b) != len(e.Hash) {
				return node{}, fmt.Errorf("%w: hash of an entry", ErrIndex)
			}
			e.Hash = [32]byte(b)
		}
		if len(n.entries) > 0 && n.entries[len(n.entries)-1].Name >= e.Name {
			return node{}, fmt.Errorf("%w: order of entries", ErrIndex)
		}
		n.entries = append(n.entries, e)
	}
	return n, nil
}

func (x *Index) additional(id string) []byte {
	return []byte(aadIndex + x.bucket + ":" + id + ":" + x.folder)
}

// read returns the node id and the ETag of its object. A missing root means an empty index: read
// returns an empty node and "". For any other missing node it returns ErrIndexMissing.
func (x *Index) read(ctx context.Context, id string) (node, string, error) {
	data, etag, err := x.store.Get(ctx, x.storageKey(id))
	if errors.Is(err, ErrNotFound) {
		if id == nodeRoot {
			return node{}, "", nil
		}
		return node{}, "", fmt.Errorf("%w: %s", ErrIndexMissing, id)
	}
	if err != nil {
		return node{}, "", fmt.Errorf("read index: %w", err)
	}
	n, err := x.open(id, data)
	return n, etag, err
}

// open decrypts and parses the object data of the node id.
func (x *Index) open(id string, data []byte) (node, error) {
	if len(data) > maxNodeFile {
		return node{}, fmt.Errorf("%w: part of the index of %d bytes", ErrTooLarge, len(data))
	}
	rest, ok := bytes.CutPrefix(data, []byte(indexMagic))
	if !ok || len(rest) < nonceSize+tagSize {
		return node{}, fmt.Errorf("%w: %s", ErrIndex, id)
	}
	plain, err := x.key.aead().Open(nil, rest[:nonceSize], rest[nonceSize:], x.additional(id))
	if err != nil {
		return node{}, fmt.Errorf("%w: %s", ErrIndex, id)
	}
	return decodeNode(plain)
}

func (x *Index) write(ctx context.Context, id string, n node, etag string) error {
	plain, err := n.encode()
	if err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	data := append([]byte(indexMagic), random(nonceSize)...)
	data = x.key.aead().Seal(data, data[len(indexMagic):], plain, x.additional(id))
	if err := x.store.PutIf(ctx, x.storageKey(id), data, etag); err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	return nil
}
