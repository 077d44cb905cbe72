package arch

import "strings"

// CheckModule returns a violation for each exclude or replace directive in go.mod, whose content is
// text. `go install …@version` refuses a module with such directives, because they apply only to
// the main module. The Path of the violations is go.mod.
func CheckModule(text []byte) []Violation {
	var broken []Violation
	for i, line := range strings.Split(string(text), "\n") {
		code, _, _ := strings.Cut(line, "//")
		word := strings.TrimRight(strings.TrimSpace(code), "(")
		if fields := strings.Fields(word); len(fields) > 0 {
			word = fields[0]
		}
		if word != "exclude" && word != "replace" {
			continue
		}
		broken = append(broken, Violation{
			Path:   "go.mod",
			Line:   i + 1,
			Rule:   "module",
			Detail: word + ": go install of the program at a version refuses this module",
		})
	}
	return broken
}
