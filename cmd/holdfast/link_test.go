package main

import (
	"slices"
	"strings"
	"testing"
)

// `console link` and `user link` print the link alone, so that a script can open it.
func TestOneTimeLinksOfTheOperator(t *testing.T) {
	node := &fakeNode{}
	for args, want := range map[string]string{
		"console link":              "http://127.0.0.1:9001/link?t=hfo_y\n",
		"user link ann@example.org": "https://console.example.org/link?t=hfo_x\n",
	} {
		if got := call(t, node, "", strings.Fields(args)...); got.code != exitOK || got.out != want {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := call(t, node, "", "user", "link", "ann@example.org", "--json"); got.code != exitOK || !strings.Contains(got.out, `"purpose": "password"`) {
		t.Errorf("as JSON: %+v", got)
	}
	if got := call(t, node, "", "user", "link"); got.code != exitUsage || !strings.Contains(got.errOut, "EMAIL is missing") {
		t.Errorf("without an address: %+v", got)
	}
	slices.Sort(node.changes)
	if want := []string{"console link", "link ann@example.org", "link ann@example.org"}; !slices.Equal(node.changes, want) {
		t.Errorf("the node is asked for %q", node.changes)
	}
}

// `user link ls` lists the links that can be used, and `user link rm` revokes one.
func TestOneTimeLinksAreListedAndRevoked(t *testing.T) {
	node := &fakeNode{}
	for _, tc := range []struct{ args, want string }{
		{"user link ls", "ann@example.org  invitation  2026-01-02T03:04:05Z  l-1"},
		{"user link ls --json", `"purpose": "invitation"`},
		{"user link rm l-1 --yes", "revoked link l-1"},
	} {
		if got := call(t, node, "", strings.Fields(tc.args)...); got.code != exitOK || !strings.Contains(got.out, tc.want) {
			t.Errorf("%s: %+v", tc.args, got)
		}
	}
	if want := []string{"revoke link l-1"}; !slices.Equal(node.changes, want) {
		t.Errorf("the node is asked for %q", node.changes)
	}
}
