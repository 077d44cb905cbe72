package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

// joinFileLook is the interval at which a new node looks for the file of cluster.join_file.
const joinFileLook = 200 * time.Millisecond

// readJoinFile adds the entries of the file of cluster.join_file to the --join settings of this
// node. A new node waits up to JoinTimeout for the file, because another process may still write
// it; then the error is fs.ErrNotExist. A node that is a member already starts without the file.
func (n *Node) readJoinFile(ctx context.Context) error {
	if n.opts.Config.Cluster.JoinFile == "" {
		return nil
	}
	late := time.NewTimer(JoinTimeout)
	defer late.Stop()
	look := time.NewTicker(joinFileLook)
	defer look.Stop()
	for told := false; ; told = true {
		entries, err := n.opts.Config.JoinFileEntries()
		if err == nil {
			join := &n.opts.Config.Cluster.Join
			*join = slices.Concat(*join, entries)
			return nil
		}
		missing := errors.Is(err, fs.ErrNotExist)
		if n.folder.joined() {
			n.logger.WarnContext(ctx, "this member starts without the file of cluster.join_file", "err", err)
			return nil
		}
		if !missing {
			return err
		}
		if !told {
			n.logger.InfoContext(ctx, "waiting for the file of cluster.join_file", "file", n.opts.Config.Cluster.JoinFile, "longest", JoinTimeout)
		}
		select {
		case <-look.C:
		case <-late.C:
			return fmt.Errorf("no ticket after %v: %w", JoinTimeout, err)
		case <-ctx.Done():
			return fmt.Errorf("join: %w", ctx.Err())
		}
	}
}

// joined returns whether the folder belongs to a member of a cluster, also to a removed one. A file
// that cannot be read counts as present: the start reports it later.
func (f folder) joined() bool {
	secret, err := f.secret()
	if err == nil && secret == nil {
		return false
	}
	known, err := f.seed()
	return err != nil || known != nil
}
