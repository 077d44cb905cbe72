package sigv4

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
)

const (
	// checkedChunk is the largest size in bytes of a signed chunk that Read verifies before it
	// returns any byte of the chunk. SDKs that sign chunks send chunks of 64 or 128 KiB.
	checkedChunk = 128 << 10

	// plainBuffer is the size in bytes of the read buffer for chunks without signatures. Larger
	// reads bypass the buffer.
	plainBuffer = 8 << 10

	// maxLine is the maximum length of a line of the framing, in bytes. A line with the size and the
	// signature of a chunk, or with a trailer, has about 100.
	maxLine = 1 << 10

	// maxTrailerBytes is the maximum number of bytes after the last chunk.
	maxTrailerBytes = 8 << 10

	// maxSizeDigits is the maximum number of hexadecimal digits of a chunk's size.
	maxSizeDigits = 16
)

// minBuffer is the minimum size of the read buffer in bytes. A line of the framing and the end of
// a chunk fit into it.
const minBuffer = 4 << 10

// Trailer is an HTTP header that follows the chunks of a body.
type Trailer struct {
	Name  string // in lower case
	Value string
}

// Body is a reader of the bytes of an object. It removes the framing of the request body and
// verifies its signatures and hashes.
//
// Only io.EOF means that all signatures and hashes are right and that nothing is missing. Until
// then, the caller must not do anything with the bytes that it cannot undo. Read verifies a
// signed chunk of up to 128 KiB before it returns a byte of the chunk. It returns the bytes of a
// larger chunk as they arrive, and verifies them at the end of the chunk, because the chunk would
// otherwise have to be in memory. A body with one hash is verified at its end.
//
// A Body needs at most about 140 KiB of memory, and 8 KiB without signatures.
type Body struct {
	framing Framing
	chain   *chain // nil: signatures are not verified

	src  io.Reader
	in   *bufio.Reader // reads src, if there are chunks
	sum  hash.Hash     // hash of a plain body, or of a chunk larger than checkedChunk; else nil
	seen int64         // bytes in the chunks so far, the current one included, or bytes read of a plain body

	left      int64                 // bytes left in the current chunk
	held      bool                  // the current chunk was verified before Read returned a byte of it
	signature [signatureLength]byte // signature of the current chunk

	trailers []Trailer
	err      error // returned by every further Read
}

func newBody(f Framing, links *chain, src io.Reader) *Body {
	b := &Body{framing: f, src: src}
	switch {
	case !f.Chunked:
		if f.summed {
			b.sum = sha256.New()
		}
	case f.Signed && links != nil:
		b.chain = links
		size := int64(checkedChunk)
		if f.Length >= 0 {
			size = min(size, f.Length)
		}
		b.in = bufio.NewReaderSize(src, max(minBuffer, int(size)+len("\r\n")))
	default:
		b.in = bufio.NewReaderSize(src, plainBuffer)
	}
	return b
}

// Trailers returns the trailers. It is valid after Read has returned io.EOF, and then has exactly
// the trailers that were announced.
func (b *Body) Trailers() []Trailer { return b.trailers }

// Read implements io.Reader. Its errors are an *Error or the error of the source.
func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := b.read(p)
	if err != nil {
		b.err = err
	}
	return n, err
}

func (b *Body) read(p []byte) (int, error) {
	if b.in == nil {
		return b.readPlain(p)
	}
	for b.left == 0 {
		if err := b.nextChunk(); err != nil {
			return 0, err
		}
	}
	n, err := b.in.Read(p[:min(int64(len(p)), b.left)])
	if b.sum != nil {
		b.sum.Write(p[:n])
	}
	b.left -= int64(n)
	if err != nil {
		return 0, b.cut(err)
	}
	if b.left > 0 {
		return n, nil
	}
	if err := b.endChunk(); err != nil {
		return 0, err
	}
	return n, nil
}

// readPlain is Read for a body without framing.
func (b *Body) readPlain(p []byte) (int, error) {
	n, err := b.src.Read(p)
	b.seen += int64(n)
	if b.sum != nil {
		b.sum.Write(p[:n])
	}
	if b.framing.Length >= 0 && b.seen > b.framing.Length {
		return 0, errorf(CodeIncomplete, "the body is longer than the %d bytes that were announced", b.framing.Length)
	}
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		return 0, b.cut(err)
	}
	if b.framing.Length >= 0 && b.seen != b.framing.Length {
		return 0, b.cut(io.ErrUnexpectedEOF)
	}
	if b.sum != nil && subtle.ConstantTimeCompare(b.sum.Sum(nil), b.framing.sum[:]) != 1 {
		return 0, errorf(CodePayload, "the provided x-amz-content-sha256 header does not match what was computed")
	}
	return n, io.EOF
}

// nextChunk reads the size and the signature of the next chunk, and verifies a small chunk. After
// the last chunk, which is empty, it returns io.EOF.
func (b *Body) nextChunk() error {
	line, err := b.line()
	if err != nil {
		return err
	}
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return errorf(CodeIncomplete, "a line before a chunk does not end in CR LF")
	}
	size, err := b.chunkHead(text)
	if err != nil {
		return err
	}
	b.seen += size
	if b.seen > MaxLength {
		return errorf(CodeRequest, "the chunks have more than %d bytes", int64(MaxLength))
	}
	if b.framing.Length >= 0 && b.seen > b.framing.Length {
		return errorf(CodeIncomplete, "the chunks have more than the %d bytes that x-amz-decoded-content-length announces", b.framing.Length)
	}
	if size == 0 {
		return b.end()
	}
	b.left, b.held, b.sum = size, false, nil
	if b.chain == nil {
		return nil
	}
	if size > checkedChunk {
		b.sum = sha256.New()
		return nil
	}
	b.held = true
	whole, err := b.in.Peek(int(size) + len("\r\n"))
	if err != nil {
		return b.cut(err)
	}
	if !b.chain.chunk(sha256.Sum256(whole[:size]), b.signature[:]) {
		return errChunkSignature()
	}
	return nil
}

// chunkHead parses SIZE[;chunk-signature=SIGNATURE], the line before a chunk, without its line
// break.
func (b *Body) chunkHead(text []byte) (size int64, err error) {
	number, extension, extended := bytes.Cut(text, []byte(";"))
	if len(number) == 0 || len(number) > maxSizeDigits {
		return 0, errorf(CodeIncomplete, "a chunk's size has not 1 to %d hexadecimal digits", maxSizeDigits)
	}
	for _, c := range number {
		digit := nibble(c)
		if digit < 0 {
			return 0, errorf(CodeIncomplete, "a chunk's size is not hexadecimal")
		}
		if size = size<<4 | int64(digit); size > MaxLength {
			return 0, errorf(CodeRequest, "a chunk has more than %d bytes", int64(MaxLength))
		}
	}
	signature, named := bytes.CutPrefix(extension, []byte("chunk-signature="))
	if extended && (!named || len(signature) != signatureLength) || !extended && b.framing.Signed {
		return 0, errorf(CodeIncomplete, "a chunk has not the form <size>;chunk-signature=<signature>")
	}
	copy(b.signature[:], signature)
	return size, nil
}

// endChunk reads the line break after a chunk, and verifies a chunk that nextChunk did not
// verify.
func (b *Body) endChunk() error {
	tail, err := b.in.Peek(len("\r\n"))
	if err != nil {
		return b.cut(err)
	}
	if string(tail) != "\r\n" {
		return errorf(CodeIncomplete, "a chunk does not end in CR LF: its size is wrong")
	}
	if _, err := b.in.Discard(len(tail)); err != nil {
		return b.cut(err)
	}
	if b.chain != nil && !b.held && !b.chain.chunk([sha256.Size]byte(b.sum.Sum(nil)), b.signature[:]) {
		return errChunkSignature()
	}
	return nil
}

// end verifies the last chunk and the trailers. It returns io.EOF if everything is right.
func (b *Body) end() error {
	if b.framing.Length >= 0 && b.seen != b.framing.Length {
		return errorf(CodeIncomplete, "the chunks have %d bytes, x-amz-decoded-content-length announces %d", b.seen, b.framing.Length)
	}
	if b.chain != nil && !b.chain.chunk(sha256.Sum256(nil), b.signature[:]) {
		return errChunkSignature()
	}
	signature, err := b.readTrailers()
	if err != nil {
		return err
	}
	for _, name := range b.framing.Trailers {
		if !slices.ContainsFunc(b.trailers, func(t Trailer) bool { return t.Name == name }) {
			return errorf(CodeTrailer, "the trailer %s did not come", name)
		}
	}
	if b.chain != nil && (len(b.trailers) > 0 || signature != "") && !b.chain.trailer(b.trailerSum(), []byte(signature)) {
		return errorf(CodeChunkSignature, "the signature of the trailers does not match")
	}
	return io.EOF
}

// readTrailers reads everything after the last chunk and returns the signature of the trailers,
// or "". The body must end with an empty line; other empty lines are ignored. A trailer may end
// in LF without CR: minio-go and the published example send "name:value LF CR LF" before the
// signature.
func (b *Body) readTrailers() (signature string, err error) {
	total, ended := 0, false
	for {
		if _, err := b.in.Peek(1); err != nil {
			if errors.Is(err, io.EOF) && ended {
				return signature, nil
			}
			return "", b.cut(err)
		}
		line, err := b.line()
		if err != nil {
			return "", err
		}
		if total += len(line); total > maxTrailerBytes {
			return "", errorf(CodeTrailer, "there are more than %d bytes behind the last chunk", maxTrailerBytes)
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if ended = len(line) == 0; ended {
			continue
		}
		t, err := b.parseTrailer(line)
		switch {
		case err != nil:
			return "", err
		case signature != "":
			return "", errorf(CodeTrailer, "something follows the signature of the trailers")
		case t.Name == trailerSignature:
			signature = t.Value
		default:
			b.trailers = append(b.trailers, t)
		}
	}
}

// parseTrailer parses NAME:VALUE. It returns an error for a trailer that was not announced.
func (b *Body) parseTrailer(line []byte) (t Trailer, err error) {
	name, value, ok := strings.Cut(string(line), ":")
	t = Trailer{Name: strings.ToLower(name), Value: strings.Trim(value, " \t")}
	if !ok || !isToken(name) || strings.ContainsFunc(t.Value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return t, errorf(CodeTrailer, "a trailer is not <name>:<value>")
	}
	if t.Name == trailerSignature && b.framing.Signed && len(b.framing.Trailers) > 0 {
		if len(t.Value) != signatureLength {
			return t, errorf(CodeTrailer, "the signature of the trailers has not %d digits", signatureLength)
		}
		return t, nil
	}
	if !slices.Contains(b.framing.Trailers, t.Name) {
		return t, errorf(CodeTrailer, "the trailer %.64q was not announced by x-amz-trailer", t.Name)
	}
	if slices.ContainsFunc(b.trailers, func(o Trailer) bool { return o.Name == t.Name }) {
		return t, errorf(CodeTrailer, "the trailer %s came twice", t.Name)
	}
	return t, nil
}

// trailerSum returns the hash of the trailers in the form that is signed, sorted by name.
func (b *Body) trailerSum() [sha256.Size]byte {
	sorted := slices.SortedFunc(slices.Values(b.trailers), func(x, y Trailer) int { return strings.Compare(x.Name, y.Name) })
	var text []byte
	for _, t := range sorted {
		text = append(append(append(append(text, t.Name...), ':'), t.Value...), '\n')
	}
	return sha256.Sum256(text)
}

// line returns the next line with its line break. The bytes are valid until the next read.
func (b *Body) line() ([]byte, error) {
	line, err := b.in.ReadSlice('\n')
	if len(line) > maxLine {
		return nil, errorf(CodeIncomplete, "a line of the framing is longer than %d bytes", maxLine)
	}
	if err != nil {
		return nil, b.cut(err)
	}
	return line, nil
}

// cut converts an error of the source: a source that ended too early becomes a CodeIncomplete
// error.
func (b *Body) cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Code: CodeIncomplete, Detail: "the request body terminated unexpectedly", cause: io.ErrUnexpectedEOF}
	}
	return fmt.Errorf("read body: %w", err)
}

func errChunkSignature() error {
	return errorf(CodeChunkSignature, "the signature of a chunk does not match")
}
