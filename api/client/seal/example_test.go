package seal_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"lukechampine.com/blake3"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// must ends an example that fails.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// An identity is made once and kept in a file.
func Example_identity() {
	id := must(seal.Generate())
	file := must(id.Seal([]byte("correct horse battery staple"), seal.DefaultCost()))
	again := must(seal.OpenIdentity(file, []byte("correct horse battery staple")))
	fmt.Println(again.Public() == id.Public())
	// Output: true
}

// A file is read twice: for its digest, and to encrypt it.
func Example_file() {
	id := must(seal.Generate())
	root := must(id.FolderKey("trip"))
	file := strings.NewReader(strings.Repeat("holiday ", 100_000))

	digest := must(seal.DigestOf(file))
	must(file.Seek(0, io.SeekStart))
	o := seal.Object{Path: "/photos/beach.jpg", ContentType: "image/jpeg", Digest: &digest, Folder: &root}
	o.StorageKey = must(id.StorageKey(seal.DeterministicHash, o.Path))
	e := must(seal.New(id.PublicKey(), o))
	size, _ := e.Size()
	headers := must(e.Header()).Map()            // of the upload
	uploaded := must(io.ReadAll(e.Reader(file))) // its body
	fmt.Println(size == int64(len(uploaded)), len(headers), e.Chunks())

	h := must(seal.FindHeader(func(name string) string { return headers[name] }))
	c := must(seal.Open(id, h, o.StorageKey, seal.Options{Path: o.Path}))
	plain := must(io.ReadAll(c.Reader(bytes.NewReader(uploaded))))
	fmt.Println(len(plain), c.Metadata().ContentType)

	start, length := must2(c.Range(700_000, 7)) // ask the server for these bytes
	part := must(c.RangeReader(bytes.NewReader(uploaded[start:start+length]), 700_000, 7))
	fmt.Printf("%s\n", must(io.ReadAll(part)))
	// Output:
	// true 2 4
	// 800000 image/jpeg
	// holiday
}

func must2[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		panic(err)
	}
	return a, b
}

// A stream has its header at its end. Upload it under a temporary key, then copy it to its storage
// key with the header.
func Example_stream() {
	id := must(seal.Generate())
	e := must(seal.New(id.PublicKey(), seal.Object{Path: "/log.txt", StorageKey: "e/0123"}))
	_, err := e.Header()
	fmt.Println(err)
	uploaded := must(io.ReadAll(e.Reader(strings.NewReader("line\n"))))
	plain, _, err := seal.Decrypt(id, must(e.Header()), "e/0123", "/log.txt", uploaded)
	fmt.Printf("%s%v\n", plain, err)
	// Output:
	// stream has not been encrypted to its end
	// line
	// <nil>
}

// A token shares a folder: the recipient opens each object below it.
func ExampleIdentity_NewToken() {
	owner, recipient := must(seal.Generate()), must(seal.Generate())
	root := must(owner.FolderKey("trip"))
	o := seal.Object{Path: "/photos/beach.jpg", StorageKey: "e/0123", Folder: &root}
	uploaded, h, err := seal.Encrypt(owner.PublicKey(), o, []byte("sand"))
	if err != nil {
		panic(err)
	}
	share := seal.Share{Bucket: "trip", PathScope: "/photos", Permissions: seal.ReadOnly(), Expires: time.Now().Add(time.Hour)}
	sent := must(owner.NewToken(recipient.Public(), share)).String()

	token := must(seal.ParseToken(sent))
	grant := must(token.Open(recipient, time.Now(), owner.Public()))
	opener := must(grant.Opener("/photos/beach.jpg"))
	plain, _, err := seal.Decrypt(opener, h, "e/0123", "/photos/beach.jpg", uploaded)
	fmt.Printf("%s %v\n", plain, err)
	_, err = grant.Allow("/photos/../letters", seal.Read)
	fmt.Println(err)
	_, err = grant.Allow("/photos/beach.jpg", seal.Delete)
	fmt.Println(err)
	// Output:
	// sand <nil>
	// path is outside the shared folder: /letters is not in /photos
	// share token does not permit this: delete
}

// A link is for somebody without an identity.
func ExampleIdentity_NewLink() {
	owner := must(seal.Generate())
	share := seal.Share{Bucket: "trip", PathScope: "/photos", Permissions: seal.ReadOnly()}
	url := must(owner.NewLink("https://holdfast.example/share", "", share)).URL()

	page, _, _ := strings.Cut(url, "#")
	grant := must(must(seal.ParseLink(url)).Open(time.Now()))
	fmt.Println(page, grant.Scope())
	// Output: https://holdfast.example/share /photos
}

// New keys open what the old ones no longer do.
func ExampleRewrap() {
	old := must(seal.Generate())
	uploaded, h, err := seal.Encrypt(old.PublicKey(), seal.Object{Path: "/a", StorageKey: "e/0123"}, []byte("content"))
	if err != nil {
		panic(err)
	}
	next := must(old.Rotate())
	h = must(seal.Rewrap(h, "e/0123", old, next.PublicKey(), nil))
	plain, _, err := seal.Decrypt(next, h, "e/0123", "/a", uploaded)
	fmt.Printf("%s %v\n", plain, err)
	_, err = seal.Open(old, h, "e/0123", seal.Options{})
	fmt.Println(err)
	// Output:
	// content <nil>
	// data key cannot be opened with this key
}

// bucket is a Store in memory.
type bucket map[string][]byte

func (b bucket) etag(key string) string {
	if data, ok := b[key]; ok {
		return fmt.Sprintf("%x", blake3.Sum256(data))
	}
	return ""
}

func (b bucket) Get(_ context.Context, key string) ([]byte, string, error) {
	if data, ok := b[key]; ok {
		return data, b.etag(key), nil
	}
	return nil, "", seal.ErrNotFound
}

func (b bucket) PutIf(_ context.Context, key string, data []byte, etag string) error {
	if b.etag(key) != etag {
		return seal.ErrConflict
	}
	b[key] = data
	return nil
}

// An index keeps the names of a folder.
func ExampleIndex() {
	id := must(seal.Generate())
	photos := must(must(id.FolderKey("trip")).Folder("/photos"))
	index := seal.NewIndex(bucket{}, "trip", photos, "")
	err := index.Put(context.Background(), seal.Entry{Name: "vacation/"}, seal.Entry{Name: "beach.jpg", StorageKey: "e/0123", Size: 4})
	if err != nil {
		panic(err)
	}
	for _, e := range must(index.List(context.Background())) {
		fmt.Println(e.Name, e.Size)
	}
	// Output:
	// beach.jpg 4
	// vacation/ 0
}
