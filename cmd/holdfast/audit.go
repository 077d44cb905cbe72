package main

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

// auditPage is the largest number of rows of the audit log that one call requests.
const auditPage = 1000

// auditFamilies are the prefixes of the actions in the audit log, and auditActions are all its
// actions. Shells offer them as completions.
var (
	auditFamilies = []string{"app", "bucket", "cluster", "key", "member", "session", "share", "user"}
	auditActions  = []string{
		"app.create", "app.remove", "bucket.create", "bucket.delete", "bucket.public", "bucket.cors", "cluster.create", "cluster.signing-key", "cluster.restore", "cluster.recover",
		"key.create", "key.show", "key.revoke", "member.token", "member.join", "member.drain", "member.remove", "session.create", "session.end", "session.refused",
		"share.create", "share.revoke",
		"user.create", "user.delete", "user.quota", "user.credits", "user.password", "user.admin", "user.link", "user.link-revoke", "user.identity", "user.identity-remove", "user.disable", "user.enable", "user.content-end",
	}
)

func (a *app) auditCommand() *cobra.Command {
	return group("audit", "Show and verify the audit log", `  holdfast audit ls --since 24h
  holdfast audit ls --action user --actor ann@example.org
  holdfast audit verify`, a.auditListCommand(), a.auditVerifyCommand())
}

func (a *app) auditListCommand() *cobra.Command {
	var (
		since, until, actor, action, target string
		limit                               uint
		asJSON                              bool
	)
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List who changed what, the newest first",
		Long: `Lists the audit log, the newest row first: changes of access, accounts, members,
apps and visibility, and refused sign-ins and joins, summed by minute. The log
is that of the whole cluster.

--actor is a part of an e-mail address, or the id of an account, a key or a
session, an address, or one of operator, cluster and anonymous. --target is a
part of the target or of the detail.`,
		Example: "  holdfast audit ls --since 7d --action bucket.delete\n  holdfast audit ls --since 2026-11-01 --until 2026-12-01 --limit 0 --json",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"actor": {actor}, "action": {action}, "target": {target}, "limit": {strconv.Itoa(auditPage)}}
			if limit > 0 && limit < auditPage {
				query.Set("limit", strconv.FormatUint(uint64(limit), 10))
			}
			for name, text := range map[string]string{"since": since, "until": until} {
				at, err := momentOf(text, time.Now())
				if err != nil {
					return usagef("%s: --%s: %v (see %s --help)", called(cmd), name, err, cmd.CommandPath())
				}
				query.Set(name, at)
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			var rows []client.AuditRow
			for row, err := range o.Audit(cmd.Context(), query) {
				if err != nil {
					return err
				}
				if rows = append(rows, row); limit > 0 && uint(len(rows)) == limit {
					break
				}
			}
			if asJSON {
				return a.printJSON(notNil(rows))
			}
			t := table{head: []string{"TIME", "WHO", "FROM", "ACTION", "TARGET", "DETAIL"}, states: -1}
			for _, r := range rows {
				t.add(r.Time, printable(auditWho(&r.Actor)), printable(r.Actor.Address), r.Action+refusedTimes(&r), printable(r.Target), printable(r.Detail))
			}
			t.write(a.stdout, paletteOf(a.stdout, a.environ))
			return nil
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "rows from this `time` on: 2026-11-27, 2026-11-27T23:00:00Z, or 24h or 7d before now")
	cmd.Flags().StringVar(&until, "until", "", "rows before this `time`")
	cmd.Flags().StringVar(&actor, "actor", "", "rows of this `actor`")
	cmd.Flags().StringVar(&action, "action", "", "rows of this `action`, such as key.create, or family, such as key")
	cmd.Flags().StringVar(&target, "target", "", "rows about this `target`")
	cmd.Flags().UintVar(&limit, "limit", 100, "print at most this `number` of rows; 0: all")
	jsonFlag(cmd, &asJSON)
	mustBeText(cmd, "since", "until", "actor", "action", "target")
	completeValues(cmd, "action", append(auditFamilies, auditActions...)...)
	return cmd
}

// auditWho returns the text for an actor in the table of audit rows.
func auditWho(by *client.AuditActor) string {
	switch {
	case by.Email != "" && by.Kind == "key":
		return by.Email + " (key " + by.Key + ")"
	case by.Email != "":
		return by.Email
	}
	return by.Kind
}

// refusedTimes returns the text that follows the action of a row in the table: how often the
// action was refused, or "" if it succeeded.
func refusedTimes(r *client.AuditRow) string {
	if r.Outcome != "refused" {
		return ""
	}
	return fmt.Sprintf(" refused %d times", r.Count)
}

// momentOf returns a time in RFC 3339 for a query of the audit log, or "" for an empty text. text
// is a time of RFC 3339, a date, or a duration before now such as 7d.
func momentOf(text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	var span spanFlag
	if span.Set(text) == nil {
		return now.Add(-time.Duration(span)).UTC().Format(time.RFC3339), nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(form, text); err == nil {
			return at.UTC().Format(time.RFC3339), nil
		}
	}
	return "", errors.New("it is neither a time such as 2026-11-27 or 2026-11-27T23:00:00Z nor a span such as 24h or 7d")
}

func (a *app) auditVerifyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that the audit log is as it was written",
		Long: `Walks through the whole audit log and checks that each row follows from the one
before. It prints the first and the last row and the hash of the last one. Keep
that hash elsewhere: whoever makes a whole new log cannot make the same hash.

The exit code is 1 if a row is broken.`,
		Example: "  holdfast audit verify --json",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			v, err := o.VerifyAudit(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				err = a.printJSON(v)
			} else if v.Intact {
				_, err = fmt.Fprintf(a.stdout, "the audit log is intact: %d rows, from %d to %d\nhash of row %d: %s\n", v.Count, v.First, v.Last, v.Last, v.Head)
			}
			if err == nil && !v.Intact {
				err = fmt.Errorf("the audit log is broken at row %d: %s", v.Broken, v.Reason)
			}
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
