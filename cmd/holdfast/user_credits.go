package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/url"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

// ledgerPage is the largest number of ledger entries that one call requests.
const ledgerPage = 1000

func (a *app) userGrantCommand() *cobra.Command {
	return a.postCommand("grant", &cobra.Command{
		Short: "Give credits to an account",
		Long: `Posts credits to the ledger of an account. With credits an account can store
more than its allowance. With --posting the cluster makes the posting of that
name once, so you can safely repeat the command.`,
		Example: `  holdfast user grant ann@example.org 100 --posting invoice-2026-17`,
	})
}

func (a *app) userRefundCommand() *cobra.Command {
	return a.postCommand("refund", &cobra.Command{
		Short: "Give back credits that an account was charged",
		Long: `Posts credits to the ledger of an account, as a refund of credits that the
account has paid. With --posting the cluster makes the posting of that name
once, so you can safely repeat the command.`,
		Example: `  holdfast user refund ann@example.org 20 --posting refund-2026-3 --note "node was down"`,
	})
}

// postCommand completes cmd to a command that adds a ledger entry of the given kind, such as a
// grant, to an account.
func (a *app) postCommand(kind string, cmd *cobra.Command) *cobra.Command {
	var asJSON bool
	posting := client.NewCredits{Kind: kind}
	cmd.Use = kind + " EMAIL CREDITS"
	cmd.Args = arguments("EMAIL", "CREDITS")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		credits, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil || credits <= 0 {
			return usagef("%s: %q is not a number of credits", called(cmd), args[1])
		}
		posting.Credits = credits
		return a.post(cmd, asJSON, args[0], posting)
	}
	jsonFlag(cmd, &asJSON)
	postingFlags(cmd, &posting)
	return cmd
}

func (a *app) userCorrectCommand() *cobra.Command {
	var asJSON bool
	posting := client.NewCredits{Kind: "correction"}
	cmd := &cobra.Command{
		Use:   "correct EMAIL POSTING",
		Short: "Correct a posting in the ledger of an account",
		Long: `Posts a correction of an earlier posting, which itself stays as it is. POSTING
is the ID that holdfast user ledger prints. --credits below 0 takes credits. The
cluster refuses a correction that would make the balance negative.`,
		Example: `  holdfast user correct ann@example.org invoice-2026-17 --credits -90 --note "10 were meant"`,
		Args:    arguments("EMAIL", "POSTING"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if posting.Credits == 0 {
				return usagef("%s: --credits is missing or 0", called(cmd))
			}
			posting.Corrects = args[1]
			return a.post(cmd, asJSON, args[0], posting)
		},
	}
	jsonFlag(cmd, &asJSON)
	postingFlags(cmd, &posting)
	cmd.Flags().Int64Var(&posting.Credits, "credits", 0, "`credits` to add; below 0, to take")
	return cmd
}

// postingFlags adds to cmd the flags that all commands for ledger entries have.
func postingFlags(cmd *cobra.Command, p *client.NewCredits) {
	cmd.Flags().StringVar(&p.Posting, "posting", "", "`name` of the posting, which the cluster makes only once")
	cmd.Flags().StringVar(&p.Note, "note", "", "`text` that the ledger shows beside the posting, also to the person of the account")
	mustNotBeEmpty(cmd, "posting")
	mustBeText(cmd, "posting", "note")
}

// post adds an entry to the ledger of the account email and prints the new balance.
func (a *app) post(cmd *cobra.Command, asJSON bool, email string, p client.NewCredits) error {
	return a.change(cmd, asJSON, email, func(ctx context.Context, o operator) error {
		_, err := o.Post(ctx, email, p)
		return err
	}, func(u *client.UserDetail) string {
		return fmt.Sprintf("credits of %s: %s", u.Email, thousands(u.Credits))
	})
}

func (a *app) userLedgerCommand() *cobra.Command {
	var (
		asJSON, asCSV bool
		limit         uint
		after         uint64
	)
	cmd := &cobra.Command{
		Use:   "ledger EMAIL",
		Short: "List the postings of an account, the newest first",
		Long: `Lists the postings in the ledger of an account, the newest first, each with the
balance after it. A posting never changes: a correction is a posting of its own.`,
		Example: "  holdfast user ledger ann@example.org --limit 10\n  holdfast user ledger ann@example.org --limit 0 --csv > ledger.csv",
		Args:    arguments("EMAIL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON && asCSV {
				return usagef("%s: --json and --csv do not go together", called(cmd))
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			rows, err := postings(cmd.Context(), o, args[0], after, limit)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return a.printJSON(notNil(rows))
			case asCSV:
				return a.printPostings(rows)
			}
			t := table{head: []string{"SEQ", "TIME", "KIND", "CREDITS", "BALANCE", "ID", "CORRECTS", "BY", "NOTE"}, states: -1}
			for i := range rows {
				r := &rows[i]
				t.add(strconv.FormatUint(r.Seq, 10), r.Time, r.Kind, r.Credits.String(), strconv.FormatUint(r.Balance, 10),
					printable(r.ID), printable(r.Corrects), printable(r.By.Who()), printable(r.Note))
			}
			t.write(a.stdout, paletteOf(a.stdout, a.environ))
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print comma-separated values")
	cmd.Flags().UintVar(&limit, "limit", 100, "print at most this `number` of postings; 0: all")
	cmd.Flags().Uint64Var(&after, "after", 0, "go on after the posting with this `SEQ`, with older ones; 0: begin with the newest")
	return cmd
}

// postings returns the newest entries of the ledger of an account: as many as limit says, or all if
// limit is 0. If
// after is not 0, it returns only entries that are older than the entry with that sequence
// number.
func postings(ctx context.Context, o operator, email string, after uint64, limit uint) (rows []client.Posting, err error) {
	query := url.Values{}
	if after > 0 {
		query.Set("cursor", strconv.FormatUint(after, 10))
	}
	for {
		size := uint(ledgerPage)
		if limit > 0 {
			size = min(size, limit-uint(len(rows)))
		}
		query.Set("limit", strconv.FormatUint(uint64(size), 10))
		page, err := o.Ledger(ctx, email, query)
		if err != nil {
			return nil, err
		}
		rows = append(rows, page.Results...)
		if page.Next == "" || limit > 0 && uint(len(rows)) >= limit {
			return rows, nil
		}
		query.Set("cursor", page.Next)
	}
}

// printPostings prints ledger entries as comma-separated values, with a header.
func (a *app) printPostings(rows []client.Posting) error {
	out := csv.NewWriter(a.stdout)
	all := [][]string{client.PostingColumns}
	for i := range rows {
		all = append(all, rows[i].Values())
	}
	if err := out.WriteAll(all); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
