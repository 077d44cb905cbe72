package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each decision record has its title in its file's name, the same sections in the same order, and a row in the index.
func TestDecisionRecordsHaveOneForm(t *testing.T) {
	const folder = "../../docs/adr"
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	title, heading := regexp.MustCompile(`^# (\d+)\. (.+)\n`), regexp.MustCompile(`(?m)^## (.+)$`)
	gap := regexp.MustCompile(`[^a-z0-9]+`)
	numbers := records(t, folder)
	for number, path := range numbers {
		name := filepath.Base(path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := title.FindSubmatch(text)
		if m == nil || string(m[1]) != number {
			t.Errorf("%s does not begin with its number and title", name)
			continue
		}
		decision := string(m[2])
		slug := strings.Trim(gap.ReplaceAllString(strings.ReplaceAll(strings.ToLower(decision), "'", ""), "-"), "-")
		if want := fmt.Sprintf("%04s-%s.md", number, slug); name != want {
			t.Errorf("%s is to be called %s, as its title says", name, want)
		}
		if !strings.Contains(string(text), "\n\nStatus: ") {
			t.Errorf("%s has no status", name)
		}
		var sections []string
		for _, h := range heading.FindAllSubmatch(text, -1) {
			sections = append(sections, string(h[1]))
		}
		all := []string{"Context", "Decision", "Consequences", "Tried and not kept"}
		if !slices.Equal(sections, all[:3]) && !slices.Equal(sections, all) {
			t.Errorf("%s has the sections %q", name, sections)
		}
		if row := fmt.Sprintf("| %s | [%s](%s) | ", number, decision, name); !strings.Contains(string(index), row) {
			t.Errorf("the index has no row %q", row)
		}
	}
	if rows := strings.Count(string(index), "\n| ") - 1; rows != len(numbers) {
		t.Errorf("the index has %d rows, and there are %d records", rows, len(numbers))
	}
}

// records returns the decision records by their number, without leading zeros.
func records(t *testing.T, folder string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "[0-9]*.md"))
	if err != nil || len(paths) < 40 {
		t.Fatalf("%d decision records: %v", len(paths), err)
	}
	numbers := map[string]string{}
	for _, path := range paths {
		digits, _, _ := strings.Cut(filepath.Base(path), "-")
		number := strings.TrimLeft(digits, "0")
		if numbers[number] != "" {
			t.Errorf("two records have the number %s", number)
		}
		numbers[number] = path
	}
	return numbers
}

// Each record that documents or comments name, as "ADR 12", exists.
func TestDecisionsThatAreNamedExist(t *testing.T) {
	const root = "../.."
	numbers := records(t, root+"/docs/adr")
	named := regexp.MustCompile(`\bADRs? (\d+)`)
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules" || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range named.FindAllSubmatch(text, -1) {
			found++
			if numbers[string(m[1])] == "" {
				t.Errorf("%s names %s, which is no record", path, m[0])
			}
		}
		return err
	})
	if err != nil || found < 50 {
		t.Fatalf("%d names of records: %v", found, err)
	}
}
