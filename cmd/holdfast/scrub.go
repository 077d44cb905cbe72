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
		Long: `Reads and verifies every block that this node stores. The node fetches damaged
and missing blocks again from other members, and the command waits for that.
Exit code 1 means that some blocks are still missing; the node keeps trying.
The node also does this in the background, slowly, all the time.`,
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
				return fmt.Errorf("%d of %d damaged blocks are not repaired yet: no other member has sent them so far", s.Damaged-s.Repaired, s.Damaged)
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
