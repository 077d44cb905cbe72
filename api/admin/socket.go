package admin

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	// SocketName is the name of the local API's socket in the data folder.
	SocketName = "holdfast.sock"
	// maxSocketPath is the maximum length of a socket's path in bytes. It is the smallest limit
	// (sockaddr_un) of all supported systems.
	maxSocketPath = 103
)

// Socket returns a path under which a process can listen on or dial the socket of the local API.
// If the usual path in the data folder is too long for a socket, it returns a short one through
// /proc. The path is valid until the caller calls release, which does not remove the socket.
// Errors: fs.ErrNotExist for a missing folder, and an error for a path that is too long on a
// system without /proc.
func Socket(folder string) (path string, release func(), err error) {
	path = filepath.Join(folder, SocketName)
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(folder)
	if err != nil {
		return "", nil, fmt.Errorf("open the data folder: %w", err)
	}
	short := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	if _, err := os.Stat(short); err != nil {
		_ = dir.Close() // nothing was written
		return "", nil, fmt.Errorf("the path of the socket %s has more than %d bytes: choose a data folder with a shorter path", path, maxSocketPath)
	}
	return filepath.Join(short, SocketName), func() { _ = dir.Close() }, nil
}
