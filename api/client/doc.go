// Package client is a Go client of the object gateway of a Holdfast cluster.
//
// A Client knows several nodes of one cluster. It spreads requests over them, repeats a
// request on another node when one fails, waits as long as Retry-After says, and returns to a
// node that was down. [Client.UploadFile] and [Client.DownloadFile] transfer large objects in
// parallel and continue after a crash. With [DownloadOptions.Verify] a download is checked
// against the BLAKE3 hash of the object while it arrives, and a wrong byte is never written.
//
// A [Vault] keeps encrypted files with hidden names. [Client.Push], [Client.Pull] and the same
// methods of a Vault make a folder and a part of a bucket equal.
//
// The package uses github.com/minio/minio-go for requests and signatures. Names of buckets
// and keys are those of S3: a key has up to 1,024 bytes of UTF-8.
//
// Imports: api/client/seal, std, minio-go, lukechampine.com/blake3, golang.org/x/sync.
// Never:   other packages of ours, libp2p.
package client
