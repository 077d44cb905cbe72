// Package harness runs the built binary as real processes, on loopback or on a network
// that a test can cut, and drives them by the command line and by HTTP. It also runs the
// foreign IPFS peers (test/foreign, Helia) that content comes from. A test asks it for a
// cluster; it ends every process and removes every file when the test ends.
//
// Imports: std, golang.org/x/sys.
// Never:   a package of Holdfast; it knows only the contract.
package harness
