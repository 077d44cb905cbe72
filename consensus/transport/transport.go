// Package transport carries Raft messages and forwarded requests over streams between
// members. It trusts the streams to authenticate the other side: a stream's remote
// address is the node id of a member.
//
// Imports: std, hashicorp/raft (its transport alone), consensus/wire for bounds.
// Never:   libp2p, storage, the meaning of a request.
package transport

import (
	"context"
	"errors"
	"net"
)

// Protocols that members speak on their streams.
const (
	RaftProtocol    = "/holdfast/raft/1"
	ForwardProtocol = "/holdfast/forward/1"
)

// Network opens and accepts streams between members. The remote address of a
// stream is the id of the node at its other end.
type Network interface {
	Dial(ctx context.Context, node, protocol string) (net.Conn, error)
	Listen(protocol string) (net.Listener, error)
}

// errClosed is the error of calls on a closed transport.
var errClosed = errors.New("transport: closed")
