package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/spf13/cobra"
)

func (a *app) recoverCommand() *cobra.Command {
	var (
		lost bool
		r    *removal
	)
	cmd := &cobra.Command{
		Use:   "recover --i-lost-quorum",
		Short: "Continue the cluster with one member after the loss of a majority",
		Long: `Makes this node the only member of its cluster. Use it only if so many members
are lost for ever that no majority is left. If they can come back, start them
instead. The node must be stopped. On a terminal the command asks first.

The node keeps its state and its blocks. It also takes all entries of its log,
so a write whose answer nobody got may be among them. A write that was
acknowledged may be missing if only lost members had it: choose the member with
the highest index in holdfast status. Recover on one member only: two recovered
members would be two clusters.

All other members are removed. They cannot connect any more, and stop when they
ask the recovered node. One that comes back joins again with a new ticket: it
then keeps its blocks and loses its state. Keep lost members switched off until
then: a majority of them can still elect a leader among themselves.`,
		Example: `  holdfast recover --i-lost-quorum --data ~/node1
  holdfast run --data ~/node1`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !lost {
				return usagef("%s: this makes the node the only member of its cluster and removes all others; if more than half of the voters are lost for ever, give --i-lost-quorum (see %s --help)", called(cmd), cmd.CommandPath())
			}
			opts, err := a.offline()
			if err != nil {
				return err
			}
			return a.recover(cmd.Context(), opts, r)
		},
	}
	cmd.Flags().BoolVar(&lost, "i-lost-quorum", false, "a majority of the voters is lost for ever")
	r = removalFlags(cmd)
	return cmd
}

// recoveredRow is the output of recover --json.
type recoveredRow struct {
	ClusterID string       `json:"cluster_id"`
	NodeID    string       `json:"node_id"`
	Index     uint64       `json:"index"`
	Taken     uint64       `json:"entries_taken"` // entries of the log that the node had not applied
	Removed   []formerNode `json:"removed"`
}

type formerNode struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func (a *app) recover(ctx context.Context, opts node.OfflineOptions, r *removal) (err error) {
	s, err := node.OpenSurvivor(opts)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var names []string
	for _, m := range s.Others {
		names = append(names, fmt.Sprintf("%s (%s)", printable(m.Name), m.ID))
	}
	what := []string{fmt.Sprintf("This makes %s (%s) the only member of cluster %s.", printable(s.Name), s.NodeID, s.ClusterID)}
	if len(names) > 0 {
		what = append(what, fmt.Sprintf("It removes %s for ever: %s.", plural(len(names), "member"), strings.Join(names, ", ")))
	}
	if err := a.confirm(ctx, r, what...); err != nil {
		return err
	}
	done, err := s.Recover()
	if err != nil {
		return err
	}
	row := recoveredRow{ClusterID: done.ClusterID, NodeID: done.NodeID, Index: done.Index, Taken: done.Taken, Removed: []formerNode{}}
	for _, m := range done.Removed {
		row.Removed = append(row.Removed, formerNode(m))
	}
	return a.did(r.json, row, "%s is the only member of cluster %s, at index %d; removed %s\nstart it with: holdfast run --data %s",
		done.NodeID, done.ClusterID, done.Index, plural(len(row.Removed), "member"), shellQuote(opts.Data))
}
