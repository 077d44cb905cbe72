package sigv4

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func sumOf(text []byte) [sha256.Size]byte { return sha256.Sum256(text) }

// testChain begins where any request has been signed.
func testChain() *chain {
	c := newChain([]byte("key"), awsStamp, "20130524/us-east-1/s3/aws4_request")
	c.seed(sumOf([]byte("request")))
	return c
}

// encode returns a body in chunks as a client sends it, the last and empty one
// included. Without links the chunks carry no signatures.
func encode(links *chain, trailers string, chunks ...string) string {
	var b strings.Builder
	for _, chunk := range append(chunks, "") {
		fmt.Fprintf(&b, "%x", len(chunk))
		if links != nil {
			links.chunk(sumOf([]byte(chunk)), nil)
			fmt.Fprintf(&b, ";chunk-signature=%s", links.previous)
		}
		b.WriteString("\r\n" + chunk)
		if chunk != "" {
			b.WriteString("\r\n")
		}
	}
	if trailers != "" {
		b.WriteString(strings.ReplaceAll(trailers, "\n", "\r\n"))
		if links != nil {
			links.trailer(sumOf([]byte(trailers)), nil)
			fmt.Fprintf(&b, "x-amz-trailer-signature:%s\r\n", links.previous)
		}
	}
	b.WriteString("\r\n")
	return b.String()
}

var (
	signedFraming   = Framing{Chunked: true, Signed: true, Length: -1}
	signedTrailers  = Framing{Chunked: true, Signed: true, Length: -1, Trailers: []string{"x-b", "x-a"}}
	unsignedFraming = Framing{Chunked: true, Length: -1, Trailers: []string{"x-a"}}
)

// A chunked body is read whole with its trailers, however its chunks and the reads of its source are cut.
func TestBodiesInChunksAreRead(t *testing.T) {
	large := strings.Repeat("large", checkedChunk/5+1000)
	exact := strings.Repeat("e", checkedChunk)
	for _, tc := range []struct {
		name     string
		framing  Framing
		chunks   []string
		trailers string
	}{
		{"empty", signedFraming, nil, ""},
		{"one", signedFraming, []string{"hello"}, ""},
		{"small ones", signedFraming, []string{"h", "e", "llo"}, ""},
		{"as large as is held", signedFraming, []string{exact, exact, "x"}, ""},
		{"larger than is held", signedFraming, []string{"x", large, exact, large, "y"}, ""},
		{"trailers", signedTrailers, []string{"hello"}, "x-a:1\nx-b:two words\n"},
		{"unsigned", unsignedFraming, []string{large, "x"}, "x-a:1=\n"},
		{"unsigned and empty", unsignedFraming, nil, "x-a:\n"},
	} {
		for _, known := range []bool{false, true} {
			for name, cut := range map[string]func(io.Reader) io.Reader{
				"whole": func(r io.Reader) io.Reader { return r }, "with its end": iotest.DataErrReader,
				"in halves": iotest.HalfReader, "in bytes": iotest.OneByteReader,
			} {
				t.Run(fmt.Sprint(tc.name, "/", known, "/", name), func(t *testing.T) {
					want := strings.Join(tc.chunks, "")
					framing := tc.framing
					if known {
						framing.Length = int64(len(want))
					}
					var there, here *chain
					if framing.Signed {
						there, here = testChain(), testChain()
					}
					body := newBody(framing, here, cut(strings.NewReader(encode(there, tc.trailers, tc.chunks...))))
					got, err := io.ReadAll(body)
					if err != nil || string(got) != want {
						t.Fatalf("%d bytes, %v, want %d", len(got), err, len(want))
					}
					var trailers string
					for _, trailer := range body.Trailers() {
						trailers += trailer.Name + ":" + trailer.Value + "\n"
					}
					if trailers != tc.trailers {
						t.Errorf("%q, want %q", trailers, tc.trailers)
					}
					if n, err := body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
						t.Errorf("after the end: %d, %v", n, err)
					}
				})
			}
		}
	}
}

// A chunked body that is incomplete, changed or malformed ends in the error of its mistake, and a changed chunk
// is not handed on.
func TestBodiesAreRefused(t *testing.T) {
	good := func() string { return encode(testChain(), "", "hello", "world") }
	trailed := func() string { return encode(testChain(), "x-a:1\nx-b:2\n", "hello") }
	large := strings.Repeat("x", checkedChunk+1)
	of := func(f Framing, length int64) Framing { f.Length = length; return f }
	change := func(text, old, new string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%q has no %q", text, old)
		}
		return strings.Replace(text, old, new, 1)
	}
	const frame = len("5;chunk-signature=") + signatureLength + len("\r\nhello\r\n")
	for _, tc := range []struct {
		name    string
		framing Framing
		raw     string
		want    Code
	}{
		{"nothing", signedFraming, "", CodeIncomplete},
		{"half a line", signedFraming, good()[:20], CodeIncomplete},
		{"half a chunk", signedFraming, good()[:90], CodeIncomplete},
		{"no last chunk", signedFraming, good()[:strings.Index(good(), "0;chunk")], CodeIncomplete},
		{"no last line", signedFraming, strings.TrimSuffix(good(), "\r\n"), CodeIncomplete},
		{"half a last line", signedFraming, strings.TrimSuffix(good(), "\n"), CodeIncomplete},
		{"another byte", signedFraming, change(good(), "world", "World"), CodeChunkSignature},
		{"another byte of a large chunk", signedFraming, change(encode(testChain(), "", large), "xxx\r\n", "xxy\r\n"), CodeChunkSignature},
		{"another signature", signedFraming, change(good(), "chunk-signature=", "chunk-signature=\x00"), CodeIncomplete},
		{"no signature of the last chunk", signedFraming, good()[:strings.Index(good(), "0;chunk")] + "0;chunk-signature=" + emptySHA256 + "\r\n\r\n", CodeChunkSignature},
		{"no signatures", signedFraming, encode(nil, "", "hello"), CodeIncomplete},
		{"chunks in another order", signedFraming, good()[frame:2*frame] + good()[:frame] + good()[2*frame:], CodeChunkSignature},
		{"a chunk twice", signedFraming, good()[:frame] + good(), CodeChunkSignature},
		{"a chunk less", signedFraming, good()[frame:], CodeChunkSignature},
		{"the end of an empty body behind a chunk", signedFraming, good()[:frame] + encode(testChain(), ""), CodeChunkSignature},
		{"another extension", signedFraming, change(good(), "chunk-signature", "chunk-signatura"), CodeIncomplete},
		{"a short signature", signedFraming, "5;chunk-signature=00\r\nhello\r\n", CodeIncomplete},
		{"no size", unsignedFraming, "\r\n", CodeIncomplete},
		{"a size that is none", unsignedFraming, "xyz\r\n", CodeIncomplete},
		{"a negative size", unsignedFraming, "-1\r\n", CodeIncomplete},
		{"a size with spaces", unsignedFraming, "5 \r\nhello\r\n", CodeIncomplete},
		{"a size with a prefix", unsignedFraming, "0x5\r\nhello\r\n", CodeIncomplete},
		{"a size that overflows", unsignedFraming, "ffffffffffffffff\r\n", CodeRequest},
		{"too many digits", unsignedFraming, strings.Repeat("0", maxSizeDigits) + "5\r\n", CodeIncomplete},
		{"more than may be in all", unsignedFraming, "1\r\nx\r\n4000000000000\r\n", CodeRequest},
		{"lines without CR", unsignedFraming, "5\nhello\n0\n\n", CodeIncomplete},
		{"a long line", unsignedFraming, strings.Repeat("0", 5000), CodeIncomplete},
		{"a chunk longer than its size", unsignedFraming, "4\r\nhello\r\n0\r\n\r\n", CodeIncomplete},
		{"a chunk longer than its size, in a signed body", signedFraming, change(good(), "5;", "4;"), CodeChunkSignature},
		{"more than announced", of(signedFraming, 9), good(), CodeIncomplete},
		{"less than announced", of(signedFraming, 11), good(), CodeIncomplete},
		{"a chunk of more than announced", of(signedFraming, 4), good(), CodeIncomplete},
		{"something behind the end", signedFraming, good() + "x", CodeIncomplete},
		{"a line behind the end", signedFraming, good() + "x: y\r\n\r\n", CodeTrailer},
		{"a chunk behind the end", signedFraming, good() + "5\r\nhello\r\n", CodeTrailer},
		{"empty lines without end", unsignedFraming, "0\r\nx-a:1\r\n" + strings.Repeat("\r\n", maxTrailerBytes), CodeTrailer},
		{"no trailer", unsignedFraming, encode(nil, "", "hello"), CodeTrailer},
		{"another trailer", unsignedFraming, encode(nil, "x-b:1\n"), CodeTrailer},
		{"one trailer too many", unsignedFraming, encode(nil, "x-a:1\nx-b:1\n"), CodeTrailer},
		{"a trailer twice", unsignedFraming, encode(nil, "x-a:1\nX-A:1\n"), CodeTrailer},
		{"a trailer without a colon", unsignedFraming, encode(nil, "x-a\n"), CodeTrailer},
		{"a trailer with a space before the colon", unsignedFraming, encode(nil, "x-a :1\n"), CodeTrailer},
		{"a trailer with control characters", unsignedFraming, encode(nil, "x-a:\x01\n"), CodeTrailer},
		{"a long trailer", unsignedFraming, encode(nil, "x-a:"+strings.Repeat("1", maxLine)+"\n"), CodeIncomplete},
		{"half a trailer", unsignedFraming, "0\r\nx-a:1", CodeIncomplete},
		{"a trailer and no end", unsignedFraming, "0\r\nx-a:1\r\n", CodeIncomplete},
		{"the signature of unsigned trailers", unsignedFraming, encode(nil, "x-a:1\nx-amz-trailer-signature:"+emptySHA256+"\n"), CodeTrailer},
		{"one signed trailer less", signedTrailers, change(trailed(), "x-a:1\r\n", ""), CodeTrailer},
		{"another signed trailer", signedTrailers, change(trailed(), "x-a:1", "x-a:2"), CodeChunkSignature},
		{"signed trailers without a signature", signedTrailers, trailed()[:strings.Index(trailed(), trailerSignature)] + "\r\n", CodeChunkSignature},
		{"a short signature of trailers", signedTrailers, change(trailed(), trailerSignature+":", trailerSignature+":0"), CodeTrailer},
		{"another signature of trailers", signedTrailers, trailed()[:strings.Index(trailed(), trailerSignature)] + trailerSignature + ":" + emptySHA256 + "\r\n\r\n", CodeChunkSignature},
		{"a trailer behind the signature", signedTrailers, strings.TrimSuffix(trailed(), "\r\n") + "x-a:1\r\n\r\n", CodeTrailer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, cut := range []func(io.Reader) io.Reader{iotest.DataErrReader, iotest.OneByteReader} {
				var links *chain
				if tc.framing.Signed {
					links = testChain()
				}
				body := newBody(tc.framing, links, cut(strings.NewReader(tc.raw)))
				got, err := io.ReadAll(body)
				if err == nil || code(t, err) != tc.want {
					t.Fatalf("%d bytes, %v, want code %d", len(got), err, tc.want)
				}
				if tc.want == CodeChunkSignature && bytes.Contains(got, []byte("World")) {
					t.Errorf("%q was handed on", got)
				}
				if _, again := body.Read(make([]byte, 1)); !errors.Is(again, err) {
					t.Errorf("then %v, before that %v", again, err)
				}
			}
		})
	}
}

// A plain body is read if it has its announced hash and length, and else ends in an error; an error of its
// source is returned as it is.
func TestPlainBodies(t *testing.T) {
	const text = "hello world"
	sum := sha256.Sum256([]byte(text))
	broken := errors.New("connection reset")
	for _, tc := range []struct {
		name    string
		payload string
		length  int64
		body    io.Reader
		want    error
	}{
		{"unsigned", unsignedPayload, 11, strings.NewReader(text), nil},
		{"of unknown length", unsignedPayload, -1, strings.NewReader(text), nil},
		{"by its hash", hex.EncodeToString(sum[:]), 11, strings.NewReader(text), nil},
		{"by its hash in upper case", strings.ToUpper(hex.EncodeToString(sum[:])), 11, strings.NewReader(text), nil},
		{"without any", "", 11, strings.NewReader(text), nil},
		{"another byte", hex.EncodeToString(sum[:]), 11, strings.NewReader("Hello world"), &Error{Code: CodePayload}},
		{"nothing instead", hex.EncodeToString(sum[:]), -1, strings.NewReader(""), &Error{Code: CodePayload}},
		{"shorter", hex.EncodeToString(sum[:]), 11, strings.NewReader("hello"), &Error{Code: CodeIncomplete}},
		{"longer", unsignedPayload, 11, strings.NewReader(text + "!"), &Error{Code: CodeIncomplete}},
		{"cut by the transport", unsignedPayload, 11, io.MultiReader(strings.NewReader("he"), iotest.ErrReader(io.ErrUnexpectedEOF)), &Error{Code: CodeIncomplete}},
		{"a source that fails", unsignedPayload, 11, io.MultiReader(strings.NewReader("he"), iotest.ErrReader(broken)), broken},
	} {
		for _, cut := range []func(io.Reader) io.Reader{iotest.DataErrReader, iotest.OneByteReader} {
			f, err := framingOf(&http.Request{ContentLength: tc.length}, tc.payload)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(f.Body(cut(tc.body)))
			if s, ok := tc.body.(*strings.Reader); ok {
				_, _ = s.Seek(0, io.SeekStart)
			}
			if !errors.Is(err, tc.want) || tc.want == nil && (err != nil || string(got) != text) {
				t.Errorf("%s: %q, %v, want %v", tc.name, got, err, tc.want)
			}
			if tc.want != nil && errors.Is(tc.want, broken) {
				break // read once
			}
			if strings.HasPrefix(tc.name, "cut") {
				break
			}
		}
	}
	chunked := newBody(unsignedFraming, nil, io.MultiReader(strings.NewReader("5\r\nhe"), iotest.ErrReader(broken)))
	if got, err := io.ReadAll(chunked); !errors.Is(err, broken) {
		t.Errorf("%q, %v", got, err)
	}
	cut := newBody(unsignedFraming, nil, strings.NewReader("5\r\nhe"))
	if _, err := io.ReadAll(cut); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}

// The framing of a body follows from the headers that SDKs send, with a bearer token or by either sign alone.
func TestFramingIsByHeaders(t *testing.T) {
	for _, tc := range []struct {
		name, headers, raw, want string
	}{
		{"nothing", "Content-Length: 5\r\n", "hello", "hello"},
		{"another encoding", "Content-Length: 5\r\nContent-Encoding: gzip\r\n", "hello", "hello"},
		{
			"boto3 with a bearer token", "Transfer-Encoding: chunked\r\nContent-Encoding: gzip, aws-chunked\r\nX-Amz-Trailer: x-amz-checksum-crc32\r\nX-Amz-Decoded-Content-Length: 5\r\n",
			"2e\r\n5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n\r\n0\r\n\r\n", "hello",
		},
		{
			"minio-go without a content encoding", "Content-Length: 177\r\nX-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\nX-Amz-Decoded-Content-Length: 5\r\n",
			encode(testChain(), "", "hello"), "hello",
		},
		{"unsigned payload in chunks", "Content-Length: 15\r\nX-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\nContent-Encoding: AWS-chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", "hello"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := arrive(t, "PUT /b/k HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer x\r\n"+tc.headers+"\r\n"+tc.raw)
			f, err := FramingOf(r)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(f.Body(r.Body)); err != nil || string(got) != tc.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	r := arrive(t, "PUT / HTTP/1.1\r\nHost: h\r\nX-Amz-Content-Sha256: a\r\nX-Amz-Content-Sha256: b\r\n\r\n")
	if _, err := FramingOf(r); code(t, err) != CodeArgument {
		t.Error(err)
	}
}
