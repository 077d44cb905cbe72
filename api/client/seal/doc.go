// Package seal is the client-side encryption of objects. It encrypts their content, hides their
// names, and shares them with other people.
//
// A server sees ciphertext, storage keys that do not reveal names, and one JSON header.
// docs/encryption.md describes the format for programs that read or write it.
//
//   - [Identity] holds the keys of a person. [Generate] makes an identity, [Identity.Seal] encrypts
//     an identity for a file under a passphrase, and [OpenIdentity] reads the file.
//   - [New] encrypts an object as a stream. [Open] decrypts an object, whole or a range. [Encrypt]
//     and [Decrypt] are for objects that fit in memory.
//   - [Identity.StorageKey] returns the key under which a server stores the object of a path.
//   - [Index] stores the names of a folder, which cannot be computed from storage keys.
//   - [Identity.NewToken] shares a folder or an object. [Token.Open] verifies a token and opens
//     its key. [Link] contains a token for somebody who has no identity.
//   - [Rewrap] wraps the data key of an object for new keys, and leaves the content as it is.
//
// The package accesses no network and no files. Goroutines that an Index starts end with the
// call. All input may come from an attacker: each input has a size limit, and each kind of
// rejection has an error of its own for errors.Is. Functions are safe for concurrent use; a
// reader is not.
//
// Imports: std, golang.org/x/crypto, golang.org/x/sync, lukechampine.com/blake3, google/uuid,
// gowebpki/jcs.
// Never: anything of ours, libp2p, files, network.
package seal
