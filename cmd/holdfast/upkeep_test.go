package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// keptNode answers a collection and a check.
type keptNode struct {
	operator
	freed client.Collected
	found client.Checked
	err   error
}

func (n keptNode) Collect(context.Context) (client.Collected, error) { return n.freed, n.err }

func (n keptNode) Check(context.Context) (client.Checked, error) { return n.found, n.err }

// `gc` prints what was freed, what is left, and what had to stay with the reason.
func TestGcSaysWhatItFreedAndWhatStays(t *testing.T) {
	freed := client.Collected{
		Blocks: 3, Bytes: 3 << 20, Files: 1, FileBytes: 4 << 20, LiveBytes: 1 << 20, DiskBytes: 2 << 20,
		Kept: []client.Kept{{Reason: "uploads", Count: 2, Bytes: 5}, {Reason: "waiting", Count: 1, Bytes: 6}},
	}
	got := call(t, keptNode{freed: freed}, "", "gc")
	want := "blocks    3 freed, 3.0 MiB\nfiles     1 removed, 4.0 MiB\nleft      1.0 MiB of blocks in files of 2.0 MiB\n" +
		"kept      2, 5 B: bodies of uploads that are arriving\nkept      1, 6 B: content whose deletion waits for a majority of the members\n"
	if got.code != 0 || got.out != want {
		t.Errorf("%+v, want %q", got, want)
	}
	if got := call(t, keptNode{err: errors.New("no node is running")}, "", "gc"); got.code != 1 || !strings.Contains(got.errOut, "no node is running") {
		t.Errorf("%+v", got)
	}
}

// `fsck` prints a line for each difference and what was checked, and fails if something differs.
func TestFsckNamesEachDifferenceAndFails(t *testing.T) {
	one := []client.Difference{{Table: "root", Key: "bafy, pins", Stored: "1", Computed: "2"}}
	line := "root bafy, pins: stored 1, computed 2\n"
	checked := "checked   9 rows of the state at log entry 5, 2 copies, 7 rows of the block store\n"
	for _, tc := range []struct {
		name     string
		node     keptNode
		out, err string
		code     int
	}{
		{"none", keptNode{}, "no differences\n", "", 0},
		{"one", keptNode{found: client.Checked{Differences: one}}, line, "1 difference", 1},
		{"some", keptNode{found: client.Checked{Differences: one, More: 2}}, line + "and 2 more\n", "3 differences", 1},
		{"very many", keptNode{found: client.Checked{Differences: one, More: 2, AtLeast: true}}, line + "and at least 2 more\n", "at least 3 differences", 1},
		{"no node", keptNode{err: errors.New("no node is running")}, "", "no node is running", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.node.found.Index, tc.node.found.Rows, tc.node.found.Copies, tc.node.found.Blocks = 5, 9, 2, 7
			got := call(t, tc.node, "", "fsck")
			want := tc.out + checked
			if tc.node.err != nil {
				want = ""
			}
			if got.code != tc.code || got.out != want || !strings.Contains(got.errOut, tc.err) {
				t.Errorf("%+v, want %q", got, want)
			}
		})
	}
}
