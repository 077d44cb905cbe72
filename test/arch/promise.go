package arch

import (
	"go/ast"
	"slices"
	"strings"
)

// promised are the packages of black-box tests, whose readers look up what is promised.
var promised = []string{"test/conformance", "test/console", "test/cluster", "test/smoke", "test/faults", "test/chaos"}

// checkPromises wants each test of a black-box package to begin with what it promises: a doc
// comment that begins with its name.
func checkPromises(f *file) []Violation {
	if !f.test || !slices.Contains(promised, f.pkg) {
		return nil
	}
	var broken []Violation
	for _, decl := range f.tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Name.Name == "TestMain" {
			continue
		}
		if words := strings.Fields(fn.Doc.Text()); len(words) < 2 || strings.TrimRight(words[0], ":") != fn.Name.Name {
			broken = append(broken, f.violation(fn, "promise", "%s has no comment that begins with its name and says what it promises", fn.Name.Name))
		}
	}
	return broken
}
