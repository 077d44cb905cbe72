package state

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of what the object gateway stores.
const (
	MaxBucketsPerUser = 1000     // buckets of an account
	MaxKeyBytes       = 1024     // bytes of an object's key
	MaxTags           = 10       // tags of an object
	MaxBucketTags     = 50       // tags of a bucket
	MaxTagKeyRunes    = 128      // characters of a tag's key
	MaxTagValueRunes  = 256      // characters of a tag's value
	MaxHeaderBytes    = 32 << 10 // bytes of an object's headers and metadata together
	MaxChecksums      = 5        // checksums of an object
	MaxPartNumber     = 10_000   // largest part number; also the largest number of parts of an upload
	MaxDeleteKeys     = 1000     // keys of one DeleteObjects
	MaxListLimit      = 1000     // entries of one page of a list
	MaxUploads        = 10_000   // open uploads of a bucket
	MaxETagBytes      = 128      // bytes of an ETag, also of one in a condition
	MaxMatches        = 64       // ETags of one condition
	MaxContentBytes   = 1 << 50  // bytes of one object, and of the blocks of its DAG
	Blake3Bytes       = 32       // bytes of a BLAKE3 hash, and of a chaining value
	MaxTrees          = 2 * 40   // chaining values of a part of MaxContentBytes, see cluster/bao
	MaxSumBytes       = 64       // bytes of a checksum; SHA512 has the longest
	MaxClassBytes     = 32       // bytes of the name of a storage class
)

// Incarnation distinguishes a bucket from a deleted one of the same name: the index of the
// log entry that created it.
type Incarnation uint64

// Bucket is a namespace of objects. It belongs to one account.
type Bucket struct {
	Account    AccountID
	Name       string
	Born       Incarnation
	Created    Millis
	Versioning Versioning
	Public     bool // every IPFS peer may fetch its content by CID
	Turning    bool // some of its versions may not follow a change of Public yet
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Bucket) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.Name, maxBucketName)
	codec.Uint(c, &v.Born)
	codec.Int(c, &v.Created)
	codec.Uint(c, &v.Versioning)
	codec.Bool(c, &v.Public)
	codec.Bool(c, &v.Turning)
}

// VersionID identifies a version of an object, or an upload part. The proposer generates a unique
// one.
type VersionID string

// Object is a version of an object, or a delete marker.
type Object struct {
	ID        VersionID
	Key       string // any bytes, at most MaxKeyBytes
	Root      RootKey
	Size      uint64 // bytes of content
	Created   Millis
	ETag      string            // hex MD5 without quotes; for an upload followed by "-" and the number of parts
	Headers   map[string]string // headers as the client sent them, such as "Content-Type", by canonical name
	Meta      map[string]string // x-amz-meta-*, names in lower case without the prefix
	Tags      []Tag             // in the order in which they were given
	Checksums []Checksum
	Parts     []PartRun // parts of the upload in order; empty for an object without parts
	Upload    UploadID  // id of the upload that made it, or ""
	Listed    Hash      // HashList of the parts from which the upload was completed
	Blake3    []byte    // BLAKE3 hash of the content; nil if it is not known
	// Versioned is true if versioning was enabled when this version was created, so that clients
	// name it by ID. Otherwise it is the key's null version.
	Versioned bool
	Marker    bool // delete marker, of which only ID, Key and Created are set
	// StorageClass is the name that the client sent, or "" for the standard class. It has no
	// effect on where or how the object is stored. Like Wanted, it needs feature level 5.
	StorageClass string
	// Wanted is the algorithm of a whole-object checksum that is still to be computed, see
	// SetObjectSums; "" means none.
	Wanted string
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Object) Code(c *codec.Coder) {
	version := v.codeListed(c)
	codec.Map(c, &v.Headers, MaxMetaPairs, MaxHeaderBytes)
	codec.Map(c, &v.Meta, MaxMetaPairs, MaxHeaderBytes)
	codeTags(c, &v.Tags, MaxTags)
	codec.List(c, &v.Parts, MaxPartNumber, func(c *codec.Coder, r *PartRun) {
		codec.Uint(c, &r.Size)
		codec.Uint(c, &r.Count)
	})
	if codec.String(c, &v.Upload, MaxIDLen); v.Upload != "" {
		codec.Fixed(c, v.Listed[:])
	}
	codec.Bytes(c, &v.Blake3, Blake3Bytes)
	if version >= 2 {
		codec.String(c, &v.Wanted, maxAlgorithm)
	}
}

// codeListed encodes or decodes the first fields of the record, which a list of objects shows. It
// returns the version of the record: 2 if the record has a field of feature level 5.
func (v *Object) codeListed(c *codec.Coder) (version uint64) {
	version = 1
	if c.Decoding() || v.StorageClass != "" || v.Wanted != "" {
		version = 2
	}
	version = c.Version(version)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.Root, MaxCIDLen)
	codec.Uint(c, &v.Size)
	codec.Int(c, &v.Created)
	codec.String(c, &v.ETag, MaxETagBytes)
	codeChecksums(c, &v.Checksums)
	codec.Bool(c, &v.Versioned)
	codec.Bool(c, &v.Marker)
	if version >= 2 {
		codec.String(c, &v.StorageClass, MaxClassBytes)
	}
	return version
}

func (v *Object) check() error {
	if v.ID == "" || len(v.ID) > MaxIDLen || len(v.Upload) > MaxIDLen || v.Created <= 0 || v.Created > maxCreated {
		return Errorf(CodeInvalid, "an object needs an id and a time")
	}
	if v.ID == NullVersion || v.Marker {
		return Errorf(CodeInvalid, "an object is no delete marker and is not called %s", NullVersion)
	}
	if v.ETag == "" || len(v.ETag) > MaxETagBytes {
		return Errorf(CodeInvalid, "an object needs an ETag of at most %d bytes", MaxETagBytes)
	}
	if err := checkObjectKey(v.Key); err != nil {
		return err
	}
	if err := checkAttributes(v.Headers, v.Meta, v.Tags); err != nil {
		return err
	}
	if err := checkChecksums(v.Checksums); err != nil {
		return err
	}
	if err := checkBlake3(v.Blake3); err != nil {
		return err
	}
	if v.Wanted != "" && (checksumBytes(v.Wanted) == 0 || len(v.Checksums) > 0) {
		return Errorf(CodeInvalid, "an object with %d checksums that is to have a %q", len(v.Checksums), v.Wanted)
	}
	if err := checkClass(v.StorageClass); err != nil {
		return err
	}
	if v.Size > MaxContentBytes {
		return Errorf(CodeTooLarge, "an object of %d bytes, the most is %d", v.Size, uint64(MaxContentBytes))
	}
	if len(v.Parts) == 0 {
		return nil
	}
	var bytes, parts uint64
	for _, r := range v.Parts {
		if r.Count == 0 || r.Count > MaxPartNumber || r.Size > MaxContentBytes {
			return Errorf(CodeInvalid, "%d parts of %d bytes", r.Count, r.Size)
		}
		parts += r.Count
		bytes = addBounded(bytes, r.Count*r.Size)
	}
	if parts > MaxPartNumber || bytes != v.Size {
		return Errorf(CodeInvalid, "%d parts of %d bytes together make no object of %d bytes", parts, bytes, v.Size)
	}
	return nil
}

// checkClass checks the characters and the length of a storage class. Which classes exist is
// decided by the gateway.
func checkClass(name string) error {
	if len(name) > MaxClassBytes {
		return Errorf(CodeInvalid, "a storage class with a name of %d bytes, the most is %d", len(name), MaxClassBytes)
	}
	return nil
}

func checkBlake3(sum []byte) error {
	if len(sum) != 0 && len(sum) != Blake3Bytes {
		return Errorf(CodeInvalid, "a BLAKE3 hash of %d bytes", len(sum))
	}
	return nil
}

// addBounded returns a + b, or math.MaxUint64 on overflow.
func addBounded(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// checkObjectKey checks the key of an object.
func checkObjectKey(k string) error {
	if k == "" || len(k) > MaxKeyBytes {
		return Errorf(CodeInvalid, "a key has between 1 and %d bytes, and not %d", MaxKeyBytes, len(k))
	}
	return nil
}

// checkAttributes checks the headers, metadata and tags of an object.
func checkAttributes(headers, meta map[string]string, tags []Tag) error {
	size := 0
	for _, m := range []map[string]string{headers, meta} {
		if len(m) > MaxMetaPairs {
			return Errorf(CodeTooLarge, "more than %d headers", MaxMetaPairs)
		}
		for k, value := range m {
			size += len(k) + len(value)
		}
	}
	if size > MaxHeaderBytes {
		return Errorf(CodeTooLarge, "headers and metadata of %d bytes, the most is %d", size, MaxHeaderBytes)
	}
	return checkTags(tags, MaxTags)
}

// checkTags checks tags; more than most are an error.
func checkTags(tags []Tag, most int) error {
	if len(tags) > most {
		return Errorf(CodeInvalid, "more than %d tags", most)
	}
	for i, t := range tags {
		if n := utf8.RuneCountInString(t.Key); n == 0 || n > MaxTagKeyRunes || !utf8.ValidString(t.Key) {
			return Errorf(CodeInvalid, "the key of a tag has between 1 and %d characters", MaxTagKeyRunes)
		}
		if utf8.RuneCountInString(t.Value) > MaxTagValueRunes || !utf8.ValidString(t.Value) {
			return Errorf(CodeInvalid, "the value of a tag has at most %d characters", MaxTagValueRunes)
		}
		for _, o := range tags[:i] {
			if o.Key == t.Key {
				return Errorf(CodeInvalid, "the tag %q is there twice", t.Key)
			}
		}
	}
	return nil
}

// checksumBytes returns the length in bytes of an algorithm's digests, or 0 for an unknown
// algorithm.
func checksumBytes(algorithm string) int {
	switch algorithm {
	case "CRC32", "CRC32C":
		return 4
	case "CRC64NVME":
		return 8
	case "SHA1":
		return 20
	case "SHA256":
		return 32
	}
	return newChecksumBytes(algorithm)
}

// newChecksumBytes is checksumBytes for the algorithms that feature level 5 has added.
func newChecksumBytes(algorithm string) int {
	switch algorithm {
	case "XXHASH64", "XXHASH3":
		return 8
	case "MD5", "XXHASH128":
		return 16
	case "SHA512":
		return 64
	}
	return 0
}

// NewSums returns whether one of the checksums needs feature level 5.
func NewSums(sums ...Checksum) bool {
	return slices.ContainsFunc(sums, func(s Checksum) bool { return newChecksumBytes(s.Algorithm) > 0 })
}

func checkChecksums(sums []Checksum) error {
	if len(sums) > MaxChecksums {
		return Errorf(CodeInvalid, "more than %d checksums", MaxChecksums)
	}
	for i, s := range sums {
		if n := checksumBytes(s.Algorithm); n == 0 || n != len(s.Value) {
			return Errorf(CodeInvalid, "a checksum %q of %d bytes", s.Algorithm, len(s.Value))
		}
		for _, o := range sums[:i] {
			if o.Algorithm == s.Algorithm {
				return Errorf(CodeInvalid, "two checksums %s", s.Algorithm)
			}
		}
	}
	return nil
}

// Tag is a name and a value that an object has in addition to its metadata.
type Tag struct{ Key, Value string }

func codeTags(c *codec.Coder, tags *[]Tag, most int) {
	const bytes = 4 // of a character
	codec.List(c, tags, most, func(c *codec.Coder, t *Tag) {
		codec.String(c, &t.Key, bytes*MaxTagKeyRunes)
		codec.String(c, &t.Value, bytes*MaxTagValueRunes)
	})
}

// maxAlgorithm is the largest length of the name of a checksum algorithm, in bytes.
const maxAlgorithm = 16

// Checksum is a digest of content by one algorithm. An object can have checksums in addition to
// the MD5 in its ETag.
type Checksum struct {
	// Algorithm is the algorithm's name. Feature level 3 has "CRC32", "CRC32C", "CRC64NVME", "SHA1" and
	// "SHA256", and level 5 adds "MD5", "SHA512", "XXHASH64", "XXHASH3" and "XXHASH128".
	Algorithm string
	Value     []byte // not encoded
	Composite bool   // computed from the checksums of the parts, not from the bytes
}

// Code encodes or decodes the checksum as a part of a record.
func (v *Checksum) Code(c *codec.Coder) {
	codec.String(c, &v.Algorithm, maxAlgorithm)
	codec.Bytes(c, &v.Value, MaxSumBytes)
	codec.Bool(c, &v.Composite)
}

func codeChecksums(c *codec.Coder, sums *[]Checksum) {
	codec.List(c, sums, MaxChecksums, func(c *codec.Coder, s *Checksum) { s.Code(c) })
}

// PartRun describes Count consecutive parts of Size bytes each.
type PartRun struct{ Size, Count uint64 }

// UploadID identifies a multipart upload.
type UploadID string

// VersionOf returns the id of the version that an upload becomes when it is completed.
func VersionOf(u UploadID) VersionID { return VersionID(u) }

// Upload is a multipart upload that is not completed yet.
type Upload struct {
	ID      UploadID
	Key     string
	Created Millis
	// Since is a time by most members' clocks at which the upload existed already. Its age is
	// measured from there. 0 means that no such time is known yet.
	Since    Millis
	Headers  map[string]string
	Meta     map[string]string
	Tags     []Tag
	Checksum Checksum // Algorithm is "" for none; Value is empty
	Nodes    []NodeID // nodes that store its parts
	// StorageClass is the storage class of the object that the upload becomes.
	StorageClass string
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Upload) Code(c *codec.Coder) {
	version := uint64(1)
	if c.Decoding() || v.StorageClass != "" {
		version = 2
	}
	version = c.Version(version)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.Int(c, &v.Created)
	codec.Int(c, &v.Since)
	codec.Map(c, &v.Headers, MaxMetaPairs, MaxHeaderBytes)
	codec.Map(c, &v.Meta, MaxMetaPairs, MaxHeaderBytes)
	codeTags(c, &v.Tags, MaxTags)
	v.Checksum.Code(c)
	codec.Strings(c, &v.Nodes, MaxCopies, MaxIDLen)
	if version >= 2 {
		codec.String(c, &v.StorageClass, MaxClassBytes)
	}
}

func (v *Upload) check() error {
	if v.ID == "" || len(v.ID) > MaxIDLen || v.Created <= 0 || v.Created > maxCreated || v.Since < 0 {
		return Errorf(CodeInvalid, "an upload needs an id and a time")
	}
	if a := v.Checksum.Algorithm; a != "" && checksumBytes(a) == 0 || len(v.Checksum.Value) != 0 {
		return Errorf(CodeInvalid, "an upload with a checksum %q of %d bytes", a, len(v.Checksum.Value))
	}
	if len(v.Nodes) > MaxCopies {
		return Errorf(CodeInvalid, "an upload on %d nodes, the most is %d", len(v.Nodes), MaxCopies)
	}
	if err := checkClass(v.StorageClass); err != nil {
		return err
	}
	if err := checkObjectKey(v.Key); err != nil {
		return err
	}
	return checkAttributes(v.Headers, v.Meta, v.Tags)
}

// Part is one part of an upload.
type Part struct {
	Number    uint16 // from 1
	ID        VersionID
	Root      RootKey
	Size      uint64 // bytes of content
	Created   Millis
	ETag      string // hex MD5
	Checksums []Checksum
	// The following fields are the known part of the BLAKE3 tree of the object to which the
	// part belongs.
	Blake3 []byte // hash of the part's content as a separate object; nil if unknown
	At     uint64 // offset of the part in the object for which Trees was computed
	Trees  []byte // chaining values of the subtrees of the part; nil if not known
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Part) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.Number)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Root, MaxCIDLen)
	codec.Uint(c, &v.Size)
	codec.Int(c, &v.Created)
	codec.String(c, &v.ETag, MaxETagBytes)
	codeChecksums(c, &v.Checksums)
	codec.Bytes(c, &v.Blake3, Blake3Bytes)
	codec.Uint(c, &v.At)
	codec.Bytes(c, &v.Trees, MaxTrees*Blake3Bytes)
}

func (v *Part) check() error {
	if v.ID == "" || len(v.ID) > MaxIDLen || v.Created <= 0 || v.Created > maxCreated ||
		v.ETag == "" || len(v.ETag) > MaxETagBytes {
		return Errorf(CodeInvalid, "a part needs an id, a time and an ETag")
	}
	if v.Number == 0 || v.Number > MaxPartNumber {
		return Errorf(CodeInvalid, "parts have the numbers 1 to %d, and not %d", MaxPartNumber, v.Number)
	}
	if v.Size > MaxContentBytes {
		return Errorf(CodeTooLarge, "a part of %d bytes, the most is %d", v.Size, uint64(MaxContentBytes))
	}
	if err := checkBlake3(v.Blake3); err != nil {
		return err
	}
	if v.At > MaxContentBytes || len(v.Trees)%Blake3Bytes != 0 || len(v.Trees) > MaxTrees*Blake3Bytes {
		return Errorf(CodeInvalid, "a part of %d bytes of chaining values behind %d bytes", len(v.Trees), v.At)
	}
	return checkChecksums(v.Checksums)
}

// Holding is a node's report, made in one of its epochs, that it durably stores the complete
// content of a root. After a Fence, reports of earlier epochs are not valid.
type Holding struct {
	Node  NodeID
	Epoch uint64
}

// Content describes content that was stored on nodes before a command references it.
type Content struct {
	Root   RootKey
	Bytes  uint64    // bytes of the DAG's blocks
	Blocks uint64    // number of the DAG's blocks
	Nodes  []NodeID  // nodes to which the root is allocated if it is new
	Held   []Holding // reports of nodes that store it already
}

// Code encodes or decodes the content as a part of a command.
func (v *Content) Code(c *codec.Coder) {
	codec.String(c, &v.Root, MaxCIDLen)
	codec.Uint(c, &v.Bytes)
	codec.Uint(c, &v.Blocks)
	codec.Strings(c, &v.Nodes, MaxCopies, MaxIDLen)
	codec.List(c, &v.Held, MaxCopies, func(c *codec.Coder, h *Holding) {
		codec.String(c, &h.Node, MaxIDLen)
		codec.Uint(c, &h.Epoch)
	})
}

// check checks the fields. root is the root that the object or part names, which must equal Root.
func (v *Content) check(root RootKey) error {
	if v.Root != root {
		return Errorf(CodeInvalid, "the content is not that of the object")
	}
	if c := v.Root.Cid(); !c.Defined() || RootOf(c) != v.Root || len(v.Root) > MaxCIDLen {
		return Errorf(CodeInvalid, "the content has no CID")
	}
	if v.Bytes > MaxContentBytes {
		return Errorf(CodeTooLarge, "content of %d bytes, the most is %d", v.Bytes, uint64(MaxContentBytes))
	}
	if v.Blocks == 0 || len(v.Nodes) > MaxCopies || len(v.Held) > MaxCopies {
		return Errorf(CodeInvalid, "content of %d blocks on %d nodes, held by %d", v.Blocks, len(v.Nodes), len(v.Held))
	}
	return nil
}

// ObjectsQuery requests a page of a bucket's keys, in byte order.
type ObjectsQuery struct {
	Prefix    string
	Delimiter string // keys that contain it after the prefix are combined into one common prefix
	After     string // only keys above this one, and common prefixes above it
	Limit     int    // keys and prefixes, at most MaxListLimit
	// Backward reverses the order: the page has the last keys and common prefixes below After,
	// last ones first. An empty After then means the end of the bucket.
	Backward bool
}

// ObjectsPage is one page of a list. Objects and Prefixes are each in the order of the query. The objects lack
// Headers, Meta, Tags, Parts, Upload and Blake3, so that the size of a page is bounded.
type ObjectsPage struct {
	Objects   []Object
	Prefixes  []string
	Truncated bool
	Next      string // After of the next page if Truncated is true: the last key or common prefix of this page
}

// VersionsQuery requests a page of a bucket's versions and delete markers, sorted by key. The
// versions of a key are sorted by time, the newest first.
type VersionsQuery struct {
	Prefix, Delimiter string
	AfterKey          string
	// AfterID names a version of AfterKey; the page begins after that version. If the version no
	// longer exists, the page begins with the newest version of AfterKey, so that versions may be
	// repeated but none is missed. "" means after all versions of AfterKey.
	AfterID VersionID
	Limit   int // versions and prefixes, at most MaxListLimit
}

// VersionsPage is one page of versions. They lack the same fields as in an ObjectsPage.
type VersionsPage struct {
	Versions  []Object
	Latest    []bool // for each version, whether it is the newest of its key
	Prefixes  []string
	Truncated bool
	NextKey   string
	NextID    VersionID
}

// UploadsQuery requests a page of a bucket's uploads, sorted by key and then by id.
type UploadsQuery struct {
	Prefix, Delimiter string
	AfterKey          string
	AfterID           UploadID // "" means after all uploads of AfterKey
	Limit             int
}

// UploadsPage is one page of uploads.
type UploadsPage struct {
	Uploads   []Upload
	Prefixes  []string
	Truncated bool
	NextKey   string
	NextID    UploadID
}

// maxBucketName is the largest length of a bucket's name in bytes.
const maxBucketName = 63

// ValidBucketName returns whether a bucket may have the name: 3 to 63 of a to z, 0 to 9,
// "." and "-", with a letter or digit at both ends (acceptance row 136).
func ValidBucketName(name string) bool {
	if len(name) < 3 || len(name) > maxBucketName || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
	}) {
		return false
	}
	return !strings.ContainsAny(name[:1]+name[len(name)-1:], ".-")
}
