package arch

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The program has no module that only tests need, as the AWS SDK, whoever imports it.
func TestTheProgramHasNoModuleOfTests(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/holdfast")
	list.Dir, list.Stderr = "../..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	program := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
	if !slices.Contains(program, Module) || len(program) < 10 {
		t.Fatalf("the program is built from %d modules: %v", len(program), program)
	}
	for _, v := range CheckDependencies(text, program) {
		t.Error(v)
	}
}

// CheckDependencies finds a module of tests in the program, also one that another module brings, and a direct module
// that is not in the program and has no name among those of tests.
func TestModulesOfTestsInTheProgramAreRefused(t *testing.T) {
	const mod = "module x\n\nrequire (\n\texample.org/a v1.0.0\n\tpgregory.net/rapid v1.0.0\n)\n\nrequire github.com/aws/smithy-go v1.0.0 // indirect\n"
	for _, tc := range []struct {
		name    string
		program []string
		want    []string
	}{
		{"apart", []string{"example.org/a", "x"}, nil},
		{"imported", []string{"example.org/a", "pgregory.net/rapid", "x"}, []string{"go.mod:5: pgregory.net/rapid is for tests"}},
		{"brought by another", []string{"example.org/a", "github.com/aws/smithy-go", "x"}, []string{"go.mod:8: github.com/aws/smithy-go is for tests"}},
		{"not in go.mod", []string{"example.org/a", "github.com/stretchr/testify"}, []string{"go.mod:1: github.com/stretchr/testify is for tests"}},
		{"without a name", []string{"x"}, []string{"go.mod:4: example.org/a is not in the program"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			broken := CheckDependencies([]byte(mod), tc.program)
			if len(broken) != len(tc.want) {
				t.Fatalf("got %v, want %q", broken, tc.want)
			}
			for i, v := range broken {
				if got := fmt.Sprintf("%s:%d: %s", v.Path, v.Line, v.Detail); v.Rule != "dependency" || !strings.HasPrefix(got, tc.want[i]) {
					t.Errorf("got %v, want %s", v, tc.want[i])
				}
			}
		})
	}
}
