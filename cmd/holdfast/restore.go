package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
)

func (a *app) restoreCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the first node of a new cluster from a backup",
		Long: `Makes a node with the state in FILE, which holdfast backup has written, in a
data folder without a state. With - as FILE it reads standard input. The
command verifies the whole backup first, and a bad one changes nothing.

The node gets an identity, a cluster id and a cluster secret of its own, and is
the only member. Start it with holdfast run, and let other nodes join with
tickets. Members of the old cluster cannot connect to it. Accounts, API keys,
sessions, pins, buckets and credits are those of the backup; a key that was
revoked before the backup stays revoked.

The content is not in the backup. The new cluster fetches pins from their
origins and from the IPFS network. It finds all content whose blocks are on a
disk: move the folder "blocks" of an old node into an empty data folder, and
restore into that folder, or let it join with holdfast run --join. Content
without any copy answers as unavailable until a copy is back.`,
		Example: `  holdfast restore /backup/holdfast-2026-11-30 --data ~/new1
  holdfast run --data ~/new1
  mkdir ~/new2 && mv ~/old2/blocks ~/new2/   # with the content of an old node
  holdfast run --data ~/new2 --join "$(holdfast token --data ~/new1)"`,
		Args: arguments(fileArgument),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := a.offline()
			if err != nil {
				return err
			}
			return a.restore(cmd.Context(), opts, args[0], asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// offline returns the options for work on the data folder of a node that does not run.
func (a *app) offline() (node.OfflineOptions, error) {
	dir, err := a.folder()
	if err != nil {
		return node.OfflineOptions{}, err
	}
	c, err := config.Load(dir, a.environ, nil)
	if err != nil {
		return node.OfflineOptions{}, err
	}
	name := c.Node.Name
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return node.OfflineOptions{}, fmt.Errorf("name of the host: %w", err)
		}
	}
	if a.ownFiles != nil {
		a.ownFiles()
	}
	c.Log.Level = cmp.Or(map[bool]string{true: "warn"}[c.Log.Level == "info"], c.Log.Level) // the command itself says what it did
	return node.OfflineOptions{Data: dir, Name: name, Version: a.version, Now: time.Now, Logger: newLogger(a.stderr, c.Log)}, nil
}

// restoredRow is the output of restore --json.
type restoredRow struct {
	ClusterID string    `json:"cluster_id"` // of the new cluster
	NodeID    string    `json:"node_id"`
	Former    int       `json:"former_members"` // members of the old cluster, which were removed
	Backup    backupRow `json:"backup"`
}

func (a *app) restore(ctx context.Context, opts node.OfflineOptions, file string, asJSON bool) error {
	in := interruptible(ctx, a.stdin)
	if file != "-" {
		f, err := openInput(ctx, file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read from
		in = f
		if info, err := f.Stat(); err != nil {
			return err
		} else if info.IsDir() {
			return fmt.Errorf("%s is a folder", file)
		} else if !info.Mode().IsRegular() {
			in = struct{ io.Reader }{f} // it cannot be read twice
		}
	}
	r, err := node.Restore(ctx, opts, in)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if asJSON {
		return a.printJSON(restoredRow{r.ClusterID, r.NodeID, r.Former, backupRow(r.Backup)})
	}
	a.say(a.stdout, "restored index %d of cluster %s, from %s, as cluster %s\n", r.Backup.Index, r.Backup.ClusterID, r.Backup.Time.Format(time.RFC3339), r.ClusterID)
	a.say(a.stdout, "start it with: holdfast run --data %s\n", shellQuote(opts.Data))
	return nil
}
