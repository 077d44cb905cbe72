package config

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The files of the packages name only variables that a node knows: a node does not start with another one.
func TestPackagesNameSettingsThatExist(t *testing.T) {
	known := map[string]bool{"HOLDFAST_DATA": true}
	for _, s := range Settings() {
		known[s.Env] = true
	}
	for _, name := range []string{"holdfast.default", "holdfast.service", "holdfast-backup.service", "postinstall.sh"} {
		text, err := os.ReadFile(filepath.Join("..", "deploy", "packages", name))
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
