package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// Package variables are allowed when nothing can change them: errors to compare
// with, interface assertions, embedded files, and tables or compiled forms that
// no function of the package assigns to, takes the address of, or deletes from.
// Without type information this is an approximation; it errs on refusing.

// fixed lists functions whose result no caller can change, so a package variable may contain it.
var fixed = []string{
	"errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer", "crc32.MakeTable",
	"netip.MustParseAddr", "netip.MustParsePrefix", "template.Must", "slices.Concat",
	"base32.NewEncoding", "base32.StdEncoding.WithPadding", "base64.NewEncoding",
	"cid.MustParse", "cid.NewCidV1", "time.Unix", "time.Date", "big.NewInt", "reflect.TypeOf",
}

// builders lists the prefixes of names of functions that usually return something changeable.
var builders = []string{"make", "new", "open"}

// checkState returns a violation for each package variable that can change. Without type
// information the check is an approximation: in doubt it refuses a variable.
func checkState(files []*file) []Violation {
	if matches("test/*", files[0].pkg) || strings.HasSuffix(files[0].pkg, "test") {
		return nil // a harness may build a binary once, and a package for tests have a flag
	}
	var broken []Violation
	declared := map[string]*ast.ValueSpec{}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, decl := range f.tree.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, s := range group.Specs {
				spec, ok := s.(*ast.ValueSpec)
				if !ok {
					continue
				}
				broken = append(broken, checkVariable(f, group, spec)...)
				for _, name := range spec.Names {
					declared[name.Name] = spec
				}
			}
		}
	}
	for _, f := range files {
		broken = append(broken, changes(f, declared)...)
	}
	return broken
}

// checkVariable returns a violation for each variable in spec whose initial value is missing or can
// be changed.
func checkVariable(f *file, group *ast.GenDecl, spec *ast.ValueSpec) []Violation {
	var broken []Violation
	for i, name := range spec.Names {
		if name.Name == "_" || embedded(group.Doc) || embedded(spec.Doc) {
			continue
		}
		if i >= len(spec.Values) {
			broken = append(broken, f.violation(name, "state", "package variable %s has no value: it waits to be changed", name.Name))
			continue
		}
		sentinel := strings.HasPrefix(name.Name, "Err") || strings.HasPrefix(name.Name, "err")
		if why := changeable(spec.Values[i], sentinel); why != "" {
			broken = append(broken, f.violation(name, "state", "package variable %s %s", name.Name, why))
		}
	}
	return broken
}

func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

// changeable returns why a variable with this initial value can change, or "" if it cannot.
// sentinel is true if the name of the variable is that of an error, such as ErrClosed.
func changeable(value ast.Expr, sentinel bool) string {
	switch v := value.(type) {
	case *ast.UnaryExpr:
		if v.Op == token.AND && !sentinel {
			return "is a pointer"
		}
	case *ast.CompositeLit:
		if name := dotted(v.Type); strings.HasPrefix(name, "sync.") || strings.HasPrefix(name, "atomic.") {
			return "is a " + name
		}
	case *ast.CallExpr:
		name := dotted(v.Fun)
		_, own := v.Fun.(*ast.Ident)
		switch {
		case name == "", slices.Contains(fixed, name): // a conversion such as []byte("x"), a fixed form
			return ""
		case (own || sentinel) && !slices.ContainsFunc(builders, func(b string) bool { return strings.HasPrefix(strings.ToLower(name), b) }):
			return "" // our own function that computes a table or an error
		}
		return "comes from " + name + ", which is not known to return something fixed"
	}
	return ""
}

// dotted returns "a.b.c" for an expression of this form, and "" for any other expression.
func dotted(e ast.Expr) string {
	switch v := e.(type) {
	case *ast.Ident:
		return v.Name
	case *ast.SelectorExpr:
		if left := dotted(v.X); left != "" {
			return left + "." + v.Sel.Name
		}
	case *ast.IndexExpr: // a generic function or type with its argument
		return dotted(v.X)
	}
	return ""
}

// changes returns a violation for each place in f that changes a variable in declared: an
// assignment, an address operator, or a call of delete, clear or copy.
func changes(f *file, declared map[string]*ast.ValueSpec) []Violation {
	var broken []Violation
	refuse := func(e ast.Expr, how string) {
		if name := root(e); name != nil && isPackageVariable(name, declared) {
			broken = append(broken, f.violation(e, "state", "package variable %s is %s", name.Name, how))
		}
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		switch v := n.(type) {
		case *ast.AssignStmt:
			if v.Tok == token.DEFINE {
				break
			}
			for _, left := range v.Lhs {
				refuse(left, "assigned to")
			}
		case *ast.IncDecStmt:
			refuse(v.X, "assigned to")
		case *ast.RangeStmt:
			if v.Tok == token.ASSIGN {
				refuse(v.Key, "assigned to")
				refuse(v.Value, "assigned to")
			}
		case *ast.UnaryExpr:
			if v.Op == token.AND {
				refuse(v.X, "taken the address of")
			}
		case *ast.CallExpr:
			if fn, ok := v.Fun.(*ast.Ident); ok && len(v.Args) > 0 && (fn.Name == "delete" || fn.Name == "clear" || fn.Name == "copy") {
				refuse(v.Args[0], "changed by "+fn.Name)
			}
		}
		return true
	})
	return broken
}

// root returns the variable that the expression e denotes or is a part of; nil if there is none.
func root(e ast.Expr) *ast.Ident {
	for {
		switch v := e.(type) {
		case *ast.Ident:
			return v
		case *ast.SelectorExpr:
			e = v.X
		case *ast.IndexExpr:
			e = v.X
		case *ast.SliceExpr:
			e = v.X
		case *ast.ParenExpr:
			e = v.X
		case *ast.StarExpr:
			e = v.X
		default:
			return nil
		}
	}
}

// isPackageVariable reports whether name refers to a variable in declared. The parser sets name.Obj
// only for names that are declared in the same file. A name without Obj is declared in another file
// of the package or is the name of an import, and imports are not in declared.
func isPackageVariable(name *ast.Ident, declared map[string]*ast.ValueSpec) bool {
	spec, ok := declared[name.Name]
	if !ok || name.Name == "_" {
		return false
	}
	return name.Obj == nil || name.Obj.Decl == spec
}
