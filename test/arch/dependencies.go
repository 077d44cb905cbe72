package arch

import (
	"slices"
	"strings"
)

// testModules lists the modules that only tests, and the commands in deploy, may use. A name that ends in a slash stands for
// every module whose path begins with it.
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
	"golang.org/x/crypto/x509roots/fallback", // of deploy/container/image
	"pgregory.net/rapid",
}

// ofTests reports whether a module is in testModules.
func ofTests(module string) bool {
	return slices.ContainsFunc(testModules, func(name string) bool {
		return module == name || strings.HasSuffix(name, "/") && strings.HasPrefix(module, name)
	})
}

// CheckDependencies finds modules that are in the wrong place. text is the content of go.mod, and
// program lists the modules of all packages that the program is built from. CheckDependencies
// returns a violation for each module of testModules that the program contains. It also returns one
// for each direct requirement in go.mod that is neither in program nor in testModules, so that the
// list testModules stays complete. The Path of the violations is go.mod.
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
