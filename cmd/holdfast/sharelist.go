package main

import (
	"context"
	"errors"
	"iter"
	"time"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/spf13/cobra"
)

// shareRow is one share in the output of share ls --json.
type shareRow struct {
	ID        string     `json:"share_id"`
	Bucket    string     `json:"bucket"`
	Name      string     `json:"name,omitempty"`
	Path      string     `json:"path,omitempty"`      // absent if another machine created the share
	Recipient string     `json:"recipient,omitempty"` // absent for a link, and if another machine created the share
	Read      bool       `json:"read"`
	Write     bool       `json:"write"`
	Delete    bool       `json:"delete"`
	Created   time.Time  `json:"created_at"`
	Expires   *time.Time `json:"expires_at,omitempty"`
	State     string     `json:"state"` // active or expired
}

func (a *app) shareListCommand() *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "ls [s3://BUCKET] | ls --all",
		Short: "List the shares of a bucket, or of all buckets",
		Long: `Lists the shares of a bucket that are not revoked, or, without s3://BUCKET,
those of all buckets of the account. The nodes do not know the paths and the
recipients of shares. This machine remembers those of the shares that it made,
in $XDG_STATE_HOME/holdfast/shares, without their secrets. --json has the whole
share identity of each recipient.

With --all an operator lists the shares of all accounts, through the node on
this machine.`,
		Example: `  holdfast share ls
  holdfast share ls s3://private
  holdfast share ls --all --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return arguments("s3://BUCKET")(cmd, args)
		},
	}
	r := a.remoteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all {
			if len(args) > 0 || r.profile != "" || r.token != "" || len(r.endpoints) > 0 {
				return usagef("%s: --all asks the node on this machine: give neither a bucket nor a profile", called(cmd))
			}
			return a.listAllShares(cmd.Context(), asJSON)
		}
		bucket := ""
		if len(args) > 0 {
			var err error
			if bucket, err = parseBucket(cmd, args[0]); err != nil {
				return err
			}
		}
		c, err := a.cluster(cmd, r)
		if err != nil {
			return err
		}
		defer c.Close()
		rows := []shareRow{}
		for s, err := range sharesIn(cmd.Context(), c, bucket) {
			if err != nil {
				return clusterError(cmd.Context(), err)
			}
			rows = append(rows, a.rowOf(&s, time.Now()))
		}
		if asJSON {
			return a.printJSON(rows)
		}
		a.tellShares(rows)
		return nil
	}
	cmd.Flags().BoolVar(&all, "all", false, "list the shares of all accounts, through the node on this machine")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// sharesIn returns the shares of a bucket. If bucket is "", it returns the shares of all buckets
// of the account, and ignores a bucket that is deleted in the meantime.
func sharesIn(ctx context.Context, c *gateway.Client, bucket string) iter.Seq2[gateway.Share, error] {
	if bucket != "" {
		return c.Shares(ctx, bucket)
	}
	return func(yield func(gateway.Share, error) bool) {
		buckets, err := c.Buckets(ctx)
		if err != nil {
			yield(gateway.Share{}, err)
			return
		}
		for _, b := range buckets {
			for s, err := range c.Shares(ctx, b.Name) {
				if errors.Is(err, gateway.ErrNotFound) {
					break
				}
				if !yield(s, err) || err != nil {
					return
				}
			}
		}
	}
}

// tellShares prints shares as a table. If a path is unknown, it explains why below the table.
func (a *app) tellShares(rows []shareRow) {
	t := table{head: []string{"SHARE", "STATE", "PERMISSIONS", "EXPIRES", "OF", "RECIPIENT", "NAME"}, states: -1}
	unknown := false
	for _, row := range rows {
		expires := "never"
		if row.Expires != nil {
			expires = row.Expires.Local().Format(time.DateTime)
		}
		recipient := orDash(shortIdentity(row.Recipient))
		if row.Path == "" {
			unknown = true
			recipient = "?"
		}
		t.add(row.ID, row.State, permissionsText(row.Read, row.Write, row.Delete), expires,
			printable(s3Scheme+row.Bucket)+orUnknown(printable(row.Path)), recipient, orDash(printable(row.Name)))
	}
	t.write(a.stdout, paletteOf(a.stdout, a.environ))
	if unknown {
		a.say(a.stderr, "/? stands for a path that is not known here: another machine made the share, and the nodes do not know paths.\n")
	}
}

// shortIdentity returns the first characters of a share identity for a table. A whole one has 97
// characters.
func shortIdentity(identity string) string {
	const shown = len("hfid1-") + 8
	if len(identity) <= shown {
		return identity
	}
	return identity[:shown] + "…"
}

// orUnknown returns path, or "/?" if path is empty because this machine does not know it.
func orUnknown(path string) string {
	if path == "" {
		return "/?"
	}
	return path
}

// listAllShares prints the shares of all accounts, which it requests from the operator API.
func (a *app) listAllShares(ctx context.Context, asJSON bool) error {
	o, err := a.operator()
	if err != nil {
		return err
	}
	shares, err := o.Shares(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(notNil(shares))
	}
	t := table{head: []string{"SHARE", "USER", "BUCKET", "STATE", "PERMISSIONS", "EXPIRES", "USED", "NAME"}, states: -1}
	for _, s := range shares {
		t.add(s.ID, s.User, printable(s.Bucket), s.State, permissionsText(s.Read, s.Write, s.Delete), orDash(s.Expires), orDash(s.Used), orDash(printable(s.Name)))
	}
	t.write(a.stdout, paletteOf(a.stdout, a.environ))
	return nil
}

func (a *app) rowOf(s *gateway.Share, now time.Time) shareRow {
	row := shareRow{
		ID: s.ID, Bucket: s.Bucket, Name: s.Name, Read: s.Permissions.Read, Write: s.Permissions.Write, Delete: s.Permissions.Delete, Created: s.Created, State: "active",
	}
	if !s.Expires.IsZero() {
		row.Expires = &s.Expires
		if !now.Before(s.Expires) {
			row.State = "expired"
		}
	}
	if known, ok := a.remembered(s.ID); ok && known.Bucket == s.Bucket {
		row.Path, row.Recipient = known.Path, known.Recipient
	}
	return row
}

// orDash returns text, or "-" if text is empty, so that no cell of a table is empty.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
