package main

import (
	"errors"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/spf13/cobra"
)

// rewrapReport is the JSON output of the command rewrap.
type rewrapReport struct {
	Rewrapped int `json:"rewrapped"`
	Done      int `json:"done"` // files that an earlier run rewrapped
	Failed    int `json:"failed"`
}

func (a *app) rewrapCommand() *cobra.Command {
	var to, toPassphrase string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rewrap s3://BUCKET/FOLDER --to FILE",
		Short: "Give encrypted files to a new identity",
		Long: `Wraps the keys of all encrypted files below FOLDER for the identity in FILE,
which holdfast keygen --rotate made from the older one. Content is not moved.
Afterwards the older identity opens none of these files, except old versions in
a bucket that keeps versions. Who has copied a file and the older identity can
still read the copy.

If the command is interrupted or a file fails, run it again. Nobody may upload
with the older identity meanwhile.`,
		Example: `  holdfast keygen new-identity --rotate identity
  holdfast rewrap s3://private --identity identity --to new-identity`,
		Args: arguments("s3://BUCKET/FOLDER"),
	}
	r, s := a.remoteFlags(cmd), alwaysSealing(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, err := parseS3(cmd, args[0])
		if err != nil {
			return err
		}
		if to == "" {
			return usagef("%s: --to is missing (see %s --help)", called(cmd), cmd.CommandPath())
		}
		c, err := a.cluster(cmd, r)
		if err != nil {
			return err
		}
		defer c.Close()
		old, err := a.vault(cmd, c, r, s, target.bucket)
		if err != nil {
			return err
		}
		if toPassphrase == "" {
			toPassphrase = s.passphraseFile
		}
		next, err := a.openIdentityFile(cmd.Context(), to, toPassphrase)
		if err != nil {
			return err
		}
		done, err := old.Rewrap(cmd.Context(), target.key, next, s.hybrid, func(name string, err error) {
			if err != nil {
				a.say(a.stderr, "holdfast: %s: %s\n", printable(name), printable(oneLine(err.Error())))
			}
		})
		if err != nil && !errors.Is(err, gateway.ErrRewrap) {
			return clusterError(cmd.Context(), err)
		}
		return errors.Join(err, a.did(asJSON, rewrapReport(done), "rewrapped %d files, done before %d, failed %d", done.Rewrapped, done.Done, done.Failed))
	}
	cmd.Flags().StringVar(&to, "to", "", "`file` with the new identity (required)")
	cmd.Flags().StringVar(&toPassphrase, "to-passphrase-file", "", "`file` with the passphrase of the new identity (default: --passphrase-file, else ask)")
	jsonFlag(cmd, &asJSON)
	mustNotBeEmpty(cmd, "to", "to-passphrase-file")
	return cmd
}
