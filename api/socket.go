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
	// socketMode lets nobody but the node's own user in.
	socketMode fs.FileMode = 0o600
	// probeTimeout bounds asking whether somebody listens on an old socket.
	probeTimeout = time.Second
)

// socketListener removes its socket when it is closed, by the path that stays.
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

// listenSocket listens on the Unix socket of a data folder, of mode 0600. A socket that a
// dead process left is replaced; one that somebody listens on is an error.
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
	// The mode is set before the socket has a name, so there is no moment at
	// which others could open it. Where that has no effect, Chmod follows.
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

// claim keeps other nodes that start on a data folder from its socket until free is called:
// the folder is locked for good only later. Where folders cannot be locked it does nothing.
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

// removeStale removes a socket that nobody listens on any more; it is dialled at another
// name of it. Two starting nodes cannot do so to each other, see claim.
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
