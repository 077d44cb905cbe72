package peer

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// leaveUnsent limits how many bytes of a connection the kernel buffers before it sends them
// (TCP_NOTSENT_LOWAT, tcp(7)). By default the kernel buffers up to 4 MB, and bytes that are written
// later must wait for them.
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
