// Package arch checks rules about the structure of the source code: which package may import which,
// and which constructs are forbidden. The test of this package applies the rules to this
// repository.
//
// Load reads every Go file, without regard to build tags, because `go list` shows only the files of
// one set of tags. The package uses `go list` only to find out which modules the program contains.
//
// Imports: std.
// Never:   imports of the packages that it checks.
package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the module path of Holdfast. The import paths of all its packages begin with it.
const Module = "github.com/holdfast-ipfs/holdfast"

// Source is one Go file: its path relative to the root of the repository, with slashes, and its
// text.
type Source struct {
	Path string
	Text []byte
}

// Violation is one place in the source that breaks a rule.
type Violation struct {
	Path   string
	Line   int
	Rule   string // short name of the rule, stable
	Detail string // text that tells people what is wrong
}

// String returns the violation as "path:line: ...", which editors can open.
func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", v.Path, v.Line, v.Rule, v.Detail)
}

// Load reads the Go files below root. It skips hidden folders and the folders testdata,
// node_modules and bin, which contain no source code of Holdfast.
func Load(root string) ([]Source, error) {
	var sources []Source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			outside := base == "testdata" || base == "node_modules" || base == "bin" || strings.HasPrefix(base, ".")
			if outside && name != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		sources = append(sources, Source{Path: filepath.ToSlash(rel), Text: text})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	return sources, nil
}

// file is one parsed Source.
type file struct {
	path string
	pkg  string // folder of the file, relative to the root of the repository; "." for the root itself
	test bool   // a _test.go file
	text []byte
	tree *ast.File
	fset *token.FileSet
}

// violation returns a Violation of rule at the line of node. format and args give the detail.
func (f *file) violation(node ast.Node, rule, format string, args ...any) Violation {
	return Violation{
		Path:   f.path,
		Line:   f.fset.Position(node.Pos()).Line,
		Rule:   rule,
		Detail: fmt.Sprintf(format, args...),
	}
}

// local returns the name under which the file refers to the package with this import path, or "" if
// the file does not import the package.
func (f *file) local(importPath string) string {
	for _, spec := range f.tree.Imports {
		if strings.Trim(spec.Path.Value, `"`) != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// belongsToTests reports whether the file is a _test.go file or belongs to a package that only
// tests use.
func (f *file) belongsToTests() bool {
	return f.test || matches("test/*", f.pkg) || strings.HasSuffix(f.pkg, "test")
}

// Check applies every rule to the files in sources and returns the violations, sorted by path and
// line. It returns an error if a file is not valid Go.
func Check(sources []Source) ([]Violation, error) {
	fset := token.NewFileSet()
	var files []*file
	for _, s := range sources {
		tree, err := parser.ParseFile(fset, s.Path, s.Text, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse: %w", err)
		}
		files = append(files, &file{
			path: s.Path,
			pkg:  path.Dir(s.Path),
			test: strings.HasSuffix(s.Path, "_test.go"),
			text: s.Text,
			tree: tree,
			fset: fset,
		})
	}
	var broken []Violation
	for _, f := range files {
		broken = append(broken, checkImports(f)...)
		broken = append(broken, checkSizes(f)...)
		broken = append(broken, checkWords(f)...)
		broken = append(broken, checkCalls(f)...)
		broken = append(broken, checkPure(f)...)
		broken = append(broken, checkPauses(f)...)
		broken = append(broken, checkPromises(f)...)
	}
	broken = append(broken, checkPackages(files)...)
	slices.SortStableFunc(broken, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return broken, nil
}

// checkPackages applies the rules that need all files of a package.
func checkPackages(files []*file) []Violation {
	packages := map[string][]*file{}
	var order []string
	for _, f := range files {
		if packages[f.pkg] == nil {
			order = append(order, f.pkg)
		}
		packages[f.pkg] = append(packages[f.pkg], f)
	}
	var broken []Violation
	for _, pkg := range order {
		broken = append(broken, checkRow(packages[pkg])...)
		broken = append(broken, checkDoc(packages[pkg])...)
		broken = append(broken, checkState(packages[pkg])...)
	}
	return broken
}
