package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
)

// maxToken is the maximum length of a token on standard input, in bytes.
const maxToken = 16 << 10

func (a *app) profileCommand() *cobra.Command {
	return group("profile", "Name a cluster, so that commands need no address and key",
		"  holdfast profile add home --endpoint https://node1.example.org:9000", a.profileAddCommand(), a.profileListCommand())
}

func (a *app) profileAddCommand() *cobra.Command {
	var p config.Profile
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a cluster to the profiles",
		Long: `Adds a profile to $XDG_CONFIG_HOME/holdfast/config.toml, which is created with
mode 0600. The first profile is the default. The command asks for the token, or
reads it from standard input. To change or remove a profile, edit the file:

  default = "home"

  [profiles.home]
  endpoints = ["https://node1.example.org:9000", "https://node2.example.org:9000"]
  token = "eyJ..."            # or access_key and secret_key
  identity = "/home/ann/.config/holdfast/identity"
  identity_command = "pass show holdfast"
  console = "https://console.example.org"    # for links of holdfast share
  pinning = ["https://pins.example.org"]

The commands pin, add and car import ask a gateway for the addresses of the
pinning API and of the console of its node. If these are not the addresses for
clients, as behind a proxy, name the right ones with pinning and console.`,
		Example: `  holdfast profile add home --endpoint https://node1.example.org:9000 --endpoint https://node2.example.org:9000
  holdfast key create --user ann@example.org --json | jq -r .token | holdfast profile add home --endpoint https://node1:9000`,
		Args: arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(p.Endpoints) == 0 {
				return usagef("%s: --endpoint is missing (see %s --help)", called(cmd), cmd.CommandPath())
			}
			var err error
			if p.Token, err = a.readToken(cmd.Context()); err != nil {
				return err
			}
			path, err := config.ClientFile(a.environ)
			if err != nil {
				return err
			}
			if err := config.AddProfile(path, args[0], p); errors.Is(err, config.ErrProfile) {
				return usagef("%s: %v", called(cmd), err)
			} else if err != nil {
				return err
			}
			return a.did(asJSON, profileRow{args[0], p.Endpoints, p.Pinning, p.Identity, p.Console, false}, "added %s to %s", args[0], path)
		},
	}
	cmd.Flags().StringArrayVar(&p.Endpoints, "endpoint", nil, "`url` of the S3 gateway of a node; repeatable (required)")
	cmd.Flags().StringVar(&p.Identity, "identity", "", "`file` with the identity, see holdfast keygen")
	cmd.Flags().StringVar(&p.Console, "console", "", "`url` of the console, for links of holdfast share and for uploads of add and car import")
	cmd.Flags().StringArrayVar(&p.Pinning, "pinning", nil, "`url` of the pinning API of a node; repeatable (default what the gateways tell)")
	jsonFlag(cmd, &asJSON)
	mustNotBeEmpty(cmd, "endpoint", "identity", "console", "pinning")
	mustBeText(cmd, "endpoint", "identity", "console", "pinning")
	return cmd
}

// readToken reads the token of an API key. If standard input is a terminal, it asks the user and
// hides the input. Otherwise it reads the first line of standard input.
func (a *app) readToken(ctx context.Context) (token string, err error) {
	if in, ok := a.terminalIn(); ok {
		token, err = a.typedUnseen(ctx, in, "Token of an API key: ")
	} else if token, err = firstLine(ctx, a.stdin, maxToken); errors.Is(err, io.EOF) {
		err = nil
	}
	token = strings.TrimSpace(token)
	if err == nil && token == "" {
		err = errors.New("no token on the first line of standard input")
	}
	return token, err
}

// profileRow is one profile in the output of profile ls --json.
type profileRow struct {
	Name      string   `json:"name"`
	Endpoints []string `json:"endpoints"`
	Pinning   []string `json:"pinning,omitempty"`
	Identity  string   `json:"identity,omitempty"`
	Console   string   `json:"console,omitempty"`
	Default   bool     `json:"default"`
}

func (a *app) profileListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the profiles, without their secrets",
		Example: "  holdfast profile ls",
		Args:    arguments(),
		RunE: func(*cobra.Command, []string) error {
			path, err := config.ClientFile(a.environ)
			if err != nil {
				return err
			}
			all, err := config.ReadProfiles(path)
			if err != nil {
				return err
			}
			var rows []profileRow
			for _, name := range slices.Sorted(maps.Keys(all.Named)) {
				p := all.Named[name]
				rows = append(rows, profileRow{name, notNil(p.Endpoints), p.Pinning, p.Identity, p.Console, name == all.Default})
			}
			if asJSON {
				return a.printJSON(notNil(rows))
			}
			for _, row := range rows {
				mark := " "
				if row.Default {
					mark = "*"
				}
				a.say(a.stdout, "%s %s  %s\n", mark, row.Name, printable(strings.Join(row.Endpoints, " ")))
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// completeProfiles makes shells offer the names of the profiles as values of --profile.
func (a *app) completeProfiles(cmd *cobra.Command) {
	mustComplete(cmd, "profile", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		path, err := config.ClientFile(a.environ)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, err := config.ReadProfiles(path)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(all.Named)), cobra.ShellCompDirectiveNoFileComp
	})
}
