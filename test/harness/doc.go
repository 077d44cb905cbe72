// Package harness runs the built binary as real processes, on loopback or on a simulated network
// that a test can cut, and controls them by the command line and by HTTP. It also runs foreign IPFS
// peers (test/foreign, Helia, Kubo) that provide content. A test asks for a cluster; at the end of
// the test the harness ends every process and removes every file.
//
// Imports: std, golang.org/x/sys, api/admin/client.
// Never:   imports of other packages of Holdfast.
package harness
