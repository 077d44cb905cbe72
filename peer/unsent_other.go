//go:build !linux

package peer

import (
	"errors"
	"net"
)

// leaveUnsent is for Linux only.
func leaveUnsent(net.Conn, int) error { return errors.ErrUnsupported }
