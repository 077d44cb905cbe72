package arch

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each test, benchmark and fuzz target that README, CONTRIBUTING or a page of docs/ names is in the source, so that a
// promise can be looked up.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	const root = "../.."
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules" || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(documents) == 0 || len(declared) < 1000 {
		t.Fatalf("%d documents, %d tests: %v", len(documents), len(declared), err)
	}
	named := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+\b(?:\.\.\.)?`)
	for _, path := range append(documents, root+"/README.md", root+"/CONTRIBUTING.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllString(string(text), -1) {
			prefix, several := strings.CutSuffix(name, "...")
			if several {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(declared)), func(n string) bool { return strings.HasPrefix(n, prefix) }) {
					t.Errorf("%s names %s, and no test begins so", path, name)
				}
			} else if !declared[name] {
				t.Errorf("%s names %s, which is no test", path, name)
			}
		}
	}
}
