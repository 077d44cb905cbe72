// Package console tests the web console of the built program in a real browser, as a person
// uses it: Chromium against a follower of three nodes.
package console
