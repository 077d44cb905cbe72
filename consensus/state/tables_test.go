package state

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// No two tables begin with the same byte.
func TestTablesAreDistinct(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]string{} // byte -> table
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "table") {
				return true
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.CHAR {
				if other := tables[value.Value]; other != "" {
					t.Errorf("%s and %s are both %s", spec.Names[0].Name, other, value.Value)
				}
				tables[value.Value] = spec.Names[0].Name
			}
			return true
		})
	}
	if len(tables) < 60 {
		t.Errorf("%d tables were found", len(tables))
	}
}
