package peer

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// leaveUnsent limits the bytes of a connection that the kernel buffers beyond those in
// flight (TCP_NOTSENT_LOWAT, tcp(7)). The default allows 4 MB, and nothing sent later can
// pass them.
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
