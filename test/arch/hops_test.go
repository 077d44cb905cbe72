package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// leastHops is how many hops each flow of docs/ARCHITECTURE.md has at the least.
const leastHops = 8

// Each hop of "The life of a request" in docs/ARCHITECTURE.md names a function that is declared in the file it names.
func TestHopsNameFunctionsThatExist(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## The life of a request\n")
	if !found {
		t.Fatal(`docs/ARCHITECTURE.md has no section "The life of a request"`)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	flows := strings.Split(section, "\n### ")[1:]
	if len(flows) != 6 {
		t.Errorf("%d flows, want 6", len(flows))
	}
	numbered, hop := regexp.MustCompile(`^\d+\. `), regexp.MustCompile("^\\d+\\. `([\\w.]+)` \\(`([\\w./]+\\.go)`\\): ")
	declared := map[string]map[string]bool{}
	for _, flow := range flows {
		title, lines, _ := strings.Cut(flow, "\n")
		hops := 0
		for _, line := range strings.Split(lines, "\n") {
			if !numbered.MatchString(line) {
				continue
			}
			hops++
			m := hop.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: %q names no `function` (`file.go`)", title, line)
				continue
			}
			name, path := m[1], m[2]
			if declared[path] == nil {
				declared[path] = functions(t, filepath.Join(root, path))
			}
			if !declared[path][name] {
				t.Errorf("%s: hop %d: %s has no function %s", title, hops, path, name)
			}
		}
		if hops < leastHops {
			t.Errorf("%s: %d hops, want %d at the least", title, hops, leastHops)
		}
	}
}

// functions returns the functions and methods that a file declares, methods as Type.Name.
func functions(t *testing.T, path string) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return map[string]bool{}
	}
	names := map[string]bool{}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			of := f.Recv.List[0].Type
			if star, pointer := of.(*ast.StarExpr); pointer {
				of = star.X
			}
			if ident, plain := of.(*ast.Ident); plain {
				name = ident.Name + "." + name
			}
		}
		names[name] = true
	}
	return names
}
