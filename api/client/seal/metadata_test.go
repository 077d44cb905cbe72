package seal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

// TestMetadataThatMeansNothing promises that sizes, chunks and members which contradict each other,
// or are beyond what is read, are refused.
func TestMetadataThatMeansNothing(t *testing.T) {
	id := generate(t)
	_, h := encrypt(t, id, 2*ChunkSize+1)
	good, err := open(t, id, h).m.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{
		"original_key": 1, "content_type": nil, "created_at": "now", "modified_at": 1.5, "user_metadata": []int{1},
		"content_hash": "00", "actual_size": -1, "chunk_size": 0, "chunk_count": 2,
	} {
		var members map[string]any
		if err := json.Unmarshal(good, &members); err != nil {
			t.Fatal(err)
		}
		for _, missing := range []bool{false, true} {
			members[name] = value
			if missing {
				delete(members, name)
			}
			text, err := json.Marshal(members)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parseMetadata(text); err == nil {
				t.Errorf("%s of %v (missing: %v) is read", name, value, missing)
			}
		}
	}
	for _, tc := range []struct {
		size  int64
		chunk chunking
		good  bool
	}{
		{10, chunking{5, 2}, true},
		{10, chunking{5, 3}, false},
		{10, chunking{5, 1}, false},
		{0, chunking{5, 0}, true},
		{0, chunking{5, 1}, false},
		{10, chunking{-5, -2}, false},
		{maxChunkSize + 1, chunking{maxChunkSize, 2}, true},
		{maxChunkSize + 1, chunking{maxChunkSize + 1, 1}, false},
		{maxSize + 1, chunking{ChunkSize, maxSize/ChunkSize + 1}, false},
	} {
		if err := tc.chunk.check(tc.size); (err == nil) != tc.good {
			t.Errorf("%+v of %d bytes: %v", tc.chunk, tc.size, err)
		}
	}
	whole := bytes.Replace(good, []byte(`"chunk_count":3,"chunk_size":262144,`), nil, 1)
	if _, err := parseMetadata(whole); err != nil || len(whole) == len(good) {
		t.Errorf("metadata without chunks: %v", err)
	}
	large := bytes.Replace(whole, []byte(fmt.Sprint(2*ChunkSize+1)), []byte(fmt.Sprint(int64(maxSize+1))), 1)
	if _, err := parseMetadata(large); err == nil || len(large) == len(whole) {
		t.Errorf("a size of %d is read", int64(maxSize+1))
	}
}

// TestUnknownMetadataStays promises that a member of the metadata that this package does not know is written and
// read again, and does not replace one that it knows.
func TestUnknownMetadataStays(t *testing.T) {
	id := generate(t)
	o := object(3)
	o.Unknown = map[string]json.RawMessage{"rating": json.RawMessage(`{"stars":5}`), "actual_size": json.RawMessage(`9`)}
	ciphertext, h, err := Encrypt(id.PublicKey(), o, bytesOf(3))
	if err != nil {
		t.Fatal(err)
	}
	_, m, err := Decrypt(id, h, o.StorageKey, o.Path, ciphertext)
	if err != nil || len(m.Unknown) != 1 || string(m.Unknown["rating"]) != `{"stars":5}` || m.Size != 3 {
		t.Errorf("%+v: %v", m, err)
	}
}
