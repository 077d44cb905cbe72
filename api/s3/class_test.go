package s3

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

// An object or upload reports the storage class of its request, in headers and bodies; STANDARD in bodies alone.
func TestStorageClassesAreNamesThatComeBack(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	says := func(key, class string) {
		t.Helper()
		header := class
		if class == standard {
			header = ""
		}
		for _, method := range []string{"GET", "HEAD"} {
			rec := w.must(t, 200, call{method: method, path: "/photos/" + key})
			if got := rec.Header().Get("X-Amz-Storage-Class"); got != header || rec.Header().Values("X-Amz-Storage-Class") != nil && header == "" {
				t.Errorf("%s %s: %q, want %q", method, key, got, header)
			}
		}
		for _, c := range []call{
			{method: "GET", path: "/photos?list-type=2&prefix=" + key},
			{method: "GET", path: "/photos?versions&prefix=" + key},
			{method: "GET", path: "/photos/" + key + "?attributes", header: []string{"x-amz-object-attributes: StorageClass"}},
		} {
			if rec := w.must(t, 200, c); !strings.Contains(rec.Body.String(), "<StorageClass>"+class+"</StorageClass>") {
				t.Errorf("%s: %s", c.path, rec.Body)
			}
		}
	}
	for _, class := range classes {
		asked := "x-amz-storage-class: " + class
		w.put(t, "/photos/put", "x", asked)
		says("put", class)
		w.must(t, 200, call{method: "PUT", path: "/photos/copy", header: []string{"x-amz-copy-source: photos/cat.jpg", asked}})
		says("copy", class)
		w.must(t, 200, call{method: "PUT", path: "/photos/put", header: []string{"x-amz-copy-source: photos/put", "x-amz-storage-class: ONEZONE_IA"}})
		says("put", "ONEZONE_IA")
		// A copy has the class that it asks for, and not that of its source.
		w.must(t, 200, call{method: "PUT", path: "/photos/copy", header: []string{"x-amz-copy-source: photos/put"}})
		says("copy", standard)
		id := w.begin(t, "/photos/up", asked)
		for _, path := range []string{"/photos?uploads&prefix=up", "/photos/up?uploadId=" + id} {
			if rec := w.must(t, 200, call{method: "GET", path: path}); !strings.Contains(rec.Body.String(), "<StorageClass>"+class+"</StorageClass>") {
				t.Errorf("%s: %s", path, rec.Body)
			}
		}
		w.must(t, 200, call{method: "PUT", path: "/photos/up?partNumber=1&uploadId=" + id, body: "hello"})
		w.must(t, 200, call{method: "POST", path: "/photos/up?uploadId=" + id, body: complete("", sumOfHello)})
		says("up", class)
		w.must(t, 204, call{method: "POST", path: "/photos", header: []string{formHeader}, body: formOf("f", field{"key", "form"}, field{"x-amz-storage-class", class}, field{"file", "hello"})})
		says("form", class)
	}
}

// begin begins an upload and returns its id.
func (w *world) begin(t testing.TB, path string, header ...string) string {
	t.Helper()
	_, id, _ := strings.Cut(w.must(t, 200, call{method: "POST", path: path + "?uploads", header: header}).Body.String(), "<UploadId>")
	id, _, found := strings.Cut(id, "<")
	if !found {
		t.Fatal("there is no upload")
	}
	return id
}

// Each checksum algorithm is verified in trailers, forms and parts, and computed for copies, and a wrong value
// gets 400.
func TestEveryChecksumIsTakenEverywhere(t *testing.T) {
	const mode = "x-amz-checksum-mode: ENABLED"
	w := newWorld(t)
	w.scene(t)
	w.put(t, "/photos/source", "hello")
	for _, a := range algorithms {
		encode := base64.StdEncoding.EncodeToString
		sum, wrong := encode(digest(a.name, []byte("hello"))), encode(digest(a.name, []byte("hellp")))
		chunked := func(value string) call {
			return call{
				method: "PUT", path: "/photos/trailed", body: "5\r\nhello\r\n0\r\n" + strings.ToLower(a.header) + ":" + value + "\r\n\r\n",
				header: []string{"x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER", "x-amz-decoded-content-length: 5", "x-amz-trailer: " + strings.ToLower(a.header)},
			}
		}
		form := func(value string) call {
			return call{method: "POST", path: "/photos", header: []string{formHeader}, body: formOf("f", field{"key", "form"}, field{strings.ToLower(a.header), value}, field{"file", "hello"})}
		}
		whole := func(key string) {
			t.Helper()
			h := w.must(t, 200, call{method: "HEAD", path: "/photos/" + key, header: []string{mode}}).Header()
			if h.Get(a.header) != sum || h.Get(checksumTypeHeader) != "FULL_OBJECT" {
				t.Errorf("%s of %s: %v", a.name, key, h)
			}
		}
		w.must(t, 400, chunked(wrong))
		w.must(t, 200, chunked(sum))
		whole("trailed")
		w.must(t, 400, form(wrong))
		w.must(t, 204, form(sum))
		whole("form")
		has := "<Checksum" + a.name + ">" + sum + "</Checksum" + a.name + "><ChecksumType>FULL_OBJECT</ChecksumType>"
		if rec := w.must(t, 200, call{method: "PUT", path: "/photos/copy", header: []string{"x-amz-copy-source: photos/source", "x-amz-checksum-algorithm: " + a.name}}); !strings.Contains(rec.Body.String(), has) {
			t.Errorf("%s of a copy: %s", a.name, rec.Body)
		}
		whole("copy")
		if !a.parts {
			continue
		}
		id := w.begin(t, "/photos/up", "x-amz-checksum-algorithm: "+a.name)
		part := "/photos/up?uploadId=" + id + "&partNumber="
		w.must(t, 400, call{method: "PUT", path: part + "1", body: "hello", header: []string{a.header + ": " + wrong}})
		if rec := w.must(t, 200, call{method: "PUT", path: part + "1", body: "hello", header: []string{a.header + ": " + sum}}); rec.Header().Get(a.header) != sum {
			t.Errorf("%s of a part: %v", a.name, rec.Header())
		}
		has = "<Checksum" + a.name + ">" + sum + "</Checksum" + a.name + ">"
		if rec := w.must(t, 200, call{method: "PUT", path: part + "2", header: []string{"x-amz-copy-source: photos/source"}}); !strings.Contains(rec.Body.String(), has) {
			t.Errorf("%s of a part that is copied: %s", a.name, rec.Body)
		}
		if rec := w.must(t, 200, call{method: "GET", path: "/photos/up?uploadId=" + id}); strings.Count(rec.Body.String(), has) != 2 {
			t.Errorf("%s", rec.Body)
		}
		body := complete("", sumOfHello, sumOfHello)
		w.must(t, 200, call{method: "POST", path: "/photos/up?uploadId=" + id, body: strings.ReplaceAll(body, "</Part>", has+"</Part>")})
		of := digest(a.name, []byte("hello"))
		composed := encode(digest(a.name, append(of[:len(of):len(of)], of...)))
		h := w.must(t, 200, call{method: "GET", path: "/photos/up", header: []string{mode}}).Header()
		if h.Get(a.header) != composed+"-2" || h.Get(checksumTypeHeader) != "COMPOSITE" {
			t.Errorf("%s of an upload: %v", a.name, h)
		}
		if h := w.must(t, http.StatusPartialContent, call{method: "GET", path: "/photos/up?partNumber=2", header: []string{mode}}).Header(); h.Get(a.header) != sum {
			t.Errorf("%s of a part that is read: %v", a.name, h)
		}
	}
}
