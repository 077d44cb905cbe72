package arch

import (
	"go/ast"
	"slices"
	"strings"
)

// promised are the packages of black-box tests, whose readers look up what is promised.
var promised = []string{"test/conformance", "test/console", "test/cluster", "test/smoke", "test/faults", "test/chaos"}

// checkPromises wants each test to say what it promises in a doc comment, and in a black-box package
// in one that begins with its name.
func checkPromises(f *file) []Violation {
	if !f.test {
		return nil
	}
	var broken []Violation
	for _, decl := range f.tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Name.Name == "TestMain" {
			continue
		}
		words := strings.Fields(fn.Doc.Text())
		switch {
		case len(words) < 2:
			broken = append(broken, f.violation(fn, "promise", "%s has no comment that says what it promises", fn.Name.Name))
		case slices.Contains(promised, f.pkg) && strings.TrimRight(words[0], ":") != fn.Name.Name:
			broken = append(broken, f.violation(fn, "promise", "the comment of %s does not begin with its name", fn.Name.Name))
		}
	}
	return broken
}
