//go:build !linux

package peer

import (
	"errors"
	"net"
)

// leaveUnsent does nothing: the option exists on Linux only.
func leaveUnsent(net.Conn, int) error { return errors.ErrUnsupported }
