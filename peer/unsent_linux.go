package peer

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// leaveUnsent has the kernel take no more than so many bytes of a connection beyond
// those that are on their way (tcp(7), TCP_NOTSENT_LOWAT). Without it there are 4 MB,
// in front of which nothing comes any more.
func leaveUnsent(c net.Conn, bytes int) error {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = control.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
	})
	return errors.Join(err, set)
}
