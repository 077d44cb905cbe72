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

// chain computes the signatures of the chunks of a body. Each signature covers that of the
// previous chunk, and the first one that of the request. A chain is not safe for concurrent use.
type chain struct {
	mac      hash.Hash             // HMAC with the signing key for a day, region and service
	when     string                // time and scope, each with a line break
	previous [signatureLength]byte // last computed signature, in hexadecimal
	text     []byte                // buffer for the string to sign
	sum      []byte                // buffer for the HMAC
}

func newChain(key []byte, stamp, scope string) *chain {
	return &chain{
		mac:  hmac.New(sha256.New, key),
		when: stamp + "\n" + scope + "\n",
		text: make([]byte, 0, 512),
		sum:  make([]byte, 0, sha256.Size),
	}
}

// seed computes the signature of the request, with which the chain begins. request is the hash of
// the canonical request.
func (c *chain) seed(request [sha256.Size]byte) {
	c.begin(algorithm)
	c.end(request)
}

// chunk computes the signature of the next chunk, whose bytes have the hash content, and reports
// whether signature equals it. The comparison takes constant time.
func (c *chain) chunk(content [sha256.Size]byte, signature []byte) bool {
	c.begin(chunkAlgorithm)
	c.text = append(c.text, c.previous[:]...)
	c.text = append(c.text, '\n')
	c.text = append(c.text, emptySHA256...)
	c.text = append(c.text, '\n')
	c.end(content)
	return subtle.ConstantTimeCompare(c.previous[:], signature) == 1
}

// trailer computes the signature of the trailers, whose bytes have the hash content, and reports
// whether signature equals it.
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
