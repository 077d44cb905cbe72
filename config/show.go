package config

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// redacted replaces the value of a secret in the log.
const redacted = "REDACTED"

// Redacted returns a copy of c without secrets, for the log. It replaces the cluster secret, the
// client secrets of OpenID providers, and the tickets in cluster.join. Multiaddrs in cluster.join
// are no secrets and stay.
func (c Config) Redacted() Config {
	if c.Cluster.Secret != "" {
		c.Cluster.Secret = redacted
	}
	join := make([]string, len(c.Cluster.Join))
	for i, where := range c.Cluster.Join {
		if join[i] = redacted; strings.HasPrefix(where, "/") {
			join[i] = where
		}
	}
	c.Cluster.Join = join
	c.Console.OpenID = slices.Clone(c.Console.OpenID)
	for i := range c.Console.OpenID {
		if c.Console.OpenID[i].ClientSecret != "" {
			c.Console.OpenID[i].ClientSecret = redacted
		}
	}
	return c
}

// LogValue implements slog.LogValuer. It returns all settings by their keys, without secrets.
func (c Config) LogValue() slog.Value {
	c = c.Redacted()
	attrs := make([]slog.Attr, 0, len(table)+1)
	attrs = append(attrs, slog.String("data", c.Data))
	for _, s := range table {
		attrs = append(attrs, slog.String(s.key, format(s.field(&c))))
	}
	return slog.GroupValue(attrs...)
}

// Template returns the text of the settings file that a new data folder gets. It lists every
// setting with its default, as a comment.
func Template() []byte {
	var b bytes.Buffer
	b.WriteString("# Settings of a Holdfast node. Each line that is commented out shows the default.\n" +
		"# A flag of `holdfast run` overrides the environment, and the environment overrides\n" +
		"# this file. The node does not start with an unknown key in it.\n")
	defaults := Default()
	section := ""
	for _, s := range table {
		if s.section() != section {
			section = s.section()
			fmt.Fprintf(&b, "\n[%s]\n", section)
		} else {
			b.WriteByte('\n')
		}
		_, name, _ := strings.Cut(s.key, ".")
		fmt.Fprintf(&b, "# %s\n# (%s)\n# %s = %s\n", strings.ReplaceAll(s.help, "`", ""), strings.Join(s.also(), ", "), name, format(s.field(&defaults)))
	}
	return b.Bytes()
}
