package apitest

import (
	"encoding/json"
	"strings"
	"testing"
)

// References fails the test if a $ref of an OpenAPI document has no target, or if no $ref uses a
// component. Security schemes need no $ref.
func References(t *testing.T, document string) {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(document), &doc); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for key, e := range v {
				target, ok := e.(string)
				if key != "$ref" || !ok {
					walk(e)
					continue
				}
				used[target] = true
				var at any = doc
				for step := range strings.SplitSeq(strings.TrimPrefix(target, "#/"), "/") {
					m, _ := at.(map[string]any)
					at = m[step]
				}
				if at == nil {
					t.Errorf("%s leads nowhere", target)
				}
			}
		}
	}
	walk(doc)
	for kind, all := range doc["components"].(map[string]any) {
		for name := range all.(map[string]any) {
			if target := "#/components/" + kind + "/" + name; kind != "securitySchemes" && !used[target] {
				t.Errorf("%s is not used", target)
			}
		}
	}
}
