package client

import (
	"net/http/httptest"
)

// StartFake starts a cluster of one node in memory for examples.
func StartFake() (endpoint string, stop func()) {
	c := emptyCluster()
	n := &fakeNode{c: c}
	n.server = httptest.NewServer(n)
	return n.server.URL, n.server.Close
}
