// Package smoke checks within seconds that the built binary works: three real processes pin content
// of a foreign IPFS peer, the test kills one of them, and the others still serve the content.
//
// Imports: test/harness.
// Never:   imports of packages of Holdfast.
package smoke
