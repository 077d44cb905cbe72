// Package objects is the use case of the object gateway: buckets, objects and multipart uploads
// of an account. It stores the content first. Then one command names the content; the checks of
// the state machine are authoritative.
//
// Imports: consensus/state, cluster/placement, cluster/ingest, cluster/bao, go-cid,
// uuid, xxhash, xxh3.
// Never:   raft, libp2p, storage, HTTP.
package objects

import (
	"io"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Attributes are the data of an object in addition to its content.
type Attributes struct {
	Headers map[string]string // headers by canonical name, see state.Object
	Meta    map[string]string // metadata by name in lower case, without x-amz-meta-
	Tags    []state.Tag
	// StorageClass is a name that is returned with the object; "" is the standard class. It
	// does not change how the content is stored.
	StorageClass string
}

// Sums are digests of content: its MD5, and the requested checksums.
type Sums struct {
	MD5 [16]byte
	By  map[string][]byte // digest by algorithm; algorithms as in state.Checksum
}

// Body is content that a client sends.
type Body struct {
	Reader io.Reader
	Size   int64 // size in bytes; -1 if it is not known
	// Sums are the algorithms of the checksums to compute in addition to MD5.
	Sums []string
	// Check is called when Reader has ended and before any record refers to the content. It
	// returns the checksums to keep, or an error that refuses the content. If Check is nil, no
	// checksum is kept.
	Check func(Sums) ([]state.Checksum, error)
}

// PutRequest describes an object to store.
type PutRequest struct {
	Key        string
	Attributes Attributes
	Body       Body
	If         state.Condition
}

// CopyRequest describes an object to make from another object.
type CopyRequest struct {
	Key                  string
	SourceBucket, Source string          // bucket of the source; Source is its key
	SourceVersion        state.VersionID // version of the source; "" means the current one
	// SourceIf returns an error if it refuses a source by its record. If SourceIf is nil, no
	// source is refused. It is called before Replace is read, and may set Replace. A delete
	// marker that SourceVersion names is always refused.
	SourceIf func(*state.Object) error
	// Replace has the attributes of the copy; nil means those of the source. Tags replaces the
	// tags too, unless KeepTags is true. The storage class of the copy is always StorageClass.
	Replace      *Attributes
	KeepTags     bool
	StorageClass string
	// Algorithm names the checksum of all bytes that the copy gets. If it is "", the copy gets
	// the checksums of the source. If the checksum is not known and the content is large, it is
	// computed later, and the copy has no checksum until then.
	Algorithm string
	If        state.Condition
}

// SourceError is an error about the source of a copy. It is distinct from errors about the
// destination, which may have to exist too.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return "source of copy: " + e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *SourceError) Unwrap() error { return e.Err }

// UploadRequest starts a multipart upload.
type UploadRequest struct {
	Key        string
	Attributes Attributes
	// Algorithm is the checksum algorithm of the parts and of the object, or "" for none. The
	// field after it says whether the checksum of the object is composed of those of the parts.
	Algorithm string
	Composite bool
}

// PartRequest is one part of an upload.
type PartRequest struct {
	Key    string
	Upload state.UploadID
	Number int
	Body   Body
}

// PartCopyRequest describes a part of an upload that is a range of an object.
type PartCopyRequest struct {
	Key                  string
	Upload               state.UploadID
	Number               int
	SourceBucket, Source string
	SourceVersion        state.VersionID // "" means the current version
	SourceIf             func(*state.Object) error
	// Range returns the first byte and the number of bytes for a source of the given size. If
	// Range is nil, the part is the whole object.
	Range func(size uint64) (first, count uint64, err error)
}

// CompletePart is a part in the list that a client sends.
type CompletePart struct {
	Number    int
	ETag      string            // without quotes
	Checksums map[string][]byte // expected checksums by algorithm; may be empty
}

// CompleteRequest completes an upload: its parts become an object.
type CompleteRequest struct {
	Key    string
	Upload state.UploadID
	Parts  []CompletePart
	If     state.Condition
	// Check returns an error to refuse the object before it gets a name. The object is complete
	// except for its root. If Check is nil, the object is not refused.
	Check func(*state.Object) error
}
