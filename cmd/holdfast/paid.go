package main

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

// paymentsPage is the largest number of payments that one call requests.
const paymentsPage = 100

func (a *app) paidCommand() *cobra.Command {
	return group("paid", "Show the payments of the paid gateway", `  holdfast paid ls
  holdfast paid ls --limit 0 --json`, a.paidListCommand())
}

func (a *app) paidListCommand() *cobra.Command {
	var (
		limit  uint
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List payments, the newest first",
		Long: `Lists the payments that clients have sent to the paid gateway of any node, the
newest first. AMOUNT is in atomic units of the asset: millionths of a dollar for
USDC.

A payment is reserved while its request runs, and then paid, failed or
refundable. Nothing was stored for a refundable payment. With a transaction, it
was settled: pay it back. Without one, nobody knows whether it was settled, or
whether a facilitator was asked. Look PAYER and the nonce up on NETWORK, and pay
back only what was executed.`,
		Example: "  holdfast paid ls --limit 20",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			size := uint(paymentsPage)
			if limit > 0 {
				size = min(size, limit)
			}
			var rows []client.Payment
			for row, err := range o.Payments(cmd.Context(), url.Values{"limit": {strconv.FormatUint(uint64(size), 10)}}) {
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
			t := table{head: []string{"TIME", "STATE", "AMOUNT", "NETWORK", "PAYER", "FOR", "UNTIL", "TRANSACTION", "REASON"}, states: 1}
			for i := range rows {
				r := &rows[i]
				t.add(r.Time, r.State, r.Amount, printable(r.Network), r.Payer, printable(fmt.Sprintf("%s %s", r.Kind, cmp.Or(r.Object, r.Pin))), r.Until,
					printable(cmp.Or(r.Transaction, "nonce "+r.Nonce)), printable(r.Reason))
			}
			t.write(a.stdout, paletteOf(a.stdout, a.environ))
			return nil
		},
	}
	cmd.Flags().UintVar(&limit, "limit", 100, "print at most this `number` of payments; 0: all")
	jsonFlag(cmd, &asJSON)
	return cmd
}
