package state

// Bounds of what the object gateway stores.
const (
	MaxBucketsPerUser = 1000     // buckets of an account
	MaxKeyBytes       = 1024     // bytes of an object's key
	MaxTags           = 10       // tags of an object
	MaxTagKeyRunes    = 128      // characters of a tag's key
	MaxTagValueRunes  = 256      // characters of a tag's value
	MaxHeaderBytes    = 32 << 10 // bytes of an object's headers and metadata together
	MaxChecksums      = 5        // checksums of an object
	MaxPartNumber     = 10_000   // of a part; also the parts of an upload
	MaxDeleteKeys     = 1000     // keys of one DeleteObjects
	MaxListLimit      = 1000     // entries of one page of a list
)

// Incarnation tells a bucket from one of the same name that was deleted: the index
// of the log entry that made it.
type Incarnation uint64

// Bucket is a namespace of objects that belongs to one account.
type Bucket struct {
	Account AccountID
	Name    string
	Born    Incarnation
	Created Millis
}

// VersionID names one version of one object, and one part; it is unique, and its
// proposer mints it.
type VersionID string

// Object is the version of an object that is current under its key.
type Object struct {
	ID        VersionID
	Key       string // any bytes, MaxKeyBytes of them
	Root      RootKey
	Size      uint64 // bytes of content
	Created   Millis
	ETag      string            // without quotes: hex MD5, of an upload with "-parts" behind it
	Headers   map[string]string // as sent: "Content-Type", "Cache-Control" and so on, canonical names
	Meta      map[string]string // x-amz-meta-*, names in lower case without the prefix
	Tags      []Tag             // in the order in which they were given
	Checksums []Checksum
	Parts     []PartRun // of an upload, in order; empty for one that came in one piece
	Upload    UploadID  // that made it, or ""
}

// Tag is a name and a value that an object carries beside its metadata.
type Tag struct{ Key, Value string }

// Checksum is a digest of content beside its MD5.
type Checksum struct {
	Algorithm string // "CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"
	Value     []byte // not encoded
	Composite bool   // of the checksums of its parts, not of the bytes
}

// PartRun are parts of one size that follow each other.
type PartRun struct{ Size, Count uint64 }

// UploadID names a multipart upload.
type UploadID string

// Upload is an object whose parts are still coming.
type Upload struct {
	ID       UploadID
	Key      string
	Created  Millis
	Headers  map[string]string
	Meta     map[string]string
	Tags     []Tag
	Checksum Checksum // Algorithm "" for none; Value is empty
	Nodes    []NodeID // where its parts are kept
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
}

// Holding says that a node holds the whole content of a root, durable, since it
// said so in one of its epochs. Fence ends an epoch: what a node said earlier does
// not count any more.
type Holding struct {
	Node  NodeID
	Epoch uint64
}

// Content is what was stored on nodes and gets a name by the command that carries
// it.
type Content struct {
	Root   RootKey
	Bytes  uint64    // of the DAG's blocks
	Blocks uint64    // of the DAG
	Nodes  []NodeID  // where it is to be kept, should the root be new
	Held   []Holding // those that keep it already
}

// Condition is what has to be true of the current version for a change to happen;
// the zero Condition always holds.
type Condition struct {
	Absent bool     // there is none
	Match  []string // its ETag is one of these; "*" is any
}

// ObjectsQuery asks for a page of a bucket's keys, in the order of their bytes.
type ObjectsQuery struct {
	Prefix    string
	Delimiter string // keys that hold it behind the prefix are rolled up into one prefix
	After     string // keys above this one only, and prefixes above it
	Limit     int    // keys and prefixes, at most MaxListLimit
}

// ObjectsPage is one page of a list. Objects and Prefixes are each in order.
type ObjectsPage struct {
	Objects   []Object
	Prefixes  []string
	Truncated bool
	Next      string // After of the next page, when Truncated: the last key or prefix of this one
}

// UploadsQuery asks for a page of a bucket's uploads, by key and then by id.
type UploadsQuery struct {
	Prefix, Delimiter string
	AfterKey          string
	AfterID           UploadID // of AfterKey; "" begins behind all uploads of AfterKey
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
