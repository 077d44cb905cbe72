// Package smoke is the shortest proof that the built binary works: three real
// processes pin real content of a foreign peer, one of them is killed, and the
// content is read from the others. It takes well below a minute, so it runs
// with every test run.
//
// Imports: test/harness.
// Never:   a package of Holdfast.
package smoke
