package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

func (a *app) gcCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Free the space of deleted content on this node now",
		Long: `Frees on this node at once what it would free later in the background: content
that the cluster does not want here any more, imports that are pinned or have
expired, and the space of both in the files of the block store. It frees nothing
that an upload in progress or an open file needs, and prints what had to stay.
If another collection runs on the node, the command waits for it first.`,
		Example: "  holdfast gc --data ~/node1",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			c, err := o.Collect(cmd.Context())
			if err != nil {
				return err
			}
			var kept strings.Builder
			for _, k := range c.Kept {
				fmt.Fprintf(&kept, "\nkept      %d, %s: %s", k.Count, humanBytes(k.Bytes), whyKept(k.Reason))
			}
			return a.did(asJSON, c, "blocks    %d freed, %s\nfiles     %d removed, %s\nleft      %s of blocks in files of %s%s",
				c.Blocks, humanBytes(c.Bytes), c.Files, humanBytes(c.FileBytes), humanBytes(c.LiveBytes), humanBytes(c.DiskBytes), kept.String())
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// whyKept returns a text for people about why content cannot be freed yet.
func whyKept(reason string) string {
	switch reason {
	case "uploads":
		return "bodies of uploads that are arriving"
	case "imports":
		return "imports that wait for their pin, for at most an hour without one"
	case "leases":
		return "uploads whose outcome is not known yet"
	case "readers":
		return "deleted content that is being read"
	case "last_copies":
		return "content that no other member is known to have"
	case "waiting":
		return "content whose deletion waits for a majority of the members"
	}
	return reason
}

func (a *app) fsckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Check the state and the blocks of this node for differences",
		Long: `Computes the indexes and counters of this node's copy of the state from its
records, and the reference counts of its block store, and compares the copies
that the state records for this node with those in the block store. It prints
each difference and repairs nothing. It checks one node: run it on each. It does
not read blocks; "holdfast scrub" does that. Requests are served meanwhile.
Exit code 1 means that something differs.`,
		Example: "  holdfast fsck --data ~/node1",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			c, err := o.Check(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.did(asJSON, c, "%s", checkedText(&c)); err != nil {
				return err
			}
			switch n := uint64(len(c.Differences)) + c.More; {
			case n == 0:
				return nil
			case c.AtLeast:
				return fmt.Errorf("at least %d differences", n)
			case n == 1:
				return errors.New("1 difference")
			default:
				return fmt.Errorf("%d differences", n)
			}
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// checkedText returns the output of fsck: a line for each difference, and what was checked.
func checkedText(c *client.Checked) string {
	var text strings.Builder
	for _, d := range c.Differences {
		fmt.Fprintf(&text, "%s %s: stored %s, computed %s\n", d.Table, d.Key, d.Stored, d.Computed)
	}
	switch {
	case c.More > 0 && c.AtLeast:
		fmt.Fprintf(&text, "and at least %d more\n", c.More)
	case c.More > 0:
		fmt.Fprintf(&text, "and %d more\n", c.More)
	case len(c.Differences) == 0:
		text.WriteString("no differences\n")
	}
	fmt.Fprintf(&text, "checked   %d rows of the state at log entry %d, %d copies, %d rows of the block store", c.Rows, c.Index, c.Copies, c.Blocks)
	return text.String()
}
