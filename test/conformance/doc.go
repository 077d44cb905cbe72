// Package conformance is the suite of black-box tests. It runs the built binary as three real
// processes on loopback and checks the specification of the APIs, the rows of the acceptance list,
// and the public clients of the Pinning Service API. The tests need minutes, npm and Node.js, so
// they have the build tag "conformance"; `make conformance` runs them.
//
// Imports: test/harness, boxo's pinning client, go-cid, libp2p, and packages of Holdfast that act
// as a client or an IPFS peer (api/admin/client, api/client/seal, peer/dag, peer/peertest,
// internal/*test).
// Never:   imports of packages that serve requests: the tests see only what a client sees.
package conformance
