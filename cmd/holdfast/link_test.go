package main

import (
	"slices"
	"strings"
	"testing"
)

// The commands print the link and nothing else, so that a script can open it.
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
