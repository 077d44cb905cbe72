package arch

import (
	"slices"
	"strings"
)

// testModules are the modules that tests alone use. A name that ends in a slash stands for every
// module below it.
var testModules = []string{
	"github.com/anishathalye/porcupine",
	"github.com/aws/",
	"github.com/chromedp/",
	"github.com/marcopolo/simnet",
	"github.com/oauth2-proxy/mockoidc",
	"github.com/santhosh-tekuri/jsonschema/v6",
	"github.com/stretchr/testify",
	"github.com/zitadel/",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
}

// ofTests returns whether a module is one of testModules.
func ofTests(module string) bool {
	return slices.ContainsFunc(testModules, func(name string) bool {
		return module == name || strings.HasSuffix(name, "/") && strings.HasPrefix(module, name)
	})
}

// CheckDependencies returns the modules of tests that the program contains, and the modules that
// go.mod requires directly and that neither the program contains nor testModules names. The
// second keeps the list complete, so that the first finds all. program are the modules of the
// packages that the program is built from. Path of the violations is go.mod.
func CheckDependencies(text []byte, program []string) []Violation {
	var broken []Violation
	add := func(line int, detail string) {
		broken = append(broken, Violation{Path: "go.mod", Line: line, Rule: "dependency", Detail: detail})
	}
	required := map[string]int{}
	for i, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") {
			continue
		}
		required[fields[0]] = i + 1
		if !strings.HasSuffix(line, "// indirect") && !ofTests(fields[0]) && !slices.Contains(program, fields[0]) {
			add(i+1, fields[0]+" is not in the program: testModules has to name it")
		}
	}
	for _, module := range program {
		if ofTests(module) {
			add(max(1, required[module]), module+" is for tests, and the program contains it")
		}
	}
	return broken
}
