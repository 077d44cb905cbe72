package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
)

const (
	// mostKept is the largest number of backups that --keep accepts.
	mostKept = 10_000
	// backupTime is the form of the time, in UTC, in the name of a backup. Such names sort by time.
	backupTime = "20060102T150405Z"
	// partialBackup is the pattern of the file that a backup is written to before it is complete.
	partialBackup = ".holdfast-backup.partial-*"
	// partialAge is the age at which --keep deletes a partial backup, which a killed command has left.
	partialAge = 24 * time.Hour
)

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// backupName returns the name of a backup in a folder. The log index distinguishes backups of one second.
func backupName(info *node.BackupInfo) string {
	return fmt.Sprintf("%s%s-%d.backup", backupsOf(info.ClusterID), info.Time.UTC().Format(backupTime), info.Index)
}

// backupsOf returns how the names of all backups of a cluster begin.
func backupsOf(clusterID string) string { return "holdfast-" + clusterID + "-" }

// writeBackupInto writes a backup to a new file in a folder and returns its path. fill sets info, which
// says the name. Only the owner can read the file.
func writeBackupInto(dir string, fill func(io.Writer) error, info *node.BackupInfo) (path string, err error) {
	err = writeAside(filepath.Join(dir, partialBackup), 0o600, func(w io.Writer) error {
		if err := fill(w); err != nil {
			return err
		}
		name := backupName(info)
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			return fmt.Errorf("the id of the cluster, %q, cannot be part of a file name", info.ClusterID)
		}
		path = filepath.Join(dir, name)
		return nil
	}, func() string { return path })
	if err != nil {
		return "", err
	}
	return path, syncFolder(dir)
}

// deleteOldBackups deletes backups of a cluster beside the file written, so that the newest, as many as
// keep, and written stay. Their names say their times. It also deletes what killed commands have left
// after partialAge. It returns the paths of the backups that it has deleted.
func deleteOldBackups(written, clusterID string, keep int) (deleted []string, err error) {
	dir := filepath.Dir(written)
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	kept := 1 // written, whatever the clock says
	for _, e := range slices.Backward(entries) {
		path := filepath.Join(dir, e.Name())
		if partial, _ := filepath.Match(partialBackup, e.Name()); partial {
			if info, ierr := e.Info(); ierr == nil && time.Since(info.ModTime()) > partialAge {
				err = errors.Join(err, os.Remove(path))
			}
			continue
		}
		if !e.Type().IsRegular() || path == written || !isBackupOf(e.Name(), clusterID) {
			continue
		}
		if kept++; kept <= keep {
			continue
		}
		if rerr := os.Remove(path); rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		deleted = append(deleted, path)
	}
	return deleted, errors.Join(err, syncFolder(dir))
}

// isBackupOf reports whether name is one that backupName returns for a cluster.
func isBackupOf(name, clusterID string) bool {
	rest, ours := strings.CutPrefix(name, backupsOf(clusterID))
	if !ours {
		return false
	}
	rest, ours = strings.CutSuffix(rest, ".backup")
	if !ours {
		return false
	}
	at, index, _ := strings.Cut(rest, "-")
	_, terr := time.Parse(backupTime, at)
	_, ierr := strconv.ParseUint(index, 10, 64)
	return errors.Join(terr, ierr) == nil
}

// syncFolder flushes the names in a folder to the disk.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
