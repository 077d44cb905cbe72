package admin

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	// SocketName is the name of the local API's socket in the data folder.
	SocketName = "holdfast.sock"
	// maxSocketPath is the maximum length of a socket's path in bytes: the smallest
	// sockaddr_un of the supported systems.
	maxSocketPath = 103
)

// Socket returns a path of the local API's socket that a process can listen on and dial,
// even if the path of the data folder is too long for a socket. The path is valid until
// release is called; the socket stays. Errors: fs.ErrNotExist for a missing folder, and a
// path that is too long on a system without /proc.
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
