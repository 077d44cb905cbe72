// Package harness runs Holdfast as its users do: the built binary, as real
// processes on loopback or in a network that a test can cut, driven by the
// command line and by HTTP. It also runs the foreign IPFS peers (test/foreign,
// Helia) that content comes from. Tests ask it for a cluster, and it ends every
// process and removes every file when the test ends.
//
// Imports: std, golang.org/x/sys.
// Never:   a package of Holdfast; what it knows is the contract.
package harness
