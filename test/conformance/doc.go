// Package conformance is the black-box suite. It runs the built binary as three real
// processes on loopback and checks the contract, the acceptance rows, and the public
// clients of the Pinning Service API. It needs minutes, npm and Node.js, so it has the
// build tag "conformance"; `make conformance` runs it.
//
// Imports: test/harness, boxo's pinning client, go-cid, libp2p as an unknown peer.
// Never:   a package of Holdfast.
package conformance
