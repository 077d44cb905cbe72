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

// explain adds to a file system error what an operator needs to fix it. To a permission error it
// adds the owner of the file and the user of this process. To an error about a read-only file
// system it adds the data folder. It returns every other error unchanged.
func explain(err error, folder string) error {
	path := pathOf(err)
	switch {
	case path == "":
		return err
	case errors.Is(err, syscall.EROFS) && within(folder, path):
		return fmt.Errorf("the data folder %s is on a read-only file system, and the node must write there: %w", folder, err)
	case errors.Is(err, fs.ErrPermission):
		if who := denier(path); who != "" {
			return fmt.Errorf("%w: %s, and this command runs as %s", err, who, userOf(strconv.Itoa(os.Geteuid())))
		}
	}
	return err
}

// pathOf returns the path of the file or of the Unix socket that err is about, or "" if err has
// no path.
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

// within reports whether path is folder or a path below it. It also returns true for paths in
// /proc/self/fd: through them the program reaches the socket in a data folder whose path is too
// long for a socket address.
func within(folder, path string) bool {
	below, err := filepath.Rel(folder, path)
	return err == nil && below != ".." && !strings.HasPrefix(below, ".."+string(filepath.Separator)) || strings.HasPrefix(path, "/proc/self/fd/")
}

// denier returns a text with the owner and the mode of path, or of the nearest folder above path
// that this process can inspect. It returns "" if it can inspect none.
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

// userOf returns the name of the user with a numeric id, or "user ID" if the system knows no
// name.
func userOf(id string) string {
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user " + id
}
