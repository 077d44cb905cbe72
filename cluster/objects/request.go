// Package objects manages the buckets, objects and multipart uploads of accounts for the object
// gateway. It first stores the content on nodes. Then one command creates a record that
// references the content. Checks before the command only save work; the checks of the state
// machine decide.
//
// Imports: consensus/state, cluster/placement, cluster/ingest, cluster/bao, go-cid, uuid, xxhash, xxh3.
// Never:   raft, libp2p, storage, HTTP.
package objects

import (
	"io"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Attributes are the metadata of an object that the client sets.
type Attributes struct {
	Headers map[string]string // headers by canonical name, see state.Object
	Meta    map[string]string // metadata by name in lower case, without x-amz-meta-
	Tags    []state.Tag
	// StorageClass is a name that is only stored and returned with the object; "" is the standard
	// class. It does not change how the content is stored.
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
	// Check is called after Reader has ended and before a record references the content. It
	// returns the checksums to store with the object, or an error that rejects the content. If
	// Check is nil, no checksum is stored.
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
	SourceBucket, Source string          // bucket and key of the source
	SourceVersion        state.VersionID // version of the source; "" means the current version
	// SourceIf checks the record of the source. Its error rejects the source; nil means no check.
	// It is called before Replace is read, and may set Replace. A delete marker as the source is
	// always rejected.
	SourceIf func(*state.Object) error
	// Replace has the attributes of the copy; nil means those of the source. The tags come from
	// Replace.Tags, or from the source if KeepTags is true. The storage class of the copy is
	// always the field StorageClass below.
	Replace      *Attributes
	KeepTags     bool
	StorageClass string
	// Algorithm is the checksum algorithm of the copy. If it is "", the copy gets the checksums
	// of the source. If the checksum is not known and the content is large, it is computed later,
	// and the copy has no checksum until then.
	Algorithm string
	If        state.Condition
}

// SourceError is an error about the source of a copy, such as state.ErrNoBucket. It distinguishes
// such an error from the same error about the destination.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return "source of copy: " + e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *SourceError) Unwrap() error { return e.Err }

// UploadRequest starts a multipart upload.
type UploadRequest struct {
	Key        string
	Attributes Attributes
	// Algorithm is the checksum algorithm of the parts and of the object, or "" for none. If
	// Composite is true, the checksum of the object is the hash of the concatenated checksums of
	// its parts; otherwise it is that of all bytes.
	Algorithm string
	Composite bool
}

// PartRequest describes one part of an upload.
type PartRequest struct {
	Key    string
	Upload state.UploadID
	Number int
	Body   Body
}

// PartCopyRequest describes a part of an upload whose content is copied from a range of an
// object. SourceIf is as in CopyRequest.
type PartCopyRequest struct {
	Key                  string
	Upload               state.UploadID
	Number               int
	SourceBucket, Source string
	SourceVersion        state.VersionID // "" means the current version
	SourceIf             func(*state.Object) error
	// Range returns the offset of the first byte and the number of bytes to copy from a source of
	// size bytes. If Range is nil, the part is the whole object.
	Range func(size uint64) (first, count uint64, err error)
}

// CompletePart is one entry of the list of parts that a client sends to complete an upload.
type CompletePart struct {
	Number    int
	ETag      string            // without quotes
	Checksums map[string][]byte // expected checksums by algorithm; may be empty
}

// CompleteRequest describes the completion of an upload, which makes an object of its parts.
type CompleteRequest struct {
	Key    string
	Upload state.UploadID
	Parts  []CompletePart
	If     state.Condition
	// Check is called before the object is created. An error of Check prevents that; nil means no
	// check. Its argument is the object, which may lack Root and Blake3.
	Check func(*state.Object) error
}
