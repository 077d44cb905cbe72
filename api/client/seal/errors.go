package seal

import "errors"

// Errors of headers and keys.
var (
	// ErrNotEncrypted: the object does not have the headers that mark an encrypted object.
	ErrNotEncrypted = errors.New("object is not encrypted")
	// ErrHeader: the encryption header is not JSON of the specified form.
	ErrHeader = errors.New("encryption header is malformed")
	// ErrVersion: the header has a version that this reader does not know.
	ErrVersion = errors.New("encryption version is not supported")
	// ErrPlainLink: the link leads to content that is not encrypted, for which this package is not
	// needed.
	ErrPlainLink = errors.New("the link is to content that is not encrypted")
	// ErrAlgorithm: the header names a cipher that this reader does not know.
	ErrAlgorithm = errors.New("encryption algorithm is not supported")
	// ErrWrongKey: the data key was not wrapped for this key, or the wrapped key was changed.
	ErrWrongKey = errors.New("data key cannot be opened with this key")
	// ErrNoFolderKey: a folder key cannot open the object, because only its owner can open it.
	ErrNoFolderKey = errors.New("object is not encrypted for its folder")
	// ErrTooLarge: a value exceeds the size limit for its kind.
	ErrTooLarge = errors.New("value is too large")
)

// Errors of private metadata and content.
var (
	// ErrMetadata: the private metadata was changed, or is not of the specified form.
	ErrMetadata = errors.New("private metadata is damaged")
	// ErrNoMetadata: the object has no private metadata, and [Options] does not allow that.
	ErrNoMetadata = errors.New("object has no private metadata")
	// ErrWrongObject: the object is intact, but has another path than expected.
	ErrWrongObject = errors.New("object belongs to another path")
	// ErrContent: the content was changed, or belongs to another object.
	ErrContent = errors.New("content is damaged")
	// ErrChunk: a chunk was changed, or belongs to another object.
	ErrChunk = errors.New("chunk is damaged or of another object")
	// ErrChunkRepeated: an earlier chunk appears again at the place of a later chunk.
	ErrChunkRepeated = errors.New("chunk is repeated")
	// ErrChunkMoved: another chunk of the object is at the place of this one, because chunks were
	// swapped or left out.
	ErrChunkMoved = errors.New("chunk is not at its place")
	// ErrTruncated: the content ends before its last byte.
	ErrTruncated = errors.New("content is cut off")
	// ErrTrailing: bytes follow the end of the content.
	ErrTrailing = errors.New("content continues after its end")
	// ErrHash: every chunk is authentic, but the plaintext does not have its content hash.
	ErrHash = errors.New("content hash does not match")
	// ErrRange: a byte range is not inside the content.
	ErrRange = errors.New("range is outside the content")
)

// Errors of encryption.
var (
	// ErrSourceChanged: the plaintext does not match the digest that was given before.
	ErrSourceChanged = errors.New("plaintext changed while it was encrypted")
	// ErrUnfinished: the size and the hash of a stream are not known until the stream was read to
	// its end.
	ErrUnfinished = errors.New("stream has not been encrypted to its end")
	// ErrPath: a path is not absolute, or not in its shortest form.
	ErrPath = errors.New("path is not absolute and clean")
	// ErrPathUnreadable: a path contains a character sequence for which recipients of a share reject it.
	ErrPathUnreadable = errors.New("recipients of a share could not read a file of this name")
)

// Errors of identities.
var (
	// ErrIdentity: an identity, or a share identity, is not of the specified form.
	ErrIdentity = errors.New("identity is malformed")
	// ErrPassphrase: the passphrase is wrong, or the identity file was changed.
	ErrPassphrase = errors.New("passphrase is wrong or the identity file is damaged")
	// ErrCost: the argon2id parameters of the identity file are outside the accepted bounds.
	ErrCost = errors.New("passphrase parameters are out of bounds")
)

// Errors of share tokens, in the order in which they are checked.
var (
	// ErrToken: the token or link is not of the specified form.
	ErrToken = errors.New("share token is malformed")
	// ErrTokenSignature: the token was changed, or was not signed by the key that it names.
	ErrTokenSignature = errors.New("share token has a wrong signature")
	// ErrTokenOwner: the owner of the token is not one of those that the recipient knows.
	ErrTokenOwner = errors.New("share token is of an unknown owner")
	// ErrTokenNotYet: the creation time of the token is in the future.
	ErrTokenNotYet = errors.New("share token is not valid yet")
	// ErrTokenExpired: the token has expired.
	ErrTokenExpired = errors.New("share token has expired")
	// ErrTokenRecipient: the token was made for another recipient.
	ErrTokenRecipient = errors.New("share token is for another recipient")
	// ErrPathEscape: a path leaves the root, or hides a separator or dot segment in a percent
	// escape.
	ErrPathEscape = errors.New("path escapes its folder")
	// ErrPathScope: the path is outside the folder that the token grants.
	ErrPathScope = errors.New("path is outside the shared folder")
	// ErrPermission: the token does not grant the requested permission.
	ErrPermission = errors.New("share token does not permit this")
)

// Errors of the index of names.
var (
	// ErrIndex: a part of the index was changed, or belongs to another place of the index.
	ErrIndex = errors.New("index of names is damaged")
	// ErrIndexMissing: a part of the index is missing.
	ErrIndexMissing = errors.New("part of the index of names is missing")
	// ErrConflict is returned by a [Store] if the object does not have the expected ETag. An
	// [Index] returns it if other writers were faster in too many attempts.
	ErrConflict = errors.New("object was changed by another writer")
	// ErrNotFound is returned by [Store.Get] for a missing object, and by [Index.Lookup] for a missing
	// name.
	ErrNotFound = errors.New("not found")
)
