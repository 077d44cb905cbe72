// Package client is a Go client of a Holdfast cluster, above all of its S3 gateway.
//
// A Client knows several nodes of one cluster and distributes its requests over them. If a node
// fails, the Client repeats the request on another node, and pauses the failed node for some
// time. It respects Retry-After. [Client.UploadFile] and [Client.DownloadFile] transfer large
// objects in parallel and continue after a crash. With [DownloadOptions.Verify] the Client
// verifies a download against the BLAKE3 hash of the object while the bytes arrive, and writes no
// wrong byte.
//
// A [Vault] stores encrypted files with hidden names. [Client.Push] makes a part of a bucket
// equal to a folder, and [Client.Pull] makes a folder equal to a part of a bucket. A Vault has
// the same two methods.
//
// [Vault.Share] shares a folder or a file of a Vault by a link, and [Client.OpenShare] opens a
// share. [Client.Shares] and [Client.RevokeShare] manage the shares of a bucket.
//
// [Client.AddPin], [Client.Pins], [Client.Pin], [Client.WaitPin] and [Client.RemovePin] use the
// Pinning Service API of the same nodes, and [Client.UploadPin] the web API, for the account of
// Options.Token. [Client.OpenContent] and [Client.OpenCAR] read content by its CID through the web API. The
// gateways tell the addresses of these APIs. A request whose answer was lost is repeated on another
// node and has its effect once.
//
// The package uses github.com/minio/minio-go for requests and signatures. Names of buckets and
// keys are those of S3: a key has up to 1,024 bytes of UTF-8.
//
// Imports: api/client/seal, std, minio-go, lukechampine.com/blake3, golang.org/x/sync.
// Never:   other packages of ours, libp2p.
package client
