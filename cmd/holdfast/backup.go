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
	var keep int
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a backup of the state of the cluster",
		Long: `Writes a backup of the replicated state of the cluster to FILE, as of one
moment: accounts, keys, pins, buckets, the names of objects, credits and the
audit log. The node serves requests meanwhile. With - as FILE it writes to
standard output. The command replaces FILE only when the backup is complete,
and prints the cluster, the log index and the time of the backup.

If FILE is a folder, the backup becomes a new file in it, named
holdfast-CLUSTER-TIME-INDEX.backup with the id of the cluster, the time in UTC
and the log index. With --keep N the command then deletes older backups of this
cluster in the folder, so that the newest N stay. It deletes no other files. Run
it from a timer; the deb and rpm packages have one.

The content is not in the backup. The cluster keeps copies of it on several
nodes. To keep it elsewhere too, copy it with holdfast sync, holdfast car export
or rclone, or keep the disks with the folders "blocks": a restored cluster finds
the content in them.

Keep FILE as safe as a data folder. With it somebody can sign API keys of this
cluster and read the hashes of passwords.`,
		Example: `  holdfast backup /backup/holdfast-$(date +%F)
  holdfast backup /backup --keep 14
  holdfast backup - | age -r age1... > holdfast.age`,
		Args: arguments(fileArgument),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && isTerminal(a.stdout) {
				return usagef("%s: standard output is a terminal: name a file", called(cmd))
			}
			if args[0] == "-" && asJSON {
				return usagef("%s: --json needs a file: with - the backup goes to standard output", called(cmd))
			}
			into := isFolder(args[0])
			if cmd.Flags().Changed("keep") {
				if keep < 1 || keep > mostKept {
					return usagef("%s: --keep %d is not within 1 and %d", called(cmd), keep, mostKept)
				}
				if !into {
					return usagef("%s: --keep needs a folder, and %s is none", called(cmd), args[0])
				}
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			return a.backup(cmd.Context(), o, backupTo{path: args[0], folder: into, keep: keep}, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().IntVar(&keep, "keep", 0, "`number` of backups of this cluster to keep in the folder FILE; older ones are deleted (default all)")
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

// writtenRow is the output of backup --json.
type writtenRow struct {
	backupRow
	File    string   `json:"file,omitempty"`    // in a folder
	Deleted []string `json:"deleted,omitempty"` // older backups in the folder
}

// backupTo is where a backup goes.
type backupTo struct {
	path   string // - is standard output
	folder bool   // path is a folder, and the backup gets a name of its own in it
	keep   int    // backups of the cluster that stay in the folder; 0 means all
}

func (a *app) backup(ctx context.Context, o operator, to backupTo, asJSON bool) error {
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
	out, row := a.stdout, writtenRow{}
	switch {
	case to.path == "-":
		out, err = a.stderr, fill(a.stdout)
	case to.folder:
		row.File, err = writeBackupInto(to.path, fill, &info)
	default:
		err = writeBackup(to.path, fill)
	}
	_ = bar.Finish() // it is only for the eye
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if to.keep > 0 {
		if row.Deleted, err = deleteOldBackups(row.File, info.ClusterID, to.keep); err != nil {
			err = fmt.Errorf("backup: %s is written, but older backups are not deleted: %w", row.File, err)
		}
	}
	row.backupRow = backupRow(info)
	if asJSON {
		return errors.Join(a.printJSON(row), err)
	}
	a.say(out, "backup of cluster %s at index %d, %s, %s\n", info.ClusterID, info.Index, humanBytes(info.Bytes), info.Time.Format(time.RFC3339))
	if to.folder {
		a.say(out, "in %s\n", row.File)
	}
	for _, file := range row.Deleted {
		a.say(out, "deleted %s\n", file)
	}
	return err
}

// writeBackup writes a file that only its owner can read, and flushes its name too.
func writeBackup(path string, fill func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeInto(path, info, fill)
	}
	if err := replaceFile(path, 0o600, fill); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}
