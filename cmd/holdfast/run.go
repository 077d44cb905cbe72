package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
)

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a node in the foreground",
		Long: `Runs a node in the foreground. With an empty data folder the node first creates
its identity, a cluster secret, a settings file and a cluster of one member.
With --join it joins an existing cluster instead. On SIGTERM, SIGINT or SIGHUP
the node hands leadership over, completes open requests and exits.

Each flag is also a setting in config.toml in the data folder and an
environment variable HOLDFAST_<SECTION>_<KEY>. A flag overrides the
environment, and the environment overrides the file.`,
		Example: `  holdfast run --data ~/node1
  holdfast run --data ~/node2 --join "$(holdfast token --data ~/node1)"
  holdfast run --data ~/node3 --join /ip4/10.0.0.1/tcp/9096/p2p/12D3KooW... --secret-file cluster.secret`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := a.folder()
			if err != nil {
				return err
			}
			c, err := config.Load(dir, a.environ, cmd.Flags())
			if err != nil {
				return err
			}
			if a.ownFiles != nil {
				a.ownFiles()
			}
			if err := writeTemplate(dir); err != nil {
				return fmt.Errorf("data folder: %w", err)
			}
			for _, path := range exposed(dir, c, a.environ) {
				newLogger(a.stderr, c.Log).WarnContext(cmd.Context(), "other users can read a file with a secret: set its mode to 600", "file", path)
			}
			node.LibraryLogs(newLogger(a.stderr, c.Log).Handler())
			err = a.serveOn(cmd.Context(), c)
			if errors.Is(err, node.ErrNoWayIn) && cmd.Flags().Changed("join") {
				return usagef("%v", err) // a member does not read --join
			}
			return err
		},
	}
	cmd.Flags().SortFlags = false
	config.Register(cmd.Flags())
	for _, s := range config.Settings() {
		if s.Flag != "" && len(s.Values) > 0 {
			completeValues(cmd, s.Flag, s.Values...)
		}
	}
	return cmd
}

// writeTemplate creates the data folder, and in it a settings file unless there is one. All
// settings in the new file are comments, so it has no effect.
func writeTemplate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, config.FileName)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err // nil when the file is there
	}
	// The cluster secret may be written there: it is for the node's user alone.
	return writeWhole(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(config.Template())
		return err
	})
}

// exposed returns the paths of those files with secrets in the data folder that other users of
// this machine can read. The node only warns about them, because an operator often cannot change
// the mode of a secret that is mounted into a container.
func exposed(dir string, c config.Config, environ []string) (paths []string) {
	folder, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	names := []string{node.SecretFile, node.IdentityFile}
	inFile := slices.ContainsFunc(c.Console.OpenID, func(p config.OpenID) bool { return p.ClientSecret != "" })
	if inFile || c.Cluster.Secret != "" && !isSet(environ, "HOLDFAST_SECRET") {
		names = append(names, config.FileName)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		// The group's and the others' bits: who may read the file, and search the folder.
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o044>>2&folder.Mode().Perm() != 0 {
			paths = append(paths, path)
		}
	}
	return paths
}

// isSet reports whether environ contains the variable name, even with an empty value.
func isSet(environ []string, name string) bool {
	return slices.ContainsFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}

// newLogger returns a logger that writes to w with the level and format of c. config.Load has
// validated c.
func newLogger(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// addresses has the facts about a running node that board prints.
type addresses struct {
	Name    string
	ID      string
	Public  []string // multiaddrs that end in /p2p/ID
	Cluster []string
	Pinning string // host:port of the listener, as in the five fields below; empty if it is disabled
	S3      string
	Console string
	Paid    string
	Gateway string
	Admin   string
	Setup   string // path of the one-time setup link of the console; empty if there is no link
	Warning string // a problem of the cluster; empty if there is none
}

// board prints the addresses of the node, and commands that the operator can run next, to
// standard error. If the log format is JSON, it prints them only on a terminal, because a program
// may read the log.
func (a *app) board(c config.Config, where addresses) {
	if c.Log.Format != "text" && !isTerminal(a.stderr) {
		return
	}
	p := paletteOf(a.stderr, a.environ)
	var b strings.Builder
	line := func(what, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %s  %s\n", p.dim(pad(what, 8)), value)
		}
	}
	fmt.Fprintf(&b, "\n  %s %s  %s\n", p.bold("Holdfast"), a.version, p.dim(where.Name+" "+where.ID))
	line("data", c.Data)
	for _, addr := range where.Cluster {
		line("cluster", addr)
	}
	for _, addr := range where.Public {
		line("public", addr)
	}
	tls := c.API.TLSCert != ""
	line("pinning", link(shown(where.Pinning), "/pins", tls))
	line("s3", link(shown(where.S3), "", tls))
	base := cmp.Or(c.Console.URL, link(shown(where.Console), "", tls))
	if where.Console != "" {
		line("console", base+"/")
	}
	line("paid", link(shown(where.Paid), "", tls))
	line("gateway", link(shown(where.Gateway), "", tls))
	line("metrics", link(shown(where.Admin), "/metrics", false))
	if where.Warning != "" {
		fmt.Fprintf(&b, "\n  %s  %s\n", p.yellow("warning"), where.Warning)
	}
	if where.Setup != "" && where.Console != "" {
		fmt.Fprintf(&b, "\n  %s  %s\n", p.bold("Open this once, within 30 minutes, to become the first administrator:"), p.cyan(base+where.Setup))
	}
	data := shellQuote(c.Data)
	fmt.Fprintf(&b, "\n  %s\n", p.bold("Next"))
	for _, next := range [][2]string{
		{"another node", `holdfast run --data DIR --join "$(holdfast token --data ` + data + `)"`},
		{"an account", "holdfast user add you@example.org --data " + data},
		{"its API key", "holdfast key create --user you@example.org --data " + data},
		{"the cluster", "holdfast status --data " + data},
	} {
		fmt.Fprintf(&b, "  %s  %s\n", p.dim(pad(next[0], 12)), p.cyan(next[1]))
	}
	a.say(a.stderr, "%s\n", b.String())
}

// link returns the URL of path at the listener hostPort, or "" if hostPort is empty. tls selects
// https.
func link(hostPort, path string, tls bool) string {
	scheme := "http://"
	switch {
	case hostPort == "":
		return ""
	case tls:
		scheme = "https://"
	}
	return scheme + hostPort + path
}

// shellQuote returns text as one word in the syntax of a POSIX shell, in quotes if necessary.
func shellQuote(text string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("/._-+:@%,", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// stopped reports whether err is a context.Canceled that the end of ctx caused.
func stopped(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
