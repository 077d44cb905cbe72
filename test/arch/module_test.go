package arch

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// go.mod has no directive that prevents go install of the program at a version.
func TestTheProgramCanBeInstalledAtAVersion(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "module "+Module+"\n") {
		t.Fatalf("go.mod is not that of %s", Module)
	}
	for _, v := range CheckModule(text) {
		t.Error(v)
	}
}

// CheckModule finds each replace and exclude directive, in a line or a block, and nothing that only looks like one.
func TestDirectivesOfTheMainModuleAreRefused(t *testing.T) {
	const head = "module x\n\ngo 1.26.0\n\n"
	for _, tc := range []struct {
		name string
		text string
		want []int // lines
	}{
		{"neither", head + "require example.org/exclude v1.0.0 // replace\n", nil},
		{"in a comment", head + "// exclude example.org/a v1.0.0\n", nil},
		{"a module of that name", head + "require (\n\texclude.example.org/a v1.0.0\n)\n", nil},
		{"exclude", head + "exclude example.org/a v1.0.0\n", []int{5}},
		{"replace", head + "\treplace example.org/a => ../a\n", []int{5}},
		{"blocks", head + "exclude (\n\texample.org/a v1.0.0\n)\nreplace(\n\texample.org/a => ../a\n)\n", []int{5, 8}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []int
			for _, v := range CheckModule([]byte(tc.text)) {
				if v.Path != "go.mod" || v.Rule != "module" {
					t.Errorf("%v is no violation of the module", v)
				}
				got = append(got, v.Line)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("lines %v, not %v", got, tc.want)
			}
		})
	}
}
