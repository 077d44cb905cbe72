package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// An error about access to the data folder says who owns the folder, or that its disk is read-only. Every other error
// stays unchanged.
func TestErrorsOfTheSystemAreExplained(t *testing.T) {
	folder := t.TempDir()
	locked := filepath.Join(folder, "locked")
	if err := os.Mkdir(locked, 0o700); err != nil {
		t.Fatal(err)
	}
	me := userOf(strconv.Itoa(os.Geteuid()))
	refused := func(path string, err error) error {
		return fmt.Errorf("settings: %w", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	socket := &net.OpError{Op: "listen", Net: "unix", Addr: &net.UnixAddr{Net: "unix", Name: filepath.Join(folder, "holdfast.sock")}, Err: os.NewSyscallError("bind", syscall.EROFS)}
	port := &net.OpError{Op: "listen", Net: "tcp", Addr: &net.TCPAddr{Port: 80}, Err: os.NewSyscallError("bind", syscall.EACCES)}
	for _, tc := range []struct {
		name string
		err  error
		says string // empty: it stays as it is
	}{
		{"a folder of somebody's", refused(filepath.Join(locked, "config.toml"), syscall.EACCES), locked + " belongs to " + me + " (mode 0700), and this command runs as " + me},
		{"the folder itself", refused(locked, syscall.EPERM), locked + " belongs to " + me + " (mode 0700), and"},
		{"a read-only disk, found by a file", refused(filepath.Join(folder, "format"), syscall.EROFS), "the data folder " + folder + " is on a read-only file system"},
		{"a read-only disk, found by the socket", fmt.Errorf("listen on the socket: %w", socket), "the data folder " + folder + " is on a read-only file system"},
		{"a read-only disk somewhere else", refused("/somewhere/else", syscall.EROFS), ""},
		{"a port that is not allowed", port, ""},
		{"a file that is not there", refused(filepath.Join(folder, "gone"), syscall.ENOENT), ""},
		{"no error of the system", errors.New("no"), ""},
	} {
		got := explain(tc.err, folder)
		if !errors.Is(got, tc.err) || tc.says == "" && got.Error() != tc.err.Error() || !strings.Contains(got.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
