package config

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

const pageFile = "../docs/settings.md"

// docs/settings.md has every setting with its flag, variable, form and default, as the table has them. `make
// settings` writes it anew.
func TestThePageOfSettingsIsThatOfTheTable(t *testing.T) {
	goldentest.File(t, pageFile, page())
}

// page returns the page of settings in Markdown.
func page() []byte {
	var b bytes.Buffer
	b.WriteString("# Settings\n\n" +
		"`make settings` writes this page from the table in `config`.\n\n" +
		"A flag of `holdfast run` overrides the environment, the environment overrides `config.toml` in the data folder, and `config.toml` overrides the default. " +
		"With an unknown setting or a bad value the node does not start, and the error names it. " +
		"Write durations as `10s`, `5m` or `24h`, and sizes as `64KiB`, `10GiB` or a number of bytes. " +
		"A new data folder contains a `config.toml` with all settings as comments.\n")
	defaults := Default()
	section := ""
	for _, s := range table {
		if s.section() != section {
			section = s.section()
			fmt.Fprintf(&b, "\n## [%s]\n| setting | what it is | default | flag and variable |\n|---|---|---|---|\n", section)
		}
		also := "`" + strings.Join(s.also(), "`, `") + "`"
		help := strings.ReplaceAll(strings.ReplaceAll(s.help, "`", ""), "|", "\\|")
		fmt.Fprintf(&b, "| `%s` | %s (%s) | `%s` | %s |\n", s.key, help, formOf(s.field(&defaults)), format(s.field(&defaults)), also)
	}
	return b.Bytes()
}

// formOf returns the form of a value, by its type.
func formOf(field any) string {
	switch field.(type) {
	case *time.Duration:
		return "duration"
	case *Size:
		return "bytes"
	case *bool:
		return "true or false"
	case *int, *uint64, *float64:
		return "number"
	case *[]string:
		return "list"
	case *[]OpenID:
		return "tables"
	}
	return "text"
}
