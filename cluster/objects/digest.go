package objects

import (
	"crypto/md5"  //nolint:gosec // a checksum of S3
	"crypto/sha1" //nolint:gosec // a checksum of S3
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/minio/crc64nvme"
	"github.com/zeebo/xxh3"

	"github.com/holdfast-ipfs/holdfast/cluster/bao"
	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/multimd5"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Names of the checksum algorithms of Amazon S3
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html).
const (
	CRC32     = "CRC32"
	CRC32C    = "CRC32C"
	CRC64NVME = "CRC64NVME"
	SHA1      = "SHA1"
	SHA256    = "SHA256"
	SHA512    = "SHA512"
	MD5       = "MD5"
	XXHASH64  = "XXHASH64"
	XXHASH3   = "XXHASH3"
	XXHASH128 = "XXHASH128"
)

// DefaultAlgorithm is the checksum algorithm of objects and parts if the client requests none
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html).
const DefaultAlgorithm = CRC64NVME

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Algorithms returns the names of all supported checksum algorithms.
func Algorithms() []string {
	return []string{CRC32, CRC32C, CRC64NVME, SHA1, SHA256, SHA512, MD5, XXHASH64, XXHASH3, XXHASH128}
}

// NewHash returns a new hash for an algorithm, or nil if the algorithm is unknown.
func NewHash(algorithm string) hash.Hash {
	switch algorithm {
	case CRC32:
		return crc32.NewIEEE()
	case CRC32C:
		return crc32.New(castagnoli)
	case CRC64NVME:
		return crc64nvme.New()
	case SHA1:
		return sha1.New()
	case SHA256:
		return sha256.New()
	case SHA512:
		return sha512.New()
	case MD5:
		return md5.New()
	case XXHASH64:
		return xxhash.New()
	case XXHASH3:
		return xxh3.New()
	case XXHASH128:
		return xxh3.New128()
	}
	return nil
}

// Limits for hashing a body in goroutines of its own.
const (
	hashBuffer  = 256 << 10 // bytes that are passed to a hashing goroutine at once
	hashBuffers = 8         // largest number of unfinished buffers of one body
	// hashLate is the number of buffers that may wait for MD5. Up to this number they wait for
	// data of other bodies, because MD5 of several bodies at once is faster.
	hashLate = 4
)

// piece is a buffer with bytes of a body that several goroutines hash at the same time.
type piece struct {
	bytes []byte
	left  atomic.Int32 // number of goroutines that have not hashed them yet
}

// hashing is the memory and the MD5 pool that all digesters share.
type hashing struct {
	pieces sync.Pool // of *piece
	trees  bao.Buffers
	md5    multimd5.Pool
}

// digester is a reader that hashes a body while it is read. A body of up to hashBuffer bytes is
// hashed in the goroutine that reads. A longer body is hashed in up to two more goroutines: one for
// MD5, which takes more time than all other work, and the checksums, and one for the BLAKE3 tree,
// which takes the second most.
type digester struct {
	with *hashing
	r    io.Reader
	md5  *multimd5.Hash
	by   map[string]hash.Hash // hashes by algorithm; nil for MD5, which is in md5
	at   uint64               // offset of the body in its object in bytes, or unplaced
	tree *bao.Hasher          // nil if no tree is made
	read uint64

	work  []chan *piece  // channel of each goroutine, that of MD5 first; nil while the reader's goroutine hashes
	done  sync.WaitGroup // counts the goroutines
	ended bool
}

// unplaced is the offset of a body whose offset in its object is unknown.
const unplaced = math.MaxUint64

// newDigester returns a digester that reads r and computes its MD5 and the checksums of the given
// algorithms. at is the offset of r in its object, or unplaced. If it is a multiple of bao.Chunk,
// the digester also computes a BLAKE3 tree. An unknown algorithm is state.ErrInvalid.
func newDigester(with *hashing, r io.Reader, algorithms []string, at uint64) (*digester, error) {
	d := &digester{with: with, r: r, md5: with.md5.New(), by: make(map[string]hash.Hash, len(algorithms)), at: at}
	for _, a := range algorithms {
		h := NewHash(a)
		if h == nil {
			return nil, state.Errorf(state.CodeInvalid, "checksum %q is not known", a)
		}
		if a == MD5 {
			h = nil
		}
		d.by[a] = h
	}
	if at != unplaced && at%bao.Chunk == 0 {
		d.tree = with.trees.NewHasher(at)
	}
	return d, nil
}

// Read implements io.Reader.
func (d *digester) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if n > 0 {
		d.take(p[:n])
		d.read += uint64(n)
	}
	return n, err
}

// Interrupt implements ingest.Interrupter. It interrupts the body if the body implements
// ingest.Interrupter.
func (d *digester) Interrupt() {
	if b, ok := d.r.(ingest.Interrupter); ok {
		b.Interrupt()
	}
}

func (d *digester) take(p []byte) {
	if d.work == nil && d.read+uint64(len(p)) <= hashBuffer {
		d.hash(p)
		d.grow(p)
		return
	}
	if d.work == nil {
		d.md5.Wait()
		d.beside(d.hash)
		if d.tree != nil {
			d.beside(d.grow)
		}
	}
	for len(p) > 0 {
		b, ok := d.with.pieces.Get().(*piece)
		if !ok {
			b = new(piece)
		}
		n := min(len(p), hashBuffer)
		b.bytes = append(b.bytes[:0], p[:n]...)
		p = p[n:]
		b.left.Store(int32(len(d.work)))
		for _, w := range d.work {
			w <- b
		}
		if len(d.work[0]) >= hashLate {
			d.md5.Hurry()
		}
	}
}

// beside starts a goroutine that calls hash with all bytes that are read from now on.
func (d *digester) beside(hash func([]byte)) {
	work := make(chan *piece, hashBuffers)
	d.work = append(d.work, work)
	d.done.Go(func() {
		for b := range work {
			hash(b.bytes)
			if b.left.Add(-1) == 0 {
				d.with.pieces.Put(b)
			}
		}
	})
}

func (d *digester) hash(p []byte) {
	_, _ = d.md5.Write(p) // it never fails
	for _, h := range d.by {
		if h != nil {
			h.Write(p)
		}
	}
}

func (d *digester) grow(p []byte) {
	if d.tree != nil {
		_, _ = d.tree.Write(p) // it never fails
	}
}

// end waits until everything that was read is hashed, and ends the goroutines. It must be called
// for every digester, also after an error.
func (d *digester) end() {
	if d.ended {
		return
	}
	d.ended = true
	d.md5.Leave()
	for _, w := range d.work {
		close(w)
	}
	d.done.Wait()
}

func (d *digester) sums() Sums {
	d.end()
	s := Sums{By: make(map[string][]byte, len(d.by))}
	d.md5.Sum(s.MD5[:0])
	for a, h := range d.by {
		if s.By[a] = s.MD5[:]; h != nil {
			s.By[a] = h.Sum(nil)
		}
	}
	return s
}

// Blake3 returns the BLAKE3 hash of the body if its offset in the object is 0, otherwise nil. It
// implements ingest.Hashed.
func (d *digester) Blake3() []byte {
	d.end()
	if d.tree == nil || d.at != 0 {
		return nil
	}
	sum := d.tree.Sum()
	return sum[:]
}

// trees returns the BLAKE3 chaining values of the subtrees of the object's tree that the body
// makes up. It returns nil if the offset of the body is not known.
func (d *digester) trees() []byte {
	d.end()
	if d.tree == nil {
		return nil
	}
	return d.tree.Trees()
}

// combined computes the CRC of consecutive pieces from the CRCs of the pieces. Other checksums
// cannot be computed in this way.
type combined struct {
	algorithm string
	sum       uint64
	length    uint64
}

// linear returns whether the checksum of an object can be computed from the checksums of its
// parts. That is so for CRCs only.
func linear(algorithm string) bool {
	return algorithm == CRC32 || algorithm == CRC32C || algorithm == CRC64NVME
}

func (c *combined) add(sum []byte, length uint64) error {
	width, poly := 32, uint64(crc32.IEEE)
	switch c.algorithm {
	case CRC32C:
		poly = crc32.Castagnoli
	case CRC64NVME:
		width, poly = 64, crc64nvme.NVME
	}
	if len(sum) != width/8 {
		return fmt.Errorf("objects: a %s of %d bytes", c.algorithm, len(sum))
	}
	var next uint64
	for _, b := range sum {
		next = next<<8 | uint64(b)
	}
	if c.length == 0 {
		c.sum, c.length = next, length
		return nil
	}
	c.sum = shiftCRC(c.sum, poly, width, length) ^ next
	c.length += length
	return nil
}

func (c *combined) bytes() []byte {
	n := 4
	if c.algorithm == CRC64NVME {
		n = 8
	}
	b := make([]byte, n)
	for i := range b {
		b[n-1-i] = byte(c.sum >> (8 * i))
	}
	return b
}

// shiftCRC returns a reflected CRC of width bits after count more zero bytes. It ignores the
// inversions at the start and the end, which cancel each other out when two CRCs are combined. It
// multiplies crc by x^(8*count) modulo the polynomial, by repeated squaring, so its time is
// logarithmic in count. crc32_combine of zlib (Mark Adler) works in the same way.
func shiftCRC(crc, poly uint64, width int, count uint64) uint64 {
	one := uint64(1) << (width - 1) // x^0, reflected
	times := func(a, b uint64) (p uint64) {
		for m := one; m != 0 && a != 0; m >>= 1 {
			if a&m != 0 {
				p ^= b
				a &^= m
			}
			if b&1 != 0 {
				b = b>>1 ^ poly
			} else {
				b >>= 1
			}
		}
		return p
	}
	power, base := one, one>>8 // x^8
	for ; count != 0; count >>= 1 {
		if count&1 != 0 {
			power = times(power, base)
		}
		base = times(base, base)
	}
	return times(crc, power)
}
