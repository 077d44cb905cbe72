// Command bench measures Holdfast as its users see it. It runs real processes on loopback, sends
// them HTTP requests, and prints a table with one row for each kind of work. A row also has the
// processor time and the memory of the nodes. `make bench` runs all measurements, `make
// bench-short` runs short ones in a minute.
//
//	go run ./test/bench [-short] [-only REGEXP] [-million N] [-scale N,N [-scale-alone]] [-soak DURATION]
//	go run ./test/bench -url URL[,URL] -token TOKEN
//
// With -url, bench measures any pinning service that is already running, as far as a client can
// measure it. It removes the pins that it has created.
//
// If the environment variable HOLDFAST_BIN is set, bench uses this binary and does not build one.
//
// Imports: std, test/harness, internal/x402test, go-cid, multihash.
// Never:   imports of other packages of Holdfast: it uses only the public APIs.
package main
