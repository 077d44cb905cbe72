package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

func (a *app) keyCommand() *cobra.Command {
	return group("key", "Create, show and revoke API keys", `  holdfast key create --user ann@example.org --name laptop
  holdfast key ls
  holdfast key show JTI
  holdfast key revoke JTI`, a.keyCreateCommand(), a.keyListCommand(), a.keyShowCommand(), a.keyRevokeCommand(), a.keyRotateCommand())
}

// keyScopes are the scopes that an API key can have.
var keyScopes = []string{"storage:read", "storage:write", "storage:delete"}

func (a *app) keyCreateCommand() *cobra.Command {
	var (
		request client.NewKey
		scopes  []string
		ttl     time.Duration
		asJSON  bool
		asEnv   bool
	)
	cmd := &cobra.Command{
		Use:   "create --user EMAIL",
		Short: "Create an API key and print it",
		Long: `Creates an API key for an account and prints it. The key has two forms: a
token, which HTTP clients send as "Authorization: Bearer TOKEN", and an access
key pair, with which S3 clients sign requests.

With --env the command prints export statements for a shell instead:
HOLDFAST_TOKEN, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL
with the address of the S3 gateway of this node.`,
		Example: `  holdfast key create --user ann@example.org
  holdfast key create --user ann@example.org --name backup --scope storage:read --ttl 720h --json
  eval "$(holdfast key create --user ann@example.org --env)"`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case request.User == "":
				return usagef("%s: --user is missing (see %s --help)", called(cmd), cmd.CommandPath())
			case asJSON && asEnv:
				return usagef("%s: give either --json or --env, not both", called(cmd))
			case ttl < 0:
				return usagef("%s: --ttl %v is in the past", called(cmd), ttl)
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			request.Scopes = words(scopes)
			if ttl > 0 {
				request.TTL = ttl.String()
			}
			var gateway string
			if asEnv { // before there is a key that nobody would be shown
				if gateway, err = gatewayOf(cmd.Context(), o); err != nil {
					return err
				}
			}
			key, err := o.CreateKey(cmd.Context(), request)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return a.printJSON(key)
			case asEnv:
				a.exportKey(key, gateway)
				return nil
			}
			a.showKey(key)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asEnv, "env", false, "print the key as export statements for a shell")
	cmd.Flags().StringVar(&request.User, "user", "", "`email` of the account (required)")
	cmd.Flags().StringVar(&request.Name, "name", "", "`name` by which people recognize the key")
	cmd.Flags().StringSliceVar(&scopes, "scope", []string{"storage:read", "storage:write"}, "`scopes` of the key, joined by commas or spaces: "+strings.Join(keyScopes, ", "))
	spanFlagVar(cmd, &ttl, "ttl", 0, "`time` until the key expires, such as 24h or 30d; 0 means never")
	jsonFlag(cmd, &asJSON)
	mustNotBeEmpty(cmd, "user")
	mustHaveEntries(cmd, "scope")
	completeLists(cmd, "scope", keyScopes...)
	mustBeText(cmd, "user", "name", "scope")
	return cmd
}

// gatewayOf returns the URL of the S3 gateway of this node, or "" if the gateway is disabled.
func gatewayOf(ctx context.Context, o operator) (string, error) {
	s, err := o.Status(ctx)
	if err != nil {
		return "", err
	}
	return link(reachable(s.Node.S3), "", s.Node.TLS), nil
}

// exportKey prints a key and the URL of the S3 gateway as export statements of a POSIX shell.
func (a *app) exportKey(key client.Key, gateway string) {
	for _, v := range [][2]string{
		{"HOLDFAST_TOKEN", key.Token},
		{"AWS_ACCESS_KEY_ID", key.AccessKeyID},
		{"AWS_SECRET_ACCESS_KEY", key.SecretAccessKey},
		{"AWS_ENDPOINT_URL", gateway},
	} {
		if v[1] != "" {
			a.say(a.stdout, "export %s=%s\n", v[0], shellQuote(v[1]))
		}
	}
}

// reachable returns the host:port at which a client on this machine can connect to a listener. It
// replaces an unspecified address such as 0.0.0.0 with the loopback address.
func reachable(hostPort string) string { return specified(hostPort, loopback) }

// showKey prints a key with its secrets.
func (a *app) showKey(key client.Key) {
	p := paletteOf(a.stdout, a.environ)
	for _, row := range [][2]string{
		{"id", key.ID},
		{"scope", key.Scope},
		{"token", key.Token},
		{"access key id", key.AccessKeyID},
		{"secret access key", key.SecretAccessKey},
	} {
		a.say(a.stdout, "%s  %s\n", p.dim(pad(row[0], len("secret access key"))), row[1])
	}
}

func (a *app) keyShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show JTI",
		Short:   "Print an API key again, with its secrets",
		Long:    "Prints an API key again, with its secrets. JTI is the id of the key, which\nholdfast key ls lists.",
		Example: "  holdfast key show hq2vd7w3mkxgr5zcn6yt4jbfpa --json",
		Args:    arguments("JTI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			key, err := o.ShowKey(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(key)
			}
			a.showKey(key)
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) keyRotateCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the key with which the cluster signs API keys",
		Long: `Makes a new signing key for the cluster. The cluster signs all later API keys
with it. Existing API keys stay valid. If the old signing key is no longer safe,
also revoke the API keys that it signed.`,
		Example: "  holdfast key rotate",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			key, err := o.RotateSigningKey(cmd.Context())
			if err != nil {
				return err
			}
			return a.did(asJSON, key, "new API keys are signed by key %d of the cluster", key.Generation)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// pad fills text with spaces to width.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-len([]rune(text))))
}

func (a *app) keyListCommand() *cobra.Command {
	var (
		user   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List API keys, without their secrets",
		Long:    "Lists API keys without their secrets. Keys that have expired are in the list\ntoo.",
		Example: "  holdfast key ls --user ann@example.org --json",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			keys, err := o.Keys(cmd.Context(), user)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(notNil(keys))
			}
			t := table{head: []string{"ID", "USER", "NAME", "SCOPE", "CREATED", "EXPIRES", "USED"}, states: -1}
			for _, k := range keys {
				t.add(k.ID, k.User, printable(k.Name), k.Scope, k.Created, k.Expires, k.Used)
			}
			t.write(a.stdout, paletteOf(a.stdout, a.environ))
			return nil
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "`email` of one account (default all accounts)")
	mustNotBeEmpty(cmd, "user")
	mustBeText(cmd, "user")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) keyRevokeCommand() *cobra.Command {
	var r *removal
	cmd := &cobra.Command{
		Use:     "revoke JTI",
		Short:   "Revoke an API key",
		Long:    "Revokes an API key. Every node refuses it from now on. On a terminal the command\nasks first. JTI is the id of the key, which holdfast key ls lists.",
		Example: "  holdfast key revoke hq2vd7w3mkxgr5zcn6yt4jbfpa",
		Args:    arguments("JTI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			key, err := keyNamed(cmd.Context(), o, args[0])
			if err != nil {
				return err
			}
			used := "never used"
			if key.Used != "" {
				used = "last used " + key.Used
			}
			if err := a.confirm(cmd.Context(), r, fmt.Sprintf("This revokes the key %s%s of %s: %s, %s.",
				key.ID, inQuotes(key.Name), printable(key.User), key.Scope, used)); err != nil {
				return err
			}
			if err := o.RevokeKey(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.did(r.json, key, "revoked key %s%s of %s", key.ID, inQuotes(key.Name), printable(key.User))
		},
	}
	r = removalFlags(cmd)
	return cmd
}

// keyNamed returns the API key whose id is jti, or an error if there is none.
func keyNamed(ctx context.Context, o operator, jti string) (client.KeyRow, error) {
	key, found, err := o.Key(ctx, jti)
	if err != nil || found {
		return key, err
	}
	if strings.Count(jti, ".") == 2 { // a token is a secret, and long
		return client.KeyRow{}, errors.New("this is the token of a key, not its id; holdfast key ls lists the ids")
	}
	return client.KeyRow{}, fmt.Errorf("there is no key with the id %q: holdfast key ls lists them", jti)
}

// inQuotes returns name in quotes after a space, or "" if name is empty. Messages append the
// result.
func inQuotes(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" %q", printable(name))
}
