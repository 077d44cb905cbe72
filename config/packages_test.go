package config

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The files of packages and containers name only variables that a node knows: a node does not start with another one.
func TestPackagesNameSettingsThatExist(t *testing.T) {
	known := map[string]bool{"HOLDFAST_DATA": true}
	for _, s := range Settings() {
		known[s.Env] = true
	}
	for _, name := range []string{
		"deploy/packages/holdfast.default", "deploy/packages/holdfast.service", "deploy/packages/holdfast-backup.service",
		"deploy/packages/postinstall.sh", "deploy/container/compose.yaml", "docs/containers.md",
	} {
		text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`HOLDFAST_[A-Z0-9]+[A-Z0-9_]*`).FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no variable", name)
		}
		for _, variable := range found {
			if !known[variable] {
				t.Errorf("%s names %s", name, variable)
			}
		}
	}
}
