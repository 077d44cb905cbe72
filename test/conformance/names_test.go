//go:build conformance

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestTheSharePageTakesThePathsOfWriters promises that the page of share links reads a path exactly if a writer may
// store an object under it.
func TestTheSharePageTakesThePathsOfWriters(t *testing.T) {
	t.Parallel()
	paths := []string{
		"/", "", "a", "//a", "/a/", "/a//b", "/./a", "/a/.", "/a/..", "/a/../b", "/../a", "/...", "/.a", "/a.", "/ ", "/%", "/%%", "/100%", "/%2", "/%2g", "/%252e",
		"/a%2fb", "/%c0%af", "/%u002e", "/ü", "/u\u0308", "/日本語", "/\U0001f600", "/\u2028", "/\u0085", "/\ufeff", "/\ufffe", "/\U0010ffff", "/C:",
		"/" + strings.Repeat("a", 1023), "/" + strings.Repeat("a", 1024), "/" + strings.Repeat("ü", 511) + "a", "/" + strings.Repeat("ü", 512),
		strings.Repeat("/a", 512), strings.Repeat("/a", 512) + "b", "/" + strings.Repeat("\U0001f600", 256),
	}
	for b := range 0x80 {
		paths = append(paths, "/a"+string(rune(b))+"b")
	}
	for b := range 0x100 {
		paths = append(paths, fmt.Sprintf("/%%%02x", b), fmt.Sprintf("/%%%02X/a", b))
	}
	page, err := filepath.Abs("../../api/console/static/seal.js")
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(map[string]any{"module": page, "paths": paths})
	if err != nil {
		t.Fatal(err)
	}
	modules, script := harness.Script(t, jsDir, "names.mjs")
	cmd := exec.CommandContext(t.Context(), harness.NodeProgram(modules, harness.NodeCurrent), script)
	cmd.Stdin = bytes.NewReader(in)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("names.mjs: %v\n%s", err, failure.Bytes())
	}
	var taken []bool
	if err := json.Unmarshal(out, &taken); err != nil || len(taken) != len(paths) {
		t.Fatalf("%d answers to %d paths: %v", len(taken), len(paths), err)
	}
	for i, path := range paths {
		if err := seal.CheckPath(path); (err == nil) != taken[i] {
			t.Errorf("the page takes %.80q: %t; a writer: %v", path, taken[i], err)
		}
	}
}
