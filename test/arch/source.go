package arch

import (
	"bytes"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// Limits of files and functions, so that a reader can keep them in mind. Each constant is the
// smallest size that is refused.
const (
	linesOfFile     = 800
	linesOfFunction = 100
)

// checkSizes returns a violation for each file and each function that is too long.
func checkSizes(f *file) []Violation {
	var broken []Violation
	if n := bytes.Count(f.text, []byte("\n")); n >= linesOfFile {
		broken = append(broken, f.violation(f.tree, "file-size", "%d lines, fewer than %d are allowed", n, linesOfFile))
	}
	for _, decl := range f.tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
		if n >= linesOfFunction {
			broken = append(broken, f.violation(fn, "function-size", "%s has %d lines, fewer than %d are allowed", fn.Name.Name, n, linesOfFunction))
		}
	}
	return broken
}

// leftover matches words in comments that announce unfinished work.
var leftover = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

// checkWords returns a violation for each comment that announces unfinished work, and for each
// function named init.
func checkWords(f *file) []Violation {
	var broken []Violation
	for _, group := range f.tree.Comments {
		for _, comment := range group.List {
			// The rule itself has to say the words.
			if word := leftover.FindString(comment.Text); word != "" && f.pkg != "test/arch" {
				broken = append(broken, f.violation(comment, "leftover", "%s in a comment; file an issue or do it", word))
			}
		}
	}
	for _, decl := range f.tree.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			broken = append(broken, f.violation(fn, "init", "init runs unasked; call it from the constructor"))
		}
	}
	return broken
}

// ban forbids the use of some functions of a standard package.
type ban struct {
	pkg   string
	names []string
	tests bool     // the ban also applies to tests
	only  []string // packages to which the ban does not apply
	rule  string   // name of the rule, see Violation.Rule
	why   string   // what to do instead, for people
}

var bans = []ban{
	{"time", []string{"Sleep"}, true, nil, "sleep", "wait for a condition, a channel or a timer with ctx"},
	{"context", []string{"TODO"}, true, nil, "leftover", "hand the caller's context down"},
	{"os", []string{"Getenv", "LookupEnv", "ExpandEnv", "Setenv", "Unsetenv"}, false, nil, "environment", "only config reads the environment, and it is handed in"},
	{"os", []string{"Environ"}, false, []string{"cmd/holdfast"}, "environment", "only cmd hands the environment to config"},
	{"log/slog", []string{"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext", "Log", "LogAttrs", "With"}, false, nil, "logger", "the logger is injected"},
}

// clock bans the functions of package time that read the clock or wait, in the packages of pure.
// There, times come from the command that is applied.
var clock = ban{
	"time",
	[]string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep"},
	false, nil,
	"pure", "time comes in the command",
}

// checkCalls returns a violation for each use of a function in bans.
func checkCalls(f *file) []Violation {
	var broken []Violation
	for _, b := range bans {
		if (f.belongsToTests() && !b.tests) || matchesAny(b.only, f.pkg) {
			continue
		}
		broken = append(broken, uses(f, b)...)
	}
	return broken
}

// uses returns a violation for each place where the file mentions a function of b, whether it is
// called there or not.
func uses(f *file, b ban) []Violation {
	local := f.local(b.pkg)
	if local == "" {
		return nil
	}
	var broken []Violation
	if local == "." {
		return []Violation{f.violation(f.tree, b.rule, "%s is imported without a name", b.pkg)}
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains(b.names, sel.Sel.Name) {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && id.Name == local && id.Obj == nil {
			broken = append(broken, f.violation(sel, b.rule, "%s.%s: %s", b.pkg, sel.Sel.Name, b.why))
		}
		return true
	})
	return broken
}

// pauses matches names of variables that contain a time to wait.
var pauses = regexp.MustCompile(`(?i)(pause|wait|delay|backoff)`)

// checkPauses returns a violation where code doubles a time to wait by itself, with p *= 2 or p =
// min(2*p, most). Package internal/backoff must be used instead.
func checkPauses(f *file) []Violation {
	if f.belongsToTests() {
		return nil
	}
	var broken []Violation
	ast.Inspect(f.tree, func(n ast.Node) bool {
		set, ok := n.(*ast.AssignStmt)
		if !ok || len(set.Lhs) != len(set.Rhs) {
			return true
		}
		for i, target := range set.Lhs {
			name := types.ExprString(target)
			value := types.ExprString(set.Rhs[i])
			twice := set.Tok == token.MUL_ASSIGN && value == "2" ||
				strings.HasPrefix(value, "min(") && (strings.Contains(value, "2 * "+name) || strings.Contains(value, name+" * 2"))
			if twice && pauses.MatchString(name) {
				broken = append(broken, f.violation(set, "pause", "%s is doubled by hand: use internal/backoff", name))
			}
		}
		return true
	})
	return broken
}

// pure lists the packages whose results may depend only on their arguments, because all nodes must
// compute the same. The value lists the packages of other modules that they may import in addition
// to the standard library.
var pure = map[string][]string{
	"consensus/state":   {"github.com/ipfs/go-cid", "lukechampine.com/blake3"},
	"consensus/codec":   nil,
	"cluster/placement": {"github.com/ipfs/go-cid"},
}

// impure lists standard packages that the packages of pure may not import, because they give access
// to the network, the machine or random numbers.
var impure = []string{"net", "net/*", "math/rand", "math/rand/*", "crypto/rand", "log/slog", "os", "os/*", "io/ioutil", "syscall", "runtime"}

// checkPure returns a violation if a package of pure uses the clock, random numbers, the network,
// goroutines or logging. It does not check the tests of these packages.
func checkPure(f *file) []Violation {
	others, ok := pure[f.pkg]
	if !ok || f.test {
		return nil
	}
	broken := uses(f, clock)
	for _, spec := range f.tree.Imports {
		target := strings.Trim(spec.Path.Value, `"`)
		first, _, _ := strings.Cut(target, "/")
		foreign := strings.Contains(first, ".") && !strings.HasPrefix(target, Module) && !slices.Contains(others, target)
		if foreign || matchesAny(impure, target) {
			broken = append(broken, f.violation(spec, "pure", "%s is imported by %s", target, f.pkg))
		}
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if _, ok := n.(*ast.GoStmt); ok {
			broken = append(broken, f.violation(n, "pure", "%s starts a goroutine", f.pkg))
		}
		return true
	})
	return broken
}

// checkDoc returns a violation for a package without a package comment. The comment must have the
// lines "Imports:", with what the package may import, and "Never:", with what it must not import or
// do. Commands and packages for tests need only the comment.
func checkDoc(files []*file) []Violation {
	var doc string
	source := false
	for _, f := range files {
		if !f.test {
			source = true
			doc += f.tree.Doc.Text()
		}
	}
	first := files[0]
	switch {
	case !source:
		return nil
	case doc == "":
		return []Violation{first.violation(first.tree, "doc", "package %s has no comment", first.pkg)}
	case first.belongsToTests() || first.tree.Name.Name == "main":
		return nil
	case !strings.Contains(doc, "Imports:") || !strings.Contains(doc, "Never:"):
		return []Violation{first.violation(first.tree, "doc", "the comment of package %s lacks the lines Imports: and Never:", first.pkg)}
	}
	return nil
}
