package state

import (
	"errors"
	"testing"
)

// An object or part with a BLAKE3 hash of a wrong length is invalid. So is a part with a tree of a wrong length,
// of too many values or behind MaxContentBytes.
func TestAHashOfAWrongLengthIsInvalid(t *testing.T) {
	object := Object{ID: "id", Key: "k", Created: 1, ETag: "e"}
	part := Part{Number: 1, ID: "id", Created: 1, ETag: "e"}
	for _, tc := range []struct {
		name                  string
		sum, trees            int
		at                    uint64
		objectError, partFail error
	}{
		{"not known", 0, 0, 0, nil, nil},
		{"a hash", 32, 0, 0, nil, nil},
		{"a tree", 0, 64, MaxContentBytes, nil, nil},
		{"the most", 32, MaxTrees * 32, 1024, nil, nil},
		{"a short hash", 31, 0, 0, ErrInvalid, ErrInvalid},
		{"a long hash", 33, 0, 0, ErrInvalid, ErrInvalid},
		{"half a value", 0, 48, 0, nil, ErrInvalid},
		{"too many values", 0, MaxTrees*32 + 32, 0, nil, ErrInvalid},
		{"behind all content", 0, 32, MaxContentBytes + 1, nil, ErrInvalid},
	} {
		o, p := object, part
		o.Blake3, p.Blake3, p.At, p.Trees = make([]byte, tc.sum), make([]byte, tc.sum), tc.at, make([]byte, tc.trees)
		if err := o.check(); !errors.Is(err, tc.objectError) {
			t.Errorf("%s: object: %v", tc.name, err)
		}
		if err := p.check(); !errors.Is(err, tc.partFail) {
			t.Errorf("%s: part: %v", tc.name, err)
		}
	}
}
