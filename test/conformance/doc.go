// Package conformance is the black-box suite: it runs the built binary as
// three real processes on loopback and asks of it what the contract, the
// acceptance rows and the public clients of the Pinning Service API ask. It
// needs minutes, npm and Node.js, so its tests stand behind the build tag
// "conformance" and `make conformance` runs them.
//
// Imports: test/harness, boxo's pinning client, go-cid, libp2p as a stranger.
// Never:   a package of Holdfast.
package conformance
