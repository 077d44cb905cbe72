package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin"
)

const (
	// socketMode lets only the user of the node process connect to the socket.
	socketMode fs.FileMode = 0o600
	// probeTimeout bounds the test whether a process listens on an old socket.
	probeTimeout = time.Second
)

// socketListener removes the socket file when it is closed.
type socketListener struct {
	*net.UnixListener
	path string
	once sync.Once
}

// Close implements net.Listener.
func (l *socketListener) Close() error {
	l.once.Do(func() { _ = os.Remove(l.path) }) // a socket that stays is replaced by the next node
	return l.UnixListener.Close()
}

// listenSocket listens on the Unix socket of a data folder, with mode 0600. It replaces the
// socket of a dead process. It returns an error if a process listens on the socket.
func listenSocket(folder string) (net.Listener, error) {
	path := filepath.Join(folder, admin.SocketName)
	at, release, err := admin.Socket(folder)
	if err != nil {
		return nil, err
	}
	defer release()
	free, err := claim(folder)
	if err != nil {
		return nil, err
	}
	defer free()
	if err := removeStale(path, at); err != nil {
		return nil, err
	}
	// The mode is set before the socket has a name, so other users can never open it. Chmod
	// follows for systems on which that has no effect.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), uint32(socketMode)) }); err != nil {
			return err
		}
		return failed
	}}
	listener, err := config.Listen(context.Background(), "unix", at)
	if err != nil {
		return nil, fmt.Errorf("listen on the socket: %w", err)
	}
	l := &socketListener{UnixListener: listener.(*net.UnixListener), path: path}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("protect the socket: %w", err), l.Close())
	}
	return l, nil
}

// claim locks a data folder with flock until the caller calls free. So two nodes that start at
// the same time do not remove each other's socket. It returns an error if another process has the
// lock. On a file system without flock it does nothing. The node takes its permanent lock of the
// folder later.
func claim(folder string) (free func(), err error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("open the data folder: %w", err)
	}
	free = func() { _ = dir.Close() } // nothing was written
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		free()
		return nil, fmt.Errorf("another node starts on this data folder: %s", folder)
	}
	return free, nil
}

// removeStale removes the socket at path if no process listens on it. It returns an error if a
// process does, or if the file at path is no socket. at is another path of the same socket, for
// dial: it is short enough for the limit of the system. The caller has called claim, so that no
// other node creates the socket meanwhile.
func removeStale(path, at string) error {
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
	conn, err := dialer.DialContext(ctx, "unix", at)
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
