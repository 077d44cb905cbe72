//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// javaScript runs requests through encryption.mjs, which was made from docs/encryption.md alone,
// and returns its answers.
func javaScript(t *testing.T, requests ...map[string]any) []json.RawMessage {
	t.Helper()
	modules, script := harness.Script(t, jsDir, "encryption.mjs")
	in, err := json.Marshal(requests)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), harness.NodeProgram(modules, harness.NodeCurrent), script)
	cmd.Stdin = bytes.NewReader(in)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("encryption.mjs: %v\n%s", err, errors.Bytes())
	}
	var answers []struct {
		Value json.RawMessage
		Error string
	}
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(requests) {
		t.Fatalf("%d answers to %d requests: %v", len(answers), len(requests), err)
	}
	values := make([]json.RawMessage, len(answers))
	for i, a := range answers {
		values[i] = a.Value
		if a.Error != "" {
			values[i], err = json.Marshal("error: " + a.Error)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return values
}

// answerAs reads an answer.
func answerAs[T any](t *testing.T, answer json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(answer, &v); err != nil {
		t.Fatalf("answer %.200s: %v", answer, err)
	}
	return v
}

// holder is an identity with its file and passphrase.
type holder struct {
	*seal.Identity
	file       string
	passphrase string
}

func newHolder(t *testing.T) holder {
	t.Helper()
	id, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	file, err := id.Seal([]byte("passphrase ü"), seal.Cost{Time: 1, Memory: 8 << 10, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	return holder{id, string(file), "passphrase ü"}
}

// request is a request on behalf of h.
func (h holder) request(op string, more map[string]any) map[string]any {
	r := map[string]any{"op": op, "file": h.file, "passphrase": h.passphrase}
	for name, value := range more {
		r[name] = value
	}
	return r
}

func encoded(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// plaintext returns n bytes that do not repeat within a chunk.
func plaintext(n int) []byte {
	b := make([]byte, n)
	blake3.New(32, []byte("encryption of the conformance...")).XOF().Read(b)
	return b
}

const (
	sealedPath   = "/photos/vacation/beach ü.jpg"
	sealedKey    = "e/0123456789abcdef"
	sealedBucket = "trip"
)

// TestJavaScriptReadsWhatGoEncrypts promises that a reader made from docs/encryption.md alone reads content of each
// version that Go encrypts, and refuses what was changed. It reads whole content and ranges, with the owner's key,
// the folder's and the object's.
func TestJavaScriptReadsWhatGoEncrypts(t *testing.T) {
	t.Parallel()
	owner := newHolder(t)
	root, err := owner.FolderKey(sealedBucket)
	if err != nil {
		t.Fatal(err)
	}
	folder := javaScript(t, owner.request("folder", map[string]any{"bucket": sealedBucket, "path": "/photos/vacation"}))[0]
	var requests []map[string]any
	var wanted [][]byte // nil is refused
	for _, n := range []int{0, 1, 1000, seal.ChunkSize, seal.ChunkSize + 1, 2*seal.ChunkSize + 5} {
		for _, to := range []seal.PublicKey{owner.PublicKey(), owner.HybridPublicKey()} {
			for _, bound := range []bool{false, true} {
				if bound && n >= seal.ChunkSize || to.Hybrid() && n == seal.ChunkSize {
					continue // the same again
				}
				o := seal.Object{StorageKey: sealedKey, Path: sealedPath, ContentType: "image/jpeg", User: map[string]string{"a": "ü"}, Folder: &root, Bound: bound}
				ciphertext, h, err := seal.Encrypt(to, o, plaintext(n))
				if err != nil {
					t.Fatal(err)
				}
				read := func(more map[string]any) map[string]any {
					r := owner.request("decrypt", map[string]any{"header": h, "storage": sealedKey, "path": sealedPath, "ciphertext": encoded(ciphertext)})
					for name, value := range more {
						r[name] = value
					}
					return r
				}
				changed := bytes.Clone(ciphertext)
				changed[n/2] ^= 1
				requests = append(requests, read(nil), read(map[string]any{"folder": folder}), read(map[string]any{"ciphertext": encoded(changed)}))
				wanted = append(wanted, plaintext(n), plaintext(n), nil)
				if n > seal.ChunkSize {
					requests = append(requests, read(map[string]any{"range": []int{seal.ChunkSize - 3, n - 2}}), read(map[string]any{"storage": "e/other"}))
					wanted = append(wanted, plaintext(n)[seal.ChunkSize-3:n-1], nil)
				}
			}
		}
	}
	for i, answer := range javaScript(t, requests...) {
		if wanted[i] == nil {
			if text := string(answer); !strings.HasPrefix(text, `"error: does not decrypt`) {
				t.Errorf("request %d reads what was changed: %.100s", i, text)
			}
			continue
		}
		read := answerAs[struct {
			Plaintext []byte
			Metadata  struct {
				Type string            `json:"content_type"`
				User map[string]string `json:"user_metadata"`
			}
		}](t, answer)
		if !bytes.Equal(read.Plaintext, wanted[i]) || read.Metadata.Type != "image/jpeg" || read.Metadata.User["a"] != "ü" {
			t.Errorf("request %d reads %d bytes, want %d; %+v", i, len(read.Plaintext), len(wanted[i]), read.Metadata)
		}
	}
}

// TestGoReadsWhatJavaScriptEncrypts promises that Go reads content of each version from a writer that knows
// docs/encryption.md alone, and keeps the metadata that it does not know. The owner and the readers of its folder
// read it.
func TestGoReadsWhatJavaScriptEncrypts(t *testing.T) {
	t.Parallel()
	owner := newHolder(t)
	var requests []map[string]any
	type made struct{ size, version int }
	var all []made
	for _, n := range []int{0, 1, 1000, seal.ChunkSize, seal.ChunkSize + 1, 2*seal.ChunkSize + 5} {
		for _, version := range []int{2, 4, 102, 104} {
			if n > seal.ChunkSize && version%100 == 2 {
				continue
			}
			all = append(all, made{n, version})
			requests = append(requests, owner.request("encrypt", map[string]any{
				"hybridPublic": encoded(owner.HybridPublicKey().Bytes()), "storage": sealedKey, "path": sealedPath, "plaintext": encoded(plaintext(n)), "version": version, "bucket": sealedBucket,
			}))
		}
	}
	root, err := owner.FolderKey(sealedBucket)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := root.Folder("/photos/vacation")
	if err != nil {
		t.Fatal(err)
	}
	for i, answer := range javaScript(t, requests...) {
		out := answerAs[struct {
			Header     seal.Header
			Ciphertext []byte
		}](t, answer)
		for _, opener := range []seal.Opener{owner.Identity, folder} {
			plain, m, err := seal.Decrypt(opener, out.Header, sealedKey, sealedPath, out.Ciphertext)
			if err != nil || !bytes.Equal(plain, plaintext(all[i].size)) {
				t.Errorf("%+v: %d bytes, %v", all[i], len(plain), err)
			}
			if m.User["from"] != "JavaScript" || string(m.Unknown["of_another_writer"]) != `{"kept":true}` {
				t.Errorf("%+v: metadata %+v", all[i], m)
			}
		}
	}
}

// TestJavaScriptAndGoHaveTheSameKeys promises that share identities and storage keys are the same in both, and that
// each opens the other's identity file.
func TestJavaScriptAndGoHaveTheSameKeys(t *testing.T) {
	t.Parallel()
	owner := newHolder(t)
	answers := javaScript(t,
		owner.request("identity", nil),
		owner.request("storage", map[string]any{"strategy": "DeterministicHash", "path": sealedPath}),
		owner.request("storage", map[string]any{"strategy": "PreserveStructure", "path": sealedPath}),
		owner.request("seal", map[string]any{"passphrase": owner.passphrase}),
	)
	if got := answerAs[string](t, answers[0]); got != owner.Public().String() {
		t.Errorf("share identity is %s, want %s", got, owner.Public())
	}
	for i, strategy := range []seal.Strategy{seal.DeterministicHash, seal.PreserveStructure} {
		key, err := owner.StorageKey(strategy, sealedPath)
		if got := answerAs[string](t, answers[1+i]); err != nil || got != key {
			t.Errorf("%v is %s, want %s: %v", strategy, got, key, err)
		}
	}
	again, err := seal.OpenIdentity([]byte(answerAs[string](t, answers[3])), []byte(owner.passphrase))
	if err != nil || again.Public() != owner.Public() {
		t.Errorf("identity file of JavaScript: %v", err)
	}
}

// TestJavaScriptAndGoShare promises that each opens the other's tokens for folders and objects, and that JavaScript
// opens a link of Go and refuses a token that was changed.
func TestJavaScriptAndGoShare(t *testing.T) {
	t.Parallel()
	owner, recipient, now := newHolder(t), newHolder(t), time.Now()
	root, err := owner.FolderKey(sealedBucket)
	if err != nil {
		t.Fatal(err)
	}
	ciphertext, h, err := seal.Encrypt(owner.PublicKey(), seal.Object{StorageKey: sealedKey, Path: sealedPath, Folder: &root}, plaintext(100))
	if err != nil {
		t.Fatal(err)
	}
	content, err := seal.Open(owner, h, sealedKey, seal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	object := content.DataKey()
	s := seal.Share{Bucket: sealedBucket, PathScope: "/photos", Permissions: seal.ReadWrite(), Expires: now.Add(time.Hour)}
	token, err := owner.NewToken(recipient.Public(), s)
	if err != nil {
		t.Fatal(err)
	}
	link, err := owner.NewLink("https://example.org/share", "k=1&x y", s)
	if err != nil {
		t.Fatal(err)
	}
	s.PathScope, s.Object = sealedPath, &object
	single, err := owner.NewToken(recipient.Public(), s)
	if err != nil {
		t.Fatal(err)
	}
	openToken := func(text string) map[string]any {
		return recipient.request("openToken", map[string]any{"token": text, "owner": owner.Public().String(), "now": now.Unix()})
	}
	permissions := map[string]bool{"read": true, "write": false, "delete": false}
	answers := javaScript(t,
		openToken(token.String()), openToken(single.JSON()), openToken(strings.Replace(token.JSON(), `"/photos"`, `"/"`, 1)),
		map[string]any{"op": "openLink", "link": link.URL(), "now": now.Unix()},
		owner.request("makeToken", map[string]any{"to": recipient.Public().String(), "bucket": sealedBucket, "path": "/photos", "permissions": permissions, "expires": now.Unix() + 3600}),
		owner.request("makeToken", map[string]any{"to": recipient.Public().String(), "path": sealedPath, "permissions": permissions, "object": encoded(object[:])}),
	)
	type opened struct{ Key, Kind, Scope, Bucket, Access string }
	folder, link2 := answerAs[opened](t, answers[0]), answerAs[opened](t, answers[3])
	if folder != (opened{folder.Key, "folder", "/photos", sealedBucket, ""}) || link2 != (opened{folder.Key, "folder", "/photos", sealedBucket, "k=1&x y"}) {
		t.Errorf("token opens as %+v, link as %+v", folder, link2)
	}
	if got := answerAs[opened](t, answers[1]); got.Key != encoded(object[:]) || got.Kind != "" {
		t.Errorf("token of an object opens as %+v", got)
	}
	if got := answerAs[string](t, answers[2]); got != "error: signature" {
		t.Errorf("a changed token opens: %s", got)
	}
	below := javaScript(t, map[string]any{"op": "below", "key": folder.Key, "scope": "/photos", "path": "/photos/vacation"})[0]
	read := javaScript(t, map[string]any{"op": "decrypt", "folder": below, "header": h, "storage": sealedKey, "path": sealedPath, "ciphertext": encoded(ciphertext)})[0]
	if got := answerAs[struct{ Plaintext []byte }](t, read); !bytes.Equal(got.Plaintext, plaintext(100)) {
		t.Errorf("a shared object reads as %d bytes", len(got.Plaintext))
	}
	for _, answer := range answers[4:] {
		foreign, err := seal.ParseToken(answerAs[string](t, answer))
		if err != nil {
			t.Fatal(err)
		}
		grant, err := foreign.Open(recipient.Identity, now, owner.Public())
		if err != nil {
			t.Fatal(err)
		}
		opener, err := grant.Opener(sealedPath)
		if err != nil {
			t.Fatal(err)
		}
		plain, _, err := seal.Decrypt(opener, h, sealedKey, sealedPath, ciphertext)
		if err != nil || !bytes.Equal(plain, plaintext(100)) {
			t.Errorf("token of JavaScript: %v", err)
		}
	}
}

// indexStore is a store of an index in memory.
type indexStore map[string][]byte

func (o indexStore) Get(_ context.Context, key string) ([]byte, string, error) {
	data, ok := o[key]
	if !ok {
		return nil, "", seal.ErrNotFound
	}
	return data, fmt.Sprintf("%x", blake3.Sum256(data)), nil
}

func (o indexStore) PutIf(_ context.Context, key string, data []byte, etag string) error {
	if old, ok := o[key]; ok != (etag != "") || ok && fmt.Sprintf("%x", blake3.Sum256(old)) != etag {
		return seal.ErrConflict
	}
	o[key] = data
	return nil
}

// TestJavaScriptAndGoListNames promises that each reads the index of names that the other wrote, in one object and in
// a tree.
func TestJavaScriptAndGoListNames(t *testing.T) {
	t.Parallel()
	owner := newHolder(t)
	root, err := owner.FolderKey(sealedBucket)
	if err != nil {
		t.Fatal(err)
	}
	photos, err := root.Folder("/photos")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 10, 3000} {
		var entries []seal.Entry
		for i := range n {
			entries = append(entries, seal.Entry{
				Name: fmt.Sprintf("name ü %05d", i), StorageKey: fmt.Sprintf("e/%032x", i), Size: int64(i), Modified: time.Unix(int64(i), 0).UTC(), Hash: blake3.Sum256([]byte{byte(i)}),
			})
		}
		ours := indexStore{}
		if err := seal.NewIndex(ours, sealedBucket, photos, "").Put(t.Context(), entries...); err != nil {
			t.Fatal(err)
		}
		folder := javaScript(t, owner.request("folder", map[string]any{"bucket": sealedBucket, "path": "/photos"}))[0]
		parts := map[string]string{}
		for key, data := range ours {
			parts[key] = encoded(data)
		}
		place := func(op, name string, value any) map[string]any {
			return map[string]any{"op": op, "bucket": sealedBucket, "path": "/photos", "folder": folder, name: value}
		}
		listed := javaScript(t, place("listIndex", "objects", parts))[0]
		if got := answerAs[[]any](t, listed); len(got) != n {
			t.Fatalf("JavaScript lists %d names, want %d", len(got), n)
		}
		if n == 0 {
			continue
		}
		theirs := indexStore{}
		written := javaScript(t, place("writeIndex", "entries", listed))[0]
		for key, data := range answerAs[map[string][]byte](t, written) {
			theirs[key] = data
		}
		all, err := seal.NewIndex(theirs, sealedBucket, photos, "").List(t.Context())
		if err != nil || len(all) != n {
			t.Fatalf("%d names of JavaScript, want %d: %v", len(all), n, err)
		}
		for i := range all {
			if all[i] != entries[i] {
				t.Fatalf("entry %d is %+v, want %+v", i, all[i], entries[i])
			}
		}
	}
}

// TestJavaScriptReadsAStream promises that JavaScript reads content whose size was not known before it was encrypted.
// Its header is known after the last byte.
func TestJavaScriptReadsAStream(t *testing.T) {
	t.Parallel()
	owner := newHolder(t)
	var requests []map[string]any
	sizes := []int{0, 5, 2 * seal.ChunkSize}
	for _, n := range sizes {
		e, err := seal.New(owner.PublicKey(), seal.Object{StorageKey: sealedKey, Path: sealedPath})
		if err != nil {
			t.Fatal(err)
		}
		ciphertext, err := io.ReadAll(e.Reader(bytes.NewReader(plaintext(n))))
		if err != nil {
			t.Fatal(err)
		}
		h, err := e.Header()
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, owner.request("decrypt", map[string]any{"header": h, "storage": sealedKey, "path": sealedPath, "ciphertext": encoded(ciphertext)}))
	}
	for i, answer := range javaScript(t, requests...) {
		if got := answerAs[struct{ Plaintext []byte }](t, answer); !bytes.Equal(got.Plaintext, plaintext(sizes[i])) {
			t.Errorf("stream of %d bytes reads as %d", sizes[i], len(got.Plaintext))
		}
	}
}
