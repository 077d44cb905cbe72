// Package console tests the web console of the built program as a person uses it: it opens pages in
// a real browser, Chromium, from a follower of a cluster of three nodes.
package console
