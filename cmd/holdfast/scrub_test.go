package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// scrubbedNode answers a scrub.
type scrubbedNode struct {
	operator
	found client.Scrubbed
	err   error
}

func (n scrubbedNode) Scrub(context.Context) (client.Scrubbed, error) { return n.found, n.err }

// `scrub` prints the verified, damaged and repaired blocks, and fails if damaged blocks are left.
func TestScrubSaysWhatItFoundAndFailsOnWhatIsLeft(t *testing.T) {
	for _, tc := range []struct {
		name     string
		node     scrubbedNode
		out, err string
		code     int
	}{
		{"all is well", scrubbedNode{found: client.Scrubbed{Blocks: 12, Bytes: 8 << 20}}, "verified  12 blocks, 8.0 MiB\ndamaged   0\nrepaired  0\n", "", 0},
		{"repaired", scrubbedNode{found: client.Scrubbed{Blocks: 12, Damaged: 3, Repaired: 3}}, "verified  12 blocks, 0 B\ndamaged   3\nrepaired  3\n", "", 0},
		{"some are left", scrubbedNode{found: client.Scrubbed{Damaged: 3, Repaired: 1}}, "verified  0 blocks, 0 B\ndamaged   3\nrepaired  1\n", "2 of 3 damaged blocks are not repaired yet", 1},
		{"no node", scrubbedNode{err: errors.New("no node is running")}, "", "no node is running", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := call(t, tc.node, "", "scrub")
			if got.code != tc.code || got.out != tc.out || !strings.Contains(got.errOut, tc.err) {
				t.Errorf("%+v", got)
			}
		})
	}
}
