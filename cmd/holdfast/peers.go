package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
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
		wait   time.Duration
		files  []string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print a ticket with which one node can join",
		Long: `Prints one join ticket on one line, and nothing else. One node can join the
cluster with it, once, before the ticket expires.

With --file the command writes a ticket into each named file instead, which only
its user can read, and prints nothing. The setting cluster.join_file of a new
node names such a file. With --wait the command tries again while the node does
not run, is not ready, or its cluster cannot write.`,
		Example: `  holdfast token --ttl 1h
  holdfast token --wait 5m --file /run/holdfast/node2 --file /run/holdfast/node3
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
			ticket := func() (string, error) { return patientTicket(cmd.Context(), o, ttl, wait) }
			if len(files) > 0 {
				return ticketFiles(files, ticket)
			}
			text, err := ticket()
			if err != nil {
				return err
			}
			return a.did(asJSON, client.Ticket{Ticket: text}, "%s", text)
		},
	}
	spanFlagVar(cmd, &ttl, "ttl", defaultTicketTTL, "`time` until the ticket expires, such as 90m or 7d")
	spanFlagVar(cmd, &wait, "wait", 0, "`time` for which the command tries again, such as 5m; 0 tries once")
	cmd.Flags().StringArrayVar(&files, "file", nil, "`file` to write a ticket into, instead of printing it; may be repeated, with a ticket for each")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// ticketEvery is the interval at which patientTicket tries again.
const ticketEvery = time.Second

// patientTicket creates a ticket that lives for ttl. If no node runs on the data folder, or the node
// or its cluster cannot do it now, patientTicket tries again for the time wait, and then returns the
// last error. It returns any other error at once.
func patientTicket(ctx context.Context, o operator, ttl, wait time.Duration) (string, error) {
	for began := time.Now(); ; {
		ticket, err := o.CreateTicket(ctx, ttl)
		var refused *client.Error
		final := errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable
		if err == nil || final || time.Since(began) >= wait || !backoff.Wait(ctx, ticketEvery) {
			return ticket, err
		}
	}
}

// ticketFiles writes a new ticket into each file, with mode 0600. A file that exists is replaced at
// once. On an error the files that were not written yet stay as they were.
func ticketFiles(files []string, ticket func() (string, error)) error {
	for _, path := range files {
		text, err := ticket()
		if err != nil {
			return err
		}
		err = replaceFile(path, 0o600, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, text)
			return err
		})
		if err != nil {
			return fmt.Errorf("ticket: %w", err)
		}
	}
	return nil
}
