// Command bench measures Holdfast as its users see it: real processes on
// loopback, driven by HTTP, one line of a table for each kind of work, with the
// processor time and the memory that it took. `make bench` runs it whole, `make
// bench-short` in a minute.
//
//	go run ./test/bench [-short] [-only REGEXP] [-million N] [-soak DURATION]
//	go run ./test/bench -url URL[,URL] -token TOKEN
//
// With -url it measures any pinning service, by what clients can ask of it, and
// removes what it has created.
//
// HOLDFAST_BIN names a binary that is there already, as for the tests.
//
// Imports: std, test/harness, go-cid, multihash.
// Never:   a package of Holdfast; what it knows is the contract.
package main
