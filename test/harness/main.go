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

// Environment variables with the paths of the binaries under test. If one is set before a test run,
// the run uses that binary. Otherwise Main builds the binary and sets the variable.
const (
	holdfastVariable = "HOLDFAST_BIN"
	foreignVariable  = "HOLDFAST_FOREIGN_BIN"
)

// buildTimeout is the longest time in which one binary must be built, also without a build cache.
const buildTimeout = 15 * time.Minute

// Main is called by the TestMain of a black-box package. It builds the binaries into a temporary
// folder, runs the tests, ends what the tests shared (see Lasting), removes the folder and returns
// the exit code.
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

// Build builds those binaries whose environment variables are not set, into a temporary folder.
// Also after an error, the caller must call remove, when no process of the binaries is running any
// more.
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

// moduleRoot returns the folder that contains go.mod.
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
