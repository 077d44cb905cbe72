package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// explain adds to an error of the system what a person needs to mend it: whose a file is that
// cannot be opened and who asks for it, and that a disk is read-only, whichever file of the
// data folder was the first that could not be written.
func explain(err error, folder string) error {
	path := pathOf(err)
	switch {
	case path == "":
		return err
	case errors.Is(err, syscall.EROFS) && within(folder, path):
		return fmt.Errorf("the data folder %s is on a file system that is mounted read-only, and a node writes there: %w", folder, err)
	case errors.Is(err, fs.ErrPermission):
		if who := denier(path); who != "" {
			return fmt.Errorf("%w: %s, and this command runs as %s", err, who, userOf(strconv.Itoa(os.Geteuid())))
		}
	}
	return err
}

// pathOf is the file that an error is about; "" for none.
func pathOf(err error) string {
	var file *fs.PathError
	var socket *net.OpError
	switch {
	case errors.As(err, &file):
		return file.Path
	case errors.As(err, &socket) && socket.Addr != nil && socket.Addr.Network() == "unix":
		return socket.Addr.String()
	}
	return ""
}

// within tells whether path is a folder or below it. A socket of a folder with a long name is
// reached by another path, which is of the folder too.
func within(folder, path string) bool {
	below, err := filepath.Rel(folder, path)
	return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(filepath.Separator)) || strings.HasPrefix(path, "/proc/self/fd/")
}

// denier tells whose the file or the folder above it is that denies access to path, as far as
// it can be seen from here; "" if it cannot.
func denier(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	for {
		info, err := os.Stat(path)
		if err == nil {
			if at, ok := info.Sys().(*syscall.Stat_t); ok {
				return fmt.Sprintf("%s belongs to %s (mode %04o)", path, userOf(strconv.FormatUint(uint64(at.Uid), 10)), info.Mode().Perm())
			}
			return ""
		}
		above := filepath.Dir(path)
		if above == path {
			return ""
		}
		path = above // what is below may not be looked at, or is not there yet
	}
}

// userOf is a user by name, if the system has one for the id.
func userOf(id string) string {
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user " + id
}
