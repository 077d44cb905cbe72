package objects

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sized returns a body whose checksums are kept.
func sized(text string, algorithms ...string) Body {
	return Body{Reader: strings.NewReader(text), Size: int64(len(text)), Sums: algorithms, Check: func(s Sums) (kept []state.Checksum, err error) {
		for _, a := range algorithms {
			kept = append(kept, state.Checksum{Algorithm: a, Value: s.By[a]})
		}
		return kept, nil
	}}
}

// An upload without an algorithm gives its object the CRC64NVME of all its bytes if every part has or can get one,
// else none. Parts come with a body, with another checksum too, and as copies. Completing the upload again is
// answered alike.
func TestAnUploadWithoutAnAlgorithmGetsTheDefault(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	ctx, a := t.Context(), w.account
	const text = "0123456789"
	if _, err := w.objects.Put(ctx, a, "bkt", PutRequest{Key: "known", Body: sized(text, DefaultAlgorithm)}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.objects.Put(ctx, a, "bkt", PutRequest{Key: "unknown", Body: sized(text)}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, source string
		want         bool
	}{
		{"of sources that have it", "known", true},
		{"of a whole source that does not", "unknown", false},
	} {
		id, err := w.objects.CreateUpload(ctx, a, "bkt", UploadRequest{Key: tc.name})
		if err != nil {
			t.Fatal(err)
		}
		all := func(size uint64) (uint64, uint64, error) { return 0, size, nil }
		head := func(uint64) (uint64, uint64, error) { return 0, uint64(len(text)), nil }
		var list []CompletePart
		for i, put := range []func(n int) (state.Part, error){
			func(n int) (state.Part, error) {
				return w.objects.PutPart(ctx, a, "bkt", PartRequest{Key: tc.name, Upload: id, Number: n, Body: sized(text, DefaultAlgorithm)})
			},
			func(n int) (state.Part, error) {
				return w.objects.CopyPart(ctx, a, "bkt", PartCopyRequest{Key: tc.name, Upload: id, Number: n, SourceBucket: "bkt", Source: tc.source, Range: all})
			},
			func(n int) (state.Part, error) {
				return w.objects.CopyPart(ctx, a, "bkt", PartCopyRequest{Key: tc.name, Upload: id, Number: n, SourceBucket: "bkt", Source: "joined", Range: head})
			},
			func(n int) (state.Part, error) {
				return w.objects.PutPart(ctx, a, "bkt", PartRequest{Key: tc.name, Upload: id, Number: n, Body: sized(text, CRC32, DefaultAlgorithm)})
			},
		} {
			if i == 2 { // bytes that have to be read, of an object of two parts
				joinTwo(t, w, text)
			}
			p, err := put(i + 1)
			if err != nil {
				t.Fatal(tc.name, i+1, err)
			}
			list = append(list, CompletePart{Number: i + 1, ETag: p.ETag})
		}
		made, err := w.objects.Complete(ctx, a, "bkt", CompleteRequest{Key: tc.name, Upload: id, Parts: list})
		if err != nil {
			t.Fatal(tc.name, err)
		}
		h := NewHash(DefaultAlgorithm)
		_, _ = io.WriteString(h, strings.Repeat(text, 4))
		sum := checksum(made.Checksums, DefaultAlgorithm)
		if has := bytes.Equal(sum, h.Sum(nil)); has != tc.want || !tc.want && sum != nil {
			t.Errorf("%s: %+v", tc.name, made.Checksums)
		}
		crc := NewHash(CRC32)
		_, _ = io.WriteString(crc, text)
		list[3].Checksums = map[string][]byte{CRC32: crc.Sum(nil)}
		if again, err := w.objects.Complete(ctx, a, "bkt", CompleteRequest{Key: tc.name, Upload: id, Parts: list}); err != nil || again.ID != made.ID {
			t.Errorf("%s: completed again: %+v, %v", tc.name, again, err)
		}
	}
}

// joinTwo makes the object joined of two parts.
func joinTwo(t *testing.T, w *world, text string) {
	t.Helper()
	id, err := w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: "joined"})
	if err != nil {
		t.Fatal(err)
	}
	var list []CompletePart
	for n := 1; n <= 2; n++ {
		p, err := w.objects.PutPart(t.Context(), w.account, "bkt", PartRequest{Key: "joined", Upload: id, Number: n, Body: sized(text, DefaultAlgorithm)})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, CompletePart{Number: n, ETag: p.ETag})
	}
	if _, err := w.objects.Complete(t.Context(), w.account, "bkt", CompleteRequest{Key: "joined", Upload: id, Parts: list}); err != nil {
		t.Fatal(err)
	}
}
