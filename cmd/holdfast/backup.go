package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/spf13/cobra"
)

func (a *app) backupCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a backup of the state of the cluster",
		Long: `Writes a backup of the replicated state of the cluster to FILE, as of one
moment: accounts, keys, pins, buckets, the names of objects, credits and the
audit log. The node serves requests meanwhile. With - as FILE it writes to
standard output. The command replaces FILE only when the backup is complete,
and prints the cluster, the log index and the time of the backup.

The content is not in the backup. The cluster keeps copies of it on several
nodes. To keep it elsewhere too, copy it with holdfast sync, holdfast car export
or rclone, or keep the disks with the folders "blocks": a restored cluster finds
the content in them.

Keep FILE as safe as a data folder. With it somebody can sign API keys of this
cluster and read the hashes of passwords.`,
		Example: `  holdfast backup /backup/holdfast-$(date +%F)
  holdfast backup - | age -r age1... > holdfast.age`,
		Args: arguments(fileArgument),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && isTerminal(a.stdout) {
				return usagef("%s: standard output is a terminal: name a file", called(cmd))
			}
			if args[0] == "-" && asJSON {
				return usagef("%s: --json needs a file: with - the backup goes to standard output", called(cmd))
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			return a.backup(cmd.Context(), o, args[0], asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// backupRow is the output of backup --json, and a part of that of restore --json.
type backupRow struct {
	ClusterID    string    `json:"cluster_id"`
	Index        uint64    `json:"index"`
	FeatureLevel uint64    `json:"feature_level"`
	Time         time.Time `json:"time"`
	StateHash    string    `json:"state_hash"`
	Release      string    `json:"release"`
	Bytes        int64     `json:"bytes"`
}

func (a *app) backup(ctx context.Context, o operator, file string, asJSON bool) error {
	content, err := o.Backup(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // read to its end or given up
	bar := a.newBar(-1, "reading")
	var info node.BackupInfo
	// The command verifies the bytes as it writes them, so that no bad file gets the name.
	fill := func(w io.Writer) (err error) {
		info, err = node.CheckBackup(io.TeeReader(content, io.MultiWriter(w, bar)))
		return err
	}
	if file == "-" {
		err = fill(a.stdout)
	} else {
		err = a.writeBackup(file, fill)
	}
	_ = bar.Finish() // it is only for the eye
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	out := a.stdout
	if file == "-" {
		out = a.stderr
	}
	if asJSON {
		return a.printJSON(backupRow(info))
	}
	a.say(out, "backup of cluster %s at index %d, %s, %s\n", info.ClusterID, info.Index, humanBytes(info.Bytes), info.Time.Format(time.RFC3339))
	return nil
}

// writeBackup writes a file that only its owner can read, and flushes its name too.
func (a *app) writeBackup(path string, fill func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeInto(path, info, fill)
	}
	if err := replaceFile(path, 0o600, fill); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
