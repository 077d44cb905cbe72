package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"hash"
)

// First lines of the strings to sign.
const (
	chunkAlgorithm   = "AWS4-HMAC-SHA256-PAYLOAD"
	trailerAlgorithm = "AWS4-HMAC-SHA256-TRAILER"
)

// chain computes the signatures of chunks, each of which covers the one before it; the
// first covers that of the request. It is not safe for concurrent use.
type chain struct {
	mac      hash.Hash // with the key of a day, region and service
	when     string    // time and scope in signed form, each with a line end
	previous [signatureLength]byte
	text     []byte // scratch
	sum      []byte // scratch
}

func newChain(key []byte, stamp, scope string) *chain {
	return &chain{
		mac:  hmac.New(sha256.New, key),
		when: stamp + "\n" + scope + "\n",
		text: make([]byte, 0, 512),
		sum:  make([]byte, 0, sha256.Size),
	}
}

// seed computes the signature of the request, which precedes that of the first chunk.
func (c *chain) seed(request [sha256.Size]byte) {
	c.begin(algorithm)
	c.end(request)
}

// chunk returns whether signature is that of the next chunk, whose bytes have the hash
// content, and makes it the last one. The comparison takes constant time.
func (c *chain) chunk(content [sha256.Size]byte, signature []byte) bool {
	c.begin(chunkAlgorithm)
	c.text = append(c.text, c.previous[:]...)
	c.text = append(c.text, '\n')
	c.text = append(c.text, emptySHA256...)
	c.text = append(c.text, '\n')
	c.end(content)
	return subtle.ConstantTimeCompare(c.previous[:], signature) == 1
}

// trailer returns whether signature is that of the trailers, whose bytes have the hash content.
func (c *chain) trailer(content [sha256.Size]byte, signature []byte) bool {
	c.begin(trailerAlgorithm)
	c.text = append(c.text, c.previous[:]...)
	c.text = append(c.text, '\n')
	c.end(content)
	return subtle.ConstantTimeCompare(c.previous[:], signature) == 1
}

func (c *chain) begin(algorithm string) {
	c.text = append(append(c.text[:0], algorithm...), '\n')
	c.text = append(c.text, c.when...)
}

func (c *chain) end(content [sha256.Size]byte) {
	c.text = hex.AppendEncode(c.text, content[:])
	c.mac.Reset()
	c.mac.Write(c.text)
	c.sum = c.mac.Sum(c.sum[:0])
	hex.Encode(c.previous[:], c.sum)
}
