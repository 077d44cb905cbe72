package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The binaries under test. Main sets what is not set from outside, so a test
// run can be pointed at a binary that exists already.
const (
	holdfastVariable = "HOLDFAST_BIN"
	foreignVariable  = "HOLDFAST_FOREIGN_BIN"
)

// buildTimeout bounds the build of one binary with cold caches.
const buildTimeout = 15 * time.Minute

// Main returns what the TestMain of a black-box package calls: it builds the
// binaries once into a folder of its own, runs the tests, ends what they shared
// (Lasting), removes the folder and returns the exit code.
func Main(m *testing.M) int {
	remove, err := Build()
	defer remove()
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		return 1
	}
	code := m.Run()
	if !endLasting() && code == 0 {
		code = 1
	}
	return code
}

// Build builds the binaries that are not set from outside into a folder of its
// own. The caller calls remove when no process of them runs any more, whatever
// the error.
func Build() (remove func(), err error) {
	dir, err := os.MkdirTemp("", "holdfast-test-bin-")
	remove = func() { os.RemoveAll(dir) }
	if err != nil {
		return remove, err
	}
	for _, b := range []struct{ variable, pkg string }{
		{holdfastVariable, "./cmd/holdfast"},
		{foreignVariable, "./test/foreign"},
	} {
		if os.Getenv(b.variable) != "" {
			continue
		}
		path := filepath.Join(dir, filepath.Base(b.pkg))
		if err := build(path, b.pkg); err != nil {
			return remove, err
		}
		os.Setenv(b.variable, path)
	}
	return remove, nil
}

func build(path, pkg string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// moduleRoot returns the folder that holds go.mod.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// Binary returns the path of the Holdfast binary under test.
func Binary(tb testing.TB) string { return binary(tb, holdfastVariable) }

// ForeignBinary returns the path of the IPFS peer of test/foreign.
func ForeignBinary(tb testing.TB) string { return binary(tb, foreignVariable) }

func binary(tb testing.TB, variable string) string {
	tb.Helper()
	path := os.Getenv(variable)
	if path == "" {
		tb.Fatalf("%s is not set: the package's TestMain must call harness.Main", variable)
	}
	if !filepath.IsAbs(path) {
		root, err := moduleRoot()
		if err != nil {
			tb.Fatal(err)
		}
		path = filepath.Join(root, path)
	}
	return path
}
