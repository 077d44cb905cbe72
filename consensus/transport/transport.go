// Package transport carries Raft and the forwarding of requests to the leader
// over streams between members. Who the other side is, and that it is a member,
// the streams themselves vouch for: a stream's remote address is a node id.
//
// Imports: std, hashicorp/raft (its stream layer alone), consensus/wire for bounds.
// Never:   libp2p, storage, what a request means.
package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
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

// RaftLayer is Raft's stream layer: its server addresses are node ids.
type RaftLayer struct {
	net.Listener
	network Network
}

var _ raft.StreamLayer = (*RaftLayer)(nil)

// ListenRaft accepts Raft's streams on a network. Closing the layer ends that.
func ListenRaft(network Network) (*RaftLayer, error) {
	l, err := network.Listen(RaftProtocol)
	if err != nil {
		return nil, fmt.Errorf("transport: listen for raft: %w", err)
	}
	return &RaftLayer{Listener: l, network: network}, nil
}

// Dial implements raft.StreamLayer.
func (l *RaftLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := l.network.Dial(ctx, string(address), RaftProtocol)
	if err != nil {
		return nil, fmt.Errorf("transport: dial %s: %w", address, err)
	}
	return conn, nil
}

// errClosed ends the calls of a client that is closed.
var errClosed = errors.New("transport: closed")
