package objects

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/ipfs/go-cid"
	"lukechampine.com/blake3"
	reference "lukechampine.com/blake3/bao"

	"github.com/holdfast-ipfs/holdfast/cluster/bao"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(b)
	return string(b)
}

func blake3Of(text string) string {
	sum := blake3.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// An object and its copy have the BLAKE3 hash of their bytes.
func TestObjectsKnowTheirHash(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	for _, n := range []int{0, 1, 1024, 1025, 1<<20 + 1} {
		text := randomText(n)
		put := w.put("bkt", "k", text)
		got, _ := w.read("bkt", "k")
		if want := blake3Of(text); hex.EncodeToString(put.Blake3) != want || !bytes.Equal(got.Blake3, put.Blake3) {
			t.Errorf("%d bytes: %x and %x, want %s", n, put.Blake3, got.Blake3, want)
		}
		cp, err := w.objects.Copy(t.Context(), w.account, "bkt", CopyRequest{
			Key: "copy", SourceBucket: "bkt", Source: "k", Replace: &Attributes{Meta: map[string]string{"m": "1"}},
		})
		if err != nil || !bytes.Equal(cp.Blake3, put.Blake3) {
			t.Errorf("copy of %d bytes: %x, %v", n, cp.Blake3, err)
		}
	}
}

// files counts what is opened, and fails if it is told to.
type files struct {
	Files
	opened atomic.Int64
	err    error
}

func (f *files) Open(ctx context.Context, root cid.Cid, holders []state.NodeID) (io.ReadSeekCloser, uint64, error) {
	f.opened.Add(1)
	if f.err != nil {
		return nil, 0, f.err
	}
	return f.Files.Open(ctx, root, holders)
}

// numbered is a part as it is sent.
type numbered struct {
	number int
	text   string
	size   int64 // -1: not told
}

// The object of an upload has the BLAKE3 hash of its bytes if its parts end between chunks and at most maxReread
// bytes must be read again.
func TestAnUploadKnowsItsHashFromThoseOfItsParts(t *testing.T) {
	const kib = 1 << 10
	part := func(number, size int) numbered {
		return numbered{number, randomText(size + number)[:size], int64(size)}
	}
	untold := func(number, size int) numbered {
		p := part(number, size)
		p.size = -1
		return p
	}
	large := randomText(maxReread + 1)
	for _, tc := range []struct {
		name  string
		sent  []numbered // in the order in which they come
		known bool
		reads int // of parts, at the end
	}{
		{"one", []numbered{part(1, 5*kib)}, true, 0},
		{"one that is empty", []numbered{part(1, 0)}, true, 0},
		{"one that is short", []numbered{part(1, 17)}, true, 0},
		{"one that is not the first", []numbered{part(7, 5*kib)}, true, 1},
		{"in order", []numbered{part(1, 5*kib), part(2, 5*kib), part(3, 3*kib+1)}, true, 0},
		{"of equal size", []numbered{part(1, 4*kib), part(2, 4*kib), part(3, 4*kib), part(4, 4*kib)}, true, 0},
		{"of MiB", []numbered{part(1, 3<<20), part(2, 3<<20), part(3, 1<<20+5)}, true, 0},
		{"the others first", []numbered{part(2, 5*kib), part(1, 5*kib), part(3, 77)}, true, 0},
		{"the last first", []numbered{part(3, 77), part(2, 5*kib), part(1, 5*kib)}, true, 1},
		{"sizes that were not told", []numbered{untold(1, 5*kib), untold(2, 5*kib), untold(3, 2*kib)}, true, 0},
		{"sizes that were not told, the last first", []numbered{untold(2, 5*kib), untold(1, 5*kib)}, true, 1},
		{"of several sizes", []numbered{part(1, 5*kib), part(2, 4*kib), part(3, 7*kib), part(4, 10)}, true, 2},
		{"numbers with gaps", []numbered{part(1, 5*kib), part(5, 5*kib), part(9, 5*kib)}, true, 2},
		{"one that came again", []numbered{part(1, 5*kib), part(2, 5*kib), {1, randomText(7 * kib), 7 * kib}}, true, 1},
		{"the last is empty", []numbered{part(1, 5*kib), part(2, 0)}, true, 0},
		{"inside of a chunk", []numbered{part(1, 5000), part(2, 5000)}, false, 0},
		{"too much", []numbered{{2, large, int64(len(large))}, part(1, 5*kib)}, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.bucket("bkt")
			f := &files{Files: w}
			w.objects.opts.Files = f
			id, err := w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			texts, etags := map[int]string{}, map[int]string{}
			for _, p := range tc.sent {
				got, err := w.objects.PutPart(t.Context(), w.account, "bkt", PartRequest{
					Key: "k", Upload: id, Number: p.number, Body: Body{Reader: strings.NewReader(p.text), Size: p.size},
				})
				if err != nil {
					t.Fatal(err)
				}
				texts[p.number], etags[p.number] = p.text, got.ETag
			}
			r := CompleteRequest{Key: "k", Upload: id}
			var whole strings.Builder
			for n := 1; n < 10; n++ {
				if etags[n] != "" {
					r.Parts = append(r.Parts, CompletePart{Number: n, ETag: etags[n]})
					whole.WriteString(texts[n])
				}
			}
			obj, err := w.objects.Complete(t.Context(), w.account, "bkt", r)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if tc.known {
				want = blake3Of(whole.String())
			}
			if got, _ := w.read("bkt", "k"); hex.EncodeToString(obj.Blake3) != want || !bytes.Equal(got.Blake3, obj.Blake3) {
				t.Errorf("%x and %x, want %q", obj.Blake3, got.Blake3, want)
			}
			if n := int(f.opened.Load()) - 1; n != tc.reads {
				t.Errorf("read %d parts, want %d", n, tc.reads)
			}
		})
	}
}

// An upload whose parts cannot be read is completed, without a BLAKE3 hash.
func TestAnUploadWhosePartsCannotBeReadHasNoHash(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	id, err := w.objects.CreateUpload(t.Context(), w.account, "bkt", UploadRequest{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	part, err := w.objects.PutPart(t.Context(), w.account, "bkt", PartRequest{Key: "k", Upload: id, Number: 2, Body: bodyOf("hello")})
	if err != nil {
		t.Fatal(err)
	}
	w.objects.opts.Files = &files{Files: w, err: state.ErrUnavailable}
	obj, err := w.objects.Complete(t.Context(), w.account, "bkt", CompleteRequest{
		Key: "k", Upload: id, Parts: []CompletePart{{Number: 2, ETag: part.ETag}},
	})
	if err != nil || obj.Blake3 != nil {
		t.Errorf("%x, %v", obj.Blake3, err)
	}
}

// The Bao encodings of an object decode to its bytes, and there is none for other content or for content that cannot
// be read.
func TestBao(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	f := &files{Files: w}
	w.objects.opts.Files = f
	text := randomText(2<<20 + 17)
	obj := w.put("bkt", "k", text)
	write := func(s *Slice) []byte {
		t.Helper()
		e, err := w.objects.Bao(t.Context(), w.account, &obj, s)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if n, err := e.WriteTo(&out); err != nil || n != e.Size() || !bytes.Equal(e.Blake3[:], obj.Blake3) {
			t.Errorf("%d of %d bytes, hash %x, %v", n, e.Size(), e.Blake3, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		return out.Bytes()
	}
	outboard, root := reference.EncodeBuf([]byte(text), 0, true)
	if !bytes.Equal(write(nil), outboard) {
		t.Error("another outboard encoding")
	}
	var plain bytes.Buffer
	ok, err := reference.DecodeSlice(&plain, bytes.NewReader(write(&Slice{1 << 20, 100})), 0, 1<<20, 100, root)
	if err != nil || !ok || plain.String() != text[1<<20:1<<20+100] {
		t.Errorf("slice: %t, %v", ok, err)
	}
	if n := f.opened.Load(); n != 3 { // once for the top of the tree, and for each encoding
		t.Errorf("opened %d times", n)
	}

	// An object whose record has another hash has other content.
	wrong := obj
	wrong.Blake3 = make([]byte, 32)
	if _, err := w.objects.Bao(t.Context(), w.account, &wrong, nil); err == nil {
		t.Error("encoded content that is not the object's")
	}
	// What cannot be read is an error, and is tried again.
	other := w.put("bkt", "other", "hello")
	f.err = state.ErrUnavailable
	if _, err := w.objects.Bao(t.Context(), w.account, &other, nil); !errors.Is(err, state.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := w.objects.Bao(t.Context(), w.account, &obj, nil); !errors.Is(err, state.ErrUnavailable) {
		t.Error(err)
	}
	f.err = nil
	if _, err := w.objects.Bao(t.Context(), w.account, &other, nil); err != nil {
		t.Error(err)
	}
}

func indexOf(t *testing.T, size int) *bao.Index {
	t.Helper()
	x, err := bao.NewIndex(strings.NewReader(strings.Repeat("x", size)), uint64(size))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// The cache of trees holds at most its bound of bytes and drops the tree that was used least recently.
func TestTreesHaveABound(t *testing.T) {
	x := indexOf(t, 1)
	all := newTrees(3 * x.Weight())
	made := 0
	get := func(root state.RootKey, want int) {
		t.Helper()
		got, err := all.get(t.Context(), root, func() (*bao.Index, error) { made++; return x, nil })
		if err != nil || got != x || made != want {
			t.Errorf("%s: made %d, want %d, %v", root, made, want, err)
		}
		if all.by.Len() > 3 || all.by.Weight() != all.by.Len()*x.Weight() || len(all.coming) != 0 {
			t.Errorf("%d trees of %d bytes, %d coming", all.by.Len(), all.by.Weight(), len(all.coming))
		}
	}
	get("a", 1)
	get("b", 2)
	get("c", 3)
	get("a", 3)
	get("d", 4) // in the place of b
	get("a", 4)
	get("b", 5) // in the place of c
	get("d", 5)
	get("c", 6)
	if _, err := newTrees(1).get(t.Context(), "a", func() (*bao.Index, error) { return x, nil }); err != nil {
		t.Error("a tree that is larger than all:", err)
	}
}

// Requests for one tree at the same time compute it once, and the next one tries again if that fails.
func TestATreeIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := indexOf(t, 1)
		all := newTrees(maxTrees)
		begun, goOn := make(chan struct{}, 10), make(chan error)
		var made atomic.Int64
		read := func() (*bao.Index, error) {
			made.Add(1)
			begun <- struct{}{}
			if err := <-goOn; err != nil {
				return nil, err
			}
			return x, nil
		}
		var wg sync.WaitGroup
		var failed, got atomic.Int64
		for range 5 {
			wg.Go(func() {
				if y, err := all.get(t.Context(), "a", read); err != nil {
					failed.Add(1)
				} else if y == x {
					got.Add(1)
				}
			})
		}
		<-begun
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := all.get(ctx, "a", read); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		goOn <- iotest.ErrTimeout // who waits tries it
		<-begun
		goOn <- nil
		wg.Wait()
		if made.Load() != 2 || failed.Load() != 1 || got.Load() != 4 {
			t.Errorf("made %d times, %d failed, %d got it", made.Load(), failed.Load(), got.Load())
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = all.get(t.Context(), "b", func() (*bao.Index, error) { panic("broken") })
		}()
		if _, err := all.get(t.Context(), "b", func() (*bao.Index, error) { return x, nil }); err != nil {
			t.Error(err)
		}
	})
}
