package sigv4

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"
)

func BenchmarkVerify(b *testing.B) {
	for _, bc := range []struct {
		name string
		r    *http.Request
	}{
		{"header", wire(b, signed(b, "PUT", "/bucket/a/key.txt", emptySHA256, "", func(r *http.Request) {
			r.Header.Set("Content-Type", "text/plain")
			r.Header.Set("X-Amz-Meta-Colour", "red")
			r.Header.Set("Amz-Sdk-Invocation-Id", "cb537308-d91e-4c2b-b004-73bde47bd88e")
		}))},
		{"list", wire(b, signed(b, "GET", "/bucket?list-type=2&prefix=a%2Fb&delimiter=%2F&encoding-type=url", emptySHA256, "", nil))},
		{"link", wire(b, presigned(b, "/bucket/a/key.txt", nil))},
	} {
		b.Run(bc.name, func(b *testing.B) {
			v := verifierAt(b, awsStamp)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), bc.r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBody(b *testing.B) {
	const size = 8 << 20
	content := strings.Repeat("x", size)
	pieces := func(n int) (chunks []string) {
		for at := 0; at < size; at += n {
			chunks = append(chunks, content[at:min(size, at+n)])
		}
		return chunks
	}
	raw := []byte(content)
	sum := sha256.Sum256(raw)
	hashed, err := framingOf(&http.Request{ContentLength: size}, hex.EncodeToString(sum[:]))
	if err != nil {
		b.Fatal(err)
	}
	buffer := make([]byte, 256<<10)
	b.Run("SHA-256 alone", func(b *testing.B) { // to compare with
		b.SetBytes(size)
		for b.Loop() {
			_ = sha256.Sum256(raw)
		}
	})
	for _, bc := range []struct {
		name    string
		framing Framing
		raw     string
	}{
		{"signed chunks of 64 KiB", signedFraming, encode(testChain(), "", pieces(64<<10)...)},
		{"signed chunks of 1 MiB", signedFraming, encode(testChain(), "", pieces(1<<20)...)},
		{"unsigned chunks of 1 MiB", Framing{Chunked: true, Length: size}, encode(nil, "", pieces(1<<20)...)},
		{"one hash", hashed, content},
	} {
		b.Run(bc.name, func(b *testing.B) {
			raw := []byte(bc.raw)
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				var links *chain
				if bc.framing.Signed {
					links = testChain()
				}
				// Not a WriterTo: what a connection does is copy.
				body := newBody(bc.framing, links, struct{ io.Reader }{bytes.NewReader(raw)})
				if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, buffer); n != size || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
