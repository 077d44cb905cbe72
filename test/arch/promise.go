package arch

import (
	"go/ast"
	"slices"
	"strings"
)

// promised lists the packages of black-box tests. The doc comments of their tests describe the
// promises of the program, and other documents refer to these tests by name.
var promised = []string{"test/conformance", "test/console", "test/cluster", "test/smoke", "test/faults", "test/chaos"}

// checkPromises returns a violation for each test without a doc comment that says what the test
// checks. In the packages of promised, the comment must also begin with the name of the test.
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
