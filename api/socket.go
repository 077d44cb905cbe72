package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// socketMode lets nobody but the node's own user in.
	socketMode fs.FileMode = 0o600
	// maxSocketPath is the most bytes of a socket's path: what the smallest
	// sockaddr_un of the systems we run on holds.
	maxSocketPath = 103
	// probeTimeout bounds asking whether somebody listens on an old socket.
	probeTimeout = time.Second
)

// listenSocket listens on a Unix socket of mode 0600. A socket that a dead
// process left is replaced; one that somebody listens on is an error.
func listenSocket(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path of the socket %s has more than %d bytes: choose a data folder with a shorter path", path, maxSocketPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The mode is set before the socket has a name, so there is no moment at
	// which others could open it. Where that has no effect, Chmod follows.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), uint32(socketMode)) }); err != nil {
			return err
		}
		return failed
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on the socket: %w", err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("protect the socket: %w", err), listener.Close())
	}
	return listener, nil
}

// removeStale removes a socket that nobody listens on any more. Two starting
// nodes cannot do so to each other: the store in the folder admits one.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for an old socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is in the way: it is no socket", path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // it was only a question
		return fmt.Errorf("another node runs on this data folder: %s is in use", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("look whether a node uses %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the socket of a dead node: %w", err)
	}
	return nil
}
