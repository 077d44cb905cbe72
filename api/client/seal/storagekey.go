package seal

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"lukechampine.com/blake3"
)

const contextPathKey = "fula-path-key-v1"

// Strategy selects how the storage key of an object is derived from its path.
type Strategy int

// Strategies of storage keys.
const (
	// DeterministicHash derives the storage key from the path by a keyed hash: e/<32 hex digits>.
	DeterministicHash Strategy = iota
	// RandomUUID generates a new storage key for each upload: e/<UUID version 4>. An [Index] must store
	// the storage key of a path.
	RandomUUID
	// PreserveStructure hides the file name, but not the folders: /<folders>/e_<24 hex digits>.
	PreserveStructure
)

// String returns the name of the strategy in the specification of the format.
func (s Strategy) String() string {
	switch s {
	case DeterministicHash:
		return "DeterministicHash"
	case RandomUUID:
		return "RandomUuid"
	case PreserveStructure:
		return "PreserveStructure"
	}
	return fmt.Sprintf("Strategy(%d)", int(s))
}

// StorageKey returns the key under which a server stores the object at path. It does not depend
// on the bucket. The error is [ErrPath] if path is not absolute and clean.
func (id *Identity) StorageKey(s Strategy, path string) (string, error) {
	if err := checkPath(path); err != nil {
		return "", err
	}
	return storageKey(id.pathSecret, s, path)
}

func storageKey(secret [keySize]byte, s Strategy, path string) (string, error) {
	pathKey := derive(contextPathKey, secret[:], []byte(path))
	switch s {
	case DeterministicHash:
		return "e/" + hash(pathKey, path, 16), nil
	case RandomUUID:
		id, err := uuid.NewRandom()
		return "e/" + id.String(), err
	case PreserveStructure:
		cut := strings.LastIndexByte(path, '/') + 1
		return path[:cut] + "e_" + hash(pathKey, path[cut:], 12), nil
	}
	return "", fmt.Errorf("seal: unknown %v", s)
}

// hash returns the first n bytes of BLAKE3(key || text) in hex.
func hash(key [keySize]byte, text string, n int) string {
	sum := blake3.Sum256(append(key[:], text...))
	return hex.EncodeToString(sum[:n])
}
