package sigv4

import (
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Values of x-amz-content-sha256 other than a hash, and names of headers.
const (
	unsignedPayload        = "UNSIGNED-PAYLOAD"
	streamingPrefix        = "STREAMING-"
	streamingSigned        = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	streamingSignedTrailer = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	streamingTrailer       = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

	contentSHA256          = "X-Amz-Content-Sha256" // in the case of net/http
	contentSHA256Parameter = "X-Amz-Content-Sha256" // of a presigned request

	awsChunked       = "aws-chunked"
	trailerSignature = "x-amz-trailer-signature"
)

const (
	// MaxLength is the maximum announced length of a body or a chunk, in bytes. It is far above
	// any object and far below an overflow.
	MaxLength = 1 << 50

	// maxTrailers is the maximum number of trailers of a body. Real bodies have one, a checksum.
	maxTrailers = 8
)

// Framing describes how the body of a request encodes the bytes of an object, by the headers of
// the request. It does not depend on the credentials: SDKs send chunks with bearer tokens too,
// and then without x-amz-content-sha256.
type Framing struct {
	// Chunked means the content encoding aws-chunked, which is independent of the chunked transfer
	// encoding of HTTP.
	Chunked bool
	// Signed means that the chunks have signatures. Only Caller.Body verifies them.
	Signed bool
	// Length is the size of the object in bytes, or -1 if it is unknown.
	Length int64
	// Trailers are the announced trailer names in lower case.
	Trailers []string

	sum    [32]byte // hash of the whole body
	summed bool
}

// FramingOf returns the framing of the body of r, a request that has no signature. For a signed
// request use Caller.Framing.
func FramingOf(r *http.Request) (Framing, error) {
	values := r.Header[contentSHA256]
	switch len(values) {
	case 0:
		return framingOf(r, "")
	case 1:
		return framingOf(r, values[0])
	}
	return Framing{}, errorf(CodeArgument, "x-amz-content-sha256 is given %d times", len(values))
}

// Body returns a reader of the object's bytes in src, the body of the request. It verifies the
// hash of the body if x-amz-content-sha256 has one. It ignores the signatures of chunks, because
// the signer is unknown.
func (f Framing) Body(src io.Reader) *Body { return newBody(f, nil, src) }

// framingOf returns the framing of the body of r. payload is the value of x-amz-content-sha256
// that is part of the signed text, or "". The body is in chunks if payload or Content-Encoding
// says so, because some clients send only one of them.
func framingOf(r *http.Request, payload string) (Framing, error) {
	f := Framing{Length: r.ContentLength}
	switch payload {
	case "", unsignedPayload:
		f.Chunked = encodedInChunks(r)
	case streamingTrailer:
		f.Chunked = true
	case streamingSigned, streamingSignedTrailer:
		f.Chunked, f.Signed = true, true
	default:
		if n, err := hex.Decode(f.sum[:], []byte(limit(payload, signatureLength+1))); err != nil || n != len(f.sum) {
			return Framing{}, errorf(CodeArgument, "x-amz-content-sha256 must be %s, %s, %s, %s or a valid SHA-256 in hexadecimal",
				unsignedPayload, streamingTrailer, streamingSigned, streamingSignedTrailer)
		}
		f.summed = true
		// One of the two is wrong: the hash is that of the bytes as sent, and chunks that
		// are not decoded would be stored.
		if encodedInChunks(r) {
			return Framing{}, errorf(CodeRequest, "a body in the encoding %s is not signed by its hash", awsChunked)
		}
	}
	var err error
	if f.Trailers, err = trailerNames(r); err != nil {
		return Framing{}, err
	}
	if len(f.Trailers) > 0 && (!f.Chunked || payload == streamingSigned) {
		return Framing{}, errorf(CodeRequest, "x-amz-trailer needs an x-amz-content-sha256 that ends in -TRAILER")
	}
	if !f.Chunked {
		return f, nil
	}
	f.Length = -1
	values := r.Header["X-Amz-Decoded-Content-Length"]
	if len(values) == 0 {
		return f, nil
	}
	n, ok := digits(values[0])
	if !ok || n > MaxLength || len(values) > 1 {
		return Framing{}, errorf(CodeArgument, "x-amz-decoded-content-length must be one number of bytes")
	}
	f.Length = n
	return f, nil
}

// limit returns the first n bytes of text, or all of a shorter text.
func limit(text string, n int) string { return text[:min(len(text), n)] }

// encodedInChunks reports whether Content-Encoding contains aws-chunked.
func encodedInChunks(r *http.Request) bool {
	for _, value := range r.Header["Content-Encoding"] {
		for coding := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.Trim(coding, " \t"), awsChunked) {
				return true
			}
		}
	}
	return false
}

// trailerNames returns the names in x-amz-trailer, in lower case.
func trailerNames(r *http.Request) ([]string, error) {
	var names []string
	for _, value := range r.Header["X-Amz-Trailer"] {
		for name := range strings.SplitSeq(value, ",") {
			name = strings.ToLower(strings.Trim(name, " \t"))
			switch {
			case !isToken(name) || name == trailerSignature:
				return nil, errorf(CodeArgument, "x-amz-trailer has to name headers")
			case slices.Contains(names, name):
				return nil, errorf(CodeArgument, "x-amz-trailer names %s twice", name)
			case len(names) == maxTrailers:
				return nil, errorf(CodeArgument, "x-amz-trailer names more than %d headers", maxTrailers)
			}
			names = append(names, name)
		}
	}
	return names, nil
}
