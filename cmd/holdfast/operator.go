package main

import (
	"context"
	"io"
	"iter"
	"net/url"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// operator is the local API of the node on this machine, as commands use it. Each call connects
// to the node, and returns an error of one line if no node runs on the data folder. A parameter
// user is an e-mail address; an empty one means the operator.
type operator interface {
	Status(ctx context.Context) (client.Status, error)
	Peers(ctx context.Context) ([]client.Peer, error)
	Quorum(ctx context.Context) (client.Quorum, error)
	// Leaving describes the effect of the removal of a member. Only with count the result has
	// the numbers for which the node scans all roots.
	Leaving(ctx context.Context, node string, count bool) (client.Leaving, error)
	RemovePeer(ctx context.Context, node string, force bool) error
	DrainPlan(ctx context.Context, node string) (client.DrainPlan, error)
	DrainPeer(ctx context.Context, node string, on bool) error
	CreateTicket(ctx context.Context, ttl time.Duration) (string, error)

	CreateUser(ctx context.Context, email, password string) (client.User, error)
	Users(ctx context.Context) ([]client.User, error)
	User(ctx context.Context, who string) (client.UserDetail, error) // by e-mail or id
	RemoveUser(ctx context.Context, email string) error
	SetPassword(ctx context.Context, email, password string) error
	SetDisabled(ctx context.Context, email string, on bool) error
	SetQuota(ctx context.Context, email string, bytes uint64) error // math.MaxUint64 means no limit
	Post(ctx context.Context, email string, p client.NewCredits) (client.Posting, error)
	Ledger(ctx context.Context, email string, query url.Values) (client.LedgerPage, error) // newest first
	CreateUserLink(ctx context.Context, email string) (client.Link, error)
	CreateConsoleLink(ctx context.Context) (client.Link, error)
	Links(ctx context.Context) ([]client.OpenLink, error)
	RevokeLink(ctx context.Context, id string) error
	CreateKey(ctx context.Context, k client.NewKey) (client.Key, error)
	Keys(ctx context.Context, user string) ([]client.KeyRow, error) // keys of all accounts if user is empty
	Key(ctx context.Context, jti string) (key client.KeyRow, found bool, err error)
	ShowKey(ctx context.Context, jti string) (client.Key, error)
	RotateSigningKey(ctx context.Context) (client.SigningKey, error)
	RevokeKey(ctx context.Context, jti string) error
	Shares(ctx context.Context) ([]client.ShareRow, error) // shares of all accounts
	AddApp(ctx context.Context, v client.NewApp) (client.App, error)
	Apps(ctx context.Context) ([]client.App, error)
	RemoveApp(ctx context.Context, name string) error

	Audit(ctx context.Context, query url.Values) iter.Seq2[client.AuditRow, error] // newest first
	VerifyAudit(ctx context.Context) (client.AuditCheck, error)
	Payments(ctx context.Context, query url.Values) iter.Seq2[client.Payment, error] // newest first

	AddPin(ctx context.Context, user string, p client.Pin) (client.PinStatus, error)
	Pin(ctx context.Context, user, id string) (client.PinStatus, error)
	// Pins returns the newest pins first.
	Pins(ctx context.Context, user string, f client.PinFilter) iter.Seq2[client.PinStatus, error]
	PinsOf(ctx context.Context, user, cid, name string) ([]client.PinStatus, error) // the newest; an empty name means any
	RemovePin(ctx context.Context, user, id string) error
	// WaitPin waits until the pin is pinned or has failed, and returns it. Until then it calls
	// seen for each change of the pin.
	WaitPin(ctx context.Context, user, id string, seen func(client.PinStatus)) (client.PinStatus, error)

	// Backup returns a backup of the replicated state. If it is not complete, body returns an
	// error.
	Backup(ctx context.Context) (body io.ReadCloser, err error)

	// Scrub verifies all blocks on the node and waits until damaged ones are repaired.
	Scrub(ctx context.Context) (client.Scrubbed, error)
	// Collect frees at once what the node would free later.
	Collect(ctx context.Context) (client.Collected, error)
	// Check checks the state and the blocks of the node.
	Check(ctx context.Context) (client.Checked, error)

	// AddContent imports a file. The node deletes the blocks after some time unless a pin keeps
	// them.
	AddContent(ctx context.Context, r io.Reader) (client.Content, error)
	// Import does the same as AddContent for a file or a folder.
	Import(ctx context.Context, r io.Reader, how client.Import) (client.Content, error)
	// OpenContent returns a file and its size in bytes. If user is not empty, the call fails
	// unless that user may read the file. If the transfer ends early, body returns an error.
	OpenContent(ctx context.Context, user, cid string) (body io.ReadCloser, size int64, err error)
	// OpenFileOrFolder does the same as OpenContent for a file or a folder. cid may have a path
	// after a slash.
	OpenFileOrFolder(ctx context.Context, user, cid string) (client.Opened, error)

	// ImportCAR imports the blocks of a CAR. The node deletes them after some time unless pins of the
	// roots keep them. If user is not empty, the call fails unless that account exists.
	ImportCAR(ctx context.Context, user string, r io.Reader) (client.CAR, error)
	// ExportCAR returns a DAG as a CAR. If user is not empty, the call fails unless that user may
	// read the DAG. If the CAR is not complete, body returns an error.
	ExportCAR(ctx context.Context, user, cid string) (body io.ReadCloser, err error)
}

func connect(dir string) operator { return client.New(dir) }
