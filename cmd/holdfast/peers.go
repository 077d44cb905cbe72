package main

import (
	"time"

	"github.com/spf13/cobra"
)

func (a *app) peersCommand() *cobra.Command {
	return group("peers", "Members of the cluster", `  holdfast peers ls
  holdfast peers rm 12D3KooW... --force`, a.peersListCommand(), a.peersRemoveCommand())
}

func (a *app) peersListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the members",
		Example: "  holdfast peers ls --json",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			peers, err := o.Peers(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(notNil(peers))
			}
			writePeers(a.stdout, paletteOf(a.stdout, a.environ), peers, "")
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) peersRemoveCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm ID",
		Short: "Remove a member",
		Long: `Removes a member. A node that does not answer, or that is the only holder of
some content among those that answer, is removed with --force only: what it alone
holds is then lost. One that answers stays, also with --force, while the others could
not go on without it: remove the dead ones first.`,
		Example: "  holdfast peers rm 12D3KooW... --force",
		Args:    arguments("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			return o.RemovePeer(cmd.Context(), args[0], force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove it even when it is dead or the only holder of content")
	return cmd
}

// defaultTicketTTL is how long a join ticket is good for.
const defaultTicketTTL = 24 * time.Hour

func (a *app) tokenCommand() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print a ticket that lets one node join",
		Long: `Prints one join ticket on one line, and nothing else. It admits one node,
once, until its time is over.`,
		Example: `  holdfast token --ttl 1h
  holdfast run --data ~/node2 --join "$(holdfast token --data ~/node1)"`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ttl <= 0 {
				return usagef("%s: --ttl %v is not in the future", called(cmd), ttl)
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			ticket, err := o.CreateTicket(cmd.Context(), ttl)
			if err != nil {
				return err
			}
			a.say(a.stdout, "%s\n", ticket)
			return nil
		},
	}
	spanFlagVar(cmd, &ttl, "ttl", defaultTicketTTL, "`time` that the ticket is good for, such as 90m or 7d")
	return cmd
}
