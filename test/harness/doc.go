// Package harness runs Holdfast as its users do: the built binary, as real
// processes on loopback, driven by the command line and by HTTP. It also runs
// the foreign IPFS peers (test/foreign, Helia) that content comes from. Tests
// ask it for a cluster, and it ends every process and removes every file when
// the test ends.
//
// Imports: std.
// Never:   a package of Holdfast; what it knows is the contract.
package harness
