// Package objects is the use case of the object gateway: buckets, objects and
// multipart uploads of an account. It stores content first. Then one command names the
// content; the check of the state machine is authoritative.
//
// Imports: consensus/state, cluster/placement, cluster/ingest, cluster/bao, go-cid,
// uuid, xxhash, xxh3.
// Never:   raft, libp2p, storage, HTTP.
package objects

import (
	"io"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Attributes are what an object carries beside its content.
type Attributes struct {
	Headers map[string]string // canonical names, see state.Object
	Meta    map[string]string // names in lower case, without x-amz-meta-
	Tags    []state.Tag
	// StorageClass is a name that is returned with the object; "" is the standard class. It
	// does not change how the content is stored.
	StorageClass string
}

// Sums are digests of content: its MD5, and those that were asked for.
type Sums struct {
	MD5 [16]byte
	By  map[string][]byte // algorithm, as in state.Checksum -> digest
}

// Body is content as a client sends it.
type Body struct {
	Reader io.Reader
	Size   int64 // bytes; -1 when it is not known
	// Sums are the algorithms of the checksums to compute beside MD5.
	Sums []string
	// Check is called when Reader has ended and before anything has a name: it
	// returns the checksums to keep, or refuses the content. Nil: nothing is kept.
	Check func(Sums) ([]state.Checksum, error)
}

// PutRequest is one object to be stored.
type PutRequest struct {
	Key        string
	Attributes Attributes
	Body       Body
	If         state.Condition
}

// CopyRequest is one object to be made of another.
type CopyRequest struct {
	Key                  string
	SourceBucket, Source string          // Source is a key
	SourceVersion        state.VersionID // "" is the current one
	// SourceIf refuses a source by its record; nil: none is. It is called before
	// Replace is read, which it may set. A delete marker that SourceVersion names is
	// refused in any case.
	SourceIf func(*state.Object) error
	// Replace are the attributes of the copy; nil: those of the source. Tags
	// replace them too, unless KeepTags. The storage class is StorageClass in any case.
	Replace      *Attributes
	KeepTags     bool
	StorageClass string
	// Algorithm names the checksum of all bytes that the copy gets; "" copies those of the
	// source. If the checksum is unknown and the content is large, it is computed later and the
	// copy has none until then.
	Algorithm string
	If        state.Condition
}

// SourceError is an error of the source of a copy: what the copy is to replace may be
// missing too, if it has to be there.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return "source of copy: " + e.Err.Error() }

// Unwrap gives the error itself.
func (e *SourceError) Unwrap() error { return e.Err }

// UploadRequest starts a multipart upload.
type UploadRequest struct {
	Key        string
	Attributes Attributes
	// Algorithm of the parts' checksums and of the object's, "" for none, and
	// whether the object's is composed of theirs.
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

// PartCopyRequest is one part of an upload that is a piece of an object.
type PartCopyRequest struct {
	Key                  string
	Upload               state.UploadID
	Number               int
	SourceBucket, Source string
	SourceVersion        state.VersionID // "" is the current one
	SourceIf             func(*state.Object) error
	// Range gives the first byte and the number of bytes for a source of a size;
	// nil: all of it.
	Range func(size uint64) (first, count uint64, err error)
}

// CompletePart is a part as the client lists it.
type CompletePart struct {
	Number    int
	ETag      string            // without quotes
	Checksums map[string][]byte // algorithm -> what it has to be; may be empty
}

// CompleteRequest makes an object of an upload's parts.
type CompleteRequest struct {
	Key    string
	Upload state.UploadID
	Parts  []CompletePart
	If     state.Condition
	// Check refuses the object, whole but for its root, before it has a name; nil:
	// it is not refused.
	Check func(*state.Object) error
}
