// Package seal encrypts objects before they are uploaded, hides their names, and shares them.
//
// A server sees ciphertext, storage keys that say nothing, and one JSON header. The format is
// written down in docs/encryption.md, so that other programs can read and write it.
//
//   - [Identity] holds the keys of a person; [Generate] makes one, [Identity.Seal] and
//     [OpenIdentity] turn it into a file under a passphrase and back.
//   - [New] encrypts an object as a stream, [Open] decrypts one, whole or a range. [Encrypt] and
//     [Decrypt] do both for objects that fit in memory.
//   - [Identity.StorageKey] is the name under which a server stores a path.
//   - [Index] keeps the names of a folder where storage keys cannot be turned back.
//   - [Identity.NewToken] shares a folder or an object; [Token.Open] verifies a token and opens
//     it; [Link] is a token for somebody who has no identity.
//   - [Rewrap] gives an object to new keys without touching its content.
//
// The package does no network and no file access. Goroutines that an Index starts end with the
// call. Everything may come from an attacker: each input has a bound, and each refusal has an error
// of its own, to be compared with errors.Is. Functions are safe for concurrent use; a reader is not.
//
// Imports: std, golang.org/x/crypto, golang.org/x/sync, lukechampine.com/blake3, google/uuid,
// gowebpki/jcs.
// Never: anything of ours, libp2p, files, network.
package seal
