package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

func (a *app) peersCommand() *cobra.Command {
	return group("peers", "List, drain and remove members of the cluster", `  holdfast peers ls
  holdfast peers drain node3
  holdfast peers rm node3`, a.peersListCommand(), a.peersDrainCommand(), a.peersRemoveCommand())
}

func (a *app) peersListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the members",
		Long:    "Lists the members of the cluster as this node sees them. An asterisk marks this\nnode. PINS, USED, FREE and QUEUE are the latest figures that each member\nreported; - means that it has not reported yet.",
		Example: "  holdfast peers ls --json",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			s, err := o.Status(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(notNil(s.Peers))
			}
			writePeers(a.stdout, paletteOf(a.stdout, a.environ), &s)
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) peersRemoveCommand() *cobra.Command {
	var (
		force bool
		r     *removal
	)
	cmd := &cobra.Command{
		Use:   "rm NODE",
		Short: "Remove a member",
		Long: `Removes a member of the cluster, by its id or its name. On a terminal the
command asks first.

A member needs --force if it does not answer, or if no other answering member
holds some of its content. That content is then lost. The cluster keeps a
member that answers, even with --force, if the other voters that answer are no
majority without it. In that case remove the dead members first.`,
		Example: `  holdfast peers rm node3
  holdfast peers rm 12D3KooW... --force --yes`,
		Args: arguments("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			counted := r.json || a.asks(r) // otherwise the command does not show the count
			node, err := o.Leaving(cmd.Context(), args[0], counted)
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), r, leaves(&node)...); err != nil {
				return err
			}
			if err := o.RemovePeer(cmd.Context(), node.ID, force); err != nil {
				return err
			}
			return a.did(r.json, node, "removed member %s (%s); %s left", nameOf(&node.Peer), node.ID, plural(node.Votes, "vote"))
		},
	}
	r = removalFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "remove the member even if it does not answer or is the only holder of content")
	return cmd
}

// leaves returns lines of text that describe the effect of the removal of a member.
func leaves(node *client.Leaving) []string {
	lines := []string{fmt.Sprintf("This removes member %s (%s): %s, %s%s.", nameOf(&node.Peer), node.ID, node.Role, node.State,
		map[bool]string{true: ", the leader of the cluster"}[node.Leader])}
	lines = append(lines, fmt.Sprintf("It holds %s of content, %s in all.", pluralOf(node.Roots, "root"), humanBytes(node.UsedBytes)))
	if node.Sole > 0 {
		lines = append(lines, fmt.Sprintf("No other answering member holds %s of them: that content would be lost.", pluralOf(uint64(node.Sole), "root")))
	}
	if node.Votes > 0 {
		lines = append(lines, fmt.Sprintf("After the removal: %s, of which %d answer now and %d are needed.", plural(node.Votes, "vote"), node.Answering, node.Votes/2+1))
	}
	return lines
}

// nameOf returns the name of a member for messages, or "no name".
func nameOf(p *client.Peer) string {
	return printable(cmp.Or(p.Name, "no name"))
}

// defaultTicketTTL is the lifetime of a join ticket.
const defaultTicketTTL = 24 * time.Hour

func (a *app) tokenCommand() *cobra.Command {
	var (
		ttl    time.Duration
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print a ticket with which one node can join",
		Long: `Prints one join ticket on one line, and nothing else. One node can join the
cluster with it, once, before the ticket expires.`,
		Example: `  holdfast token --ttl 1h
  holdfast run --data ~/node2 --join "$(holdfast token --data ~/node1)"`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ttl <= 0 {
				return usagef("%s: --ttl %v must be longer than 0", called(cmd), ttl)
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			ticket, err := o.CreateTicket(cmd.Context(), ttl)
			if err != nil {
				return err
			}
			return a.did(asJSON, client.Ticket{Ticket: ticket}, "%s", ticket)
		},
	}
	spanFlagVar(cmd, &ttl, "ttl", defaultTicketTTL, "`time` until the ticket expires, such as 90m or 7d")
	jsonFlag(cmd, &asJSON)
	return cmd
}
