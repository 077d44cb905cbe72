package main

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// operator is what the commands ask of the node that runs on this machine. No
// call dials before it is made, and each fails with one clear line when no node
// runs on the data folder. A user is an e-mail; an empty one is the operator.
type operator interface {
	Status(ctx context.Context) (client.Status, error)
	Peers(ctx context.Context) ([]client.Peer, error)
	Quorum(ctx context.Context) (client.Quorum, error)
	// Leaving is what a removal takes away; with count also what takes a look at every root.
	Leaving(ctx context.Context, node string, count bool) (client.Leaving, error)
	RemovePeer(ctx context.Context, node string, force bool) error
	CreateTicket(ctx context.Context, ttl time.Duration) (string, error)

	CreateUser(ctx context.Context, email, password string) (client.User, error)
	Users(ctx context.Context) ([]client.User, error)
	User(ctx context.Context, who string) (client.UserDetail, error) // by e-mail or id
	RemoveUser(ctx context.Context, email string) error
	SetPassword(ctx context.Context, email, password string) error
	SetQuota(ctx context.Context, email string, bytes uint64) error // math.MaxUint64: no limit
	Grant(ctx context.Context, email, posting string, credits uint64) error
	CreateKey(ctx context.Context, k client.NewKey) (client.Key, error)
	Keys(ctx context.Context, user string) ([]client.KeyRow, error) // of all with an empty user
	Key(ctx context.Context, jti string) (key client.KeyRow, found bool, err error)
	ShowKey(ctx context.Context, jti string) (client.Key, error)
	RotateSigningKey(ctx context.Context) (client.SigningKey, error)
	RevokeKey(ctx context.Context, jti string) error

	AddPin(ctx context.Context, user string, p client.Pin) (client.PinStatus, error)
	Pin(ctx context.Context, user, id string) (client.PinStatus, error)
	Pins(ctx context.Context, user string) iter.Seq2[client.PinStatus, error]       // newest first
	PinsOf(ctx context.Context, user, cid, name string) ([]client.PinStatus, error) // the newest of both; any name if empty
	RemovePin(ctx context.Context, user, id string) error
	// WaitPin returns the pin once it is pinned or has failed; seen is told of
	// each change before.
	WaitPin(ctx context.Context, user, id string, seen func(client.PinStatus)) (client.PinStatus, error)

	// Scrub verifies the node's blocks now and waits for repairs.
	Scrub(ctx context.Context) (client.Scrubbed, error)

	// AddContent imports a file. Its blocks are durable on the node, for a while.
	AddContent(ctx context.Context, r io.Reader) (client.Content, error)
	// OpenContent reads a file of size bytes: any with an empty user, else what that one
	// may read. One that breaks off is an error of the reader.
	OpenContent(ctx context.Context, user, cid string) (body io.ReadCloser, size int64, err error)
}

func connect(dir string) operator { return client.New(dir) }
