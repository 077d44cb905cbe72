// Package smoke shows in well under a minute that the built binary works: three real
// processes pin content of a foreign peer, one of them is killed, and the others serve
// the content.
//
// Imports: test/harness.
// Never:   a package of Holdfast.
package smoke
