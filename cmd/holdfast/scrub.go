package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) scrubCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "scrub",
		Short: "Verify the blocks stored on this node now",
		Long: `Reads every block that this node stores and checks it. Damaged and missing
blocks are fetched again from other members, and the command waits for that. The
node does the same by itself, slowly, all the time. Exit code 1 means that some
are still missing; the node goes on trying.`,
		Example: "  holdfast scrub --data ~/node1",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			s, err := o.Scrub(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.did(asJSON, s, "verified  %d blocks, %s\ndamaged   %d\nrepaired  %d", s.Blocks, humanBytes(s.Bytes), s.Damaged, s.Repaired); err != nil {
				return err
			}
			if s.Repaired < s.Damaged {
				return fmt.Errorf("%d of %d damaged blocks are not repaired yet: no other member gave them so far", s.Damaged-s.Repaired, s.Damaged)
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
