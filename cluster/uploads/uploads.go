// Package uploads stores files, folders and CARs that users send, and pins them. The blocks are stored
// on this node first. Then pins are created, and the nodes that are to hold the content take it from
// this node, as they do for content that an operator has added.
//
// Imports: consensus/state, cluster/content, cluster/pins, x/sync.
// Never:   raft, libp2p, storage, HTTP.
package uploads

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"golang.org/x/sync/semaphore"
)

// Limits of uploads. One upload holds about 4 MiB of memory.
const (
	// mostAtOnce is the number of uploads that a node stores at a time, and mostOfAccount the number
	// for one account, so that clients of one account that send slowly leave room for others. Of each
	// account, mostWaiting more wait for queueTimeout.
	mostAtOnce    = 32
	mostOfAccount = 4
	mostWaiting   = 32
	queueTimeout  = 30 * time.Second
	// mostDeleted is the number of times that an upload can be repeated after its pin was deleted.
	mostDeleted = 8
	// pinTimeout is how long the pins of an upload may take.
	pinTimeout = 7 * time.Second
)

// State is the part of consensus that this package uses.
type State interface {
	// LocalView returns a view of the state that this node has applied; the caller must call
	// release.
	LocalView() (view state.View, release func())
}

// Content stores DAGs.
type Content interface {
	AddPinned(ctx context.Context, r io.Reader, as content.Layout, pin content.Pin) (content.Imported, error)
	AddFolderPinned(ctx context.Context, r io.Reader, as content.Layout, pin content.Pin) (content.Imported, error)
	AddFilesPinned(ctx context.Context, next content.NextFile, as content.Layout, pin content.Pin) (content.Imported, error)
	ImportCARPinned(ctx context.Context, r io.Reader, pin content.Pin) (content.CAR, error)
}

// Pins creates and deletes pins.
type Pins interface {
	Create(ctx context.Context, account state.AccountID, r pins.Request) (pins.Record, error)
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
	Delete(ctx context.Context, account state.AccountID, id state.RequestID) error
}

// Uploads stores what users send.
type Uploads struct {
	state   State
	content Content
	pins    Pins
	all     *semaphore.Weighted

	// mu guards accounts.
	mu       sync.Mutex
	accounts map[state.AccountID]*line
}

// line is the uploads of one account.
type line struct {
	*semaphore.Weighted
	users int // uploads that run or wait
}

// New returns an Uploads.
func New(s State, c Content, p Pins) *Uploads {
	return &Uploads{state: s, content: c, pins: p, all: semaphore.NewWeighted(mostAtOnce), accounts: map[state.AccountID]*line{}}
}

// Request describes an upload.
type Request struct {
	Account state.AccountID
	Pin     pins.Request // of each root; its CID is not read
	As      content.Layout
	// Once is the idempotency key of the upload, if Repeats is true: a repeated upload gets the pins of the first
	// as long as they exist, and makes others only for other roots.
	Once    state.Hash
	Repeats bool
}

// name gives the pin a name, unless no pin may have it.
func (r *Request) name(name string) {
	named := r.Pin
	named.Name, named.Given = name, named.Given|state.GivenName
	if checkPin(named) == nil {
		r.Pin = named
	}
}

// Result is what an upload has stored.
type Result struct {
	Pins []pins.Record // one for each root
	Size uint64        // of the files or, for a CAR, of its blocks, in bytes
	// Blocks is the number of blocks in a CAR, and Entries are what is directly in a folder.
	Blocks  uint64
	Entries []content.Entry
}

// File stores body as a file and pins it. When it returns, the content is durable on this node and the
// pin in the cluster. The content is on enough nodes when the pin is pinned. After an error nothing is
// pinned, unless the error is state.ErrUnavailable, after which it may be.
//
// Errors: those of pins.Create; state.ErrInvalid for an unknown layout; state.ErrQuota for more bytes
// than the account may store; state.ErrNoSpace; state.ErrLimited if too many uploads wait; those of
// body.
func (u *Uploads) File(ctx context.Context, r Request, body io.Reader) (out Result, err error) {
	done, err := u.store(ctx, &r, &out, func(left *allowed, pin content.Pin) (content.Imported, error) {
		return u.content.AddPinned(ctx, left.reader(body), r.As, pin)
	})
	out.Size = done.Size
	return out, err
}

// Folder stores the tar stream of a folder and pins the folder. It returns state.ErrInvalid if body is not such a
// stream. Otherwise it does the same as File. The bytes of an upload are those of the stream.
func (u *Uploads) Folder(ctx context.Context, r Request, body io.Reader) (out Result, err error) {
	done, err := u.store(ctx, &r, &out, func(left *allowed, pin content.Pin) (content.Imported, error) {
		return u.content.AddFolderPinned(ctx, left.reader(body), r.As, pin)
	})
	out.Size, out.Entries = done.Size, done.Entries
	return out, err
}

// Files stores files as a folder and pins it. If the folder would have one entry, the entry is pinned
// and not the folder, under its own name unless the request has one. Otherwise it does the same as File.
func (u *Uploads) Files(ctx context.Context, r Request, next content.NextFile) (out Result, err error) {
	only, several := "", false // the first name of all paths
	done, err := u.store(ctx, &r, &out, func(left *allowed, pin content.Pin) (content.Imported, error) {
		return u.content.AddFilesPinned(ctx, func() (string, io.Reader, error) {
			path, body, err := next()
			switch first, _, _ := strings.Cut(path, "/"); {
			case errors.Is(err, io.EOF) && only == "":
				return "", nil, state.Errorf(state.CodeInvalid, "the upload has no file")
			case err != nil:
				return "", nil, err
			case only == "":
				only = first
			default:
				several = several || first != only
			}
			return path, left.reader(body), nil
		}, r.As, func(roots []cid.Cid, size uint64) error {
			if r.Pin.Name == "" && !several {
				r.name(only)
			}
			return pin(roots, size)
		})
	})
	out.Size = done.Size
	return out, err
}

// CAR stores the blocks of a CAR and pins its roots: all or none. It returns state.ErrInvalid for a bad
// CAR, and for one whose DAGs are not complete in the cluster. Otherwise it does the same as File.
func (u *Uploads) CAR(ctx context.Context, r Request, body io.Reader) (out Result, err error) {
	done, err := u.store(ctx, &r, &out, func(left *allowed, pin content.Pin) (content.Imported, error) {
		car, err := u.content.ImportCARPinned(ctx, left.reader(body), pin)
		out.Blocks = car.Blocks
		return content.Imported{Size: car.Bytes}, err
	})
	out.Size = done.Size
	return out, err
}

// store waits until the upload may run, runs it, and adds its pins to out.
func (u *Uploads) store(ctx context.Context, r *Request, out *Result, run func(left *allowed, pin content.Pin) (content.Imported, error)) (content.Imported, error) {
	if err := checkPin(r.Pin); err != nil {
		return content.Imported{}, err
	}
	left, err := u.allowance(r.Account)
	if err != nil {
		return content.Imported{}, err
	}
	leave, err := u.enter(ctx, r.Account)
	if err != nil {
		return content.Imported{}, err
	}
	defer leave()
	return run(left, func(roots []cid.Cid, size uint64) (err error) {
		if err = u.fits(r.Account, roots, size); err == nil {
			out.Pins, err = u.pin(ctx, r, roots)
		}
		return err
	})
}

// checkPin returns the error that pins.Create would return for every root, before the body is read.
func checkPin(r pins.Request) error {
	r.CID = anyCID
	if _, err := r.Validate(); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return nil
}

// anyCID is a valid CID: of the raw block without bytes.
const anyCID = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"

// pin pins the roots. If one cannot be pinned, pin deletes the pins of the others.
func (u *Uploads) pin(ctx context.Context, r *Request, roots []cid.Cid) (all []pins.Record, err error) {
	for _, root := range roots {
		each := r.Pin
		each.CID = root.String()
		record, err := u.create(ctx, r, each)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("pin %s: %w", root, err), u.undo(ctx, r.Account, all))
		}
		all = append(all, record)
	}
	return all, nil
}

// create creates the pin of one root. A repeated upload gets the pin of the first, unless that was deleted, as it is
// if the pin of another root could not be created.
func (u *Uploads) create(ctx context.Context, r *Request, pin pins.Request) (pins.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	if !r.Repeats {
		return u.pins.Create(ctx, r.Account, pin)
	}
	for deleted := range byte(mostDeleted) {
		name := sha256.Sum256(slices.Concat(r.Once[:], []byte{deleted}, []byte(pin.CID)))
		record, err := u.pins.Create(pins.Once(ctx, name), r.Account, pin)
		if err != nil {
			return record, err
		}
		if _, err = u.pins.Get(ctx, r.Account, record.ID); !errors.Is(err, state.ErrNotFound) {
			return record, err
		}
	}
	return pins.Record{}, state.Errorf(state.CodeExists, "the pins of %d uploads with this name were deleted", mostDeleted)
}

func (u *Uploads) undo(ctx context.Context, account state.AccountID, all []pins.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pinTimeout)
	defer cancel()
	for i := range all {
		if err := u.pins.Delete(ctx, account, all[i].ID); err != nil && !errors.Is(err, state.ErrNotFound) {
			return fmt.Errorf("delete the pin of another root: %w", err)
		}
	}
	return nil
}

// enter waits until another upload of the account may run.
func (u *Uploads) enter(ctx context.Context, account state.AccountID) (leave func(), err error) {
	l := u.join(account)
	if l == nil {
		return nil, errBusy
	}
	waits, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	if err = l.Acquire(waits, 1); err == nil {
		if err = u.all.Acquire(waits, 1); err != nil {
			l.Release(1)
		}
	}
	if err == nil {
		return func() { u.all.Release(1); l.Release(1); u.leave(account, l) }, nil
	}
	u.leave(account, l)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("upload: %w", ctx.Err())
	}
	return nil, errBusy
}

var errBusy = state.Errorf(state.CodeLimited, "too many uploads at once: send fewer at a time")

// join adds an upload of an account, or returns nil if too many wait.
func (u *Uploads) join(account state.AccountID) *line {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.accounts[account]
	if l != nil && l.users >= mostOfAccount+mostWaiting {
		return nil
	}
	if l == nil {
		l = &line{Weighted: semaphore.NewWeighted(mostOfAccount)}
		u.accounts[account] = l
	}
	l.users++
	return l
}

func (u *Uploads) leave(account state.AccountID, l *line) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(u.accounts, account)
	}
}

// allowed is how many bytes an upload may still have.
type allowed struct {
	limited bool
	left    uint64
}

// allowance returns the number of bytes that an upload of an account may have. That is the whole
// allowance, because the account may have the same content already, which is not charged again: the
// state decides when the content is pinned. So what is stored here until then is bounded.
func (u *Uploads) allowance(account state.AccountID) (*allowed, error) {
	view, release := u.state.LocalView()
	defer release()
	q, err := view.Quota(account)
	if err != nil {
		return nil, fmt.Errorf("read the allowance: %w", err)
	}
	return &allowed{limited: q.Credits == 0, left: q.Allowance}, nil
}

// fits returns state.ErrQuota if the content is certainly more than what is left of the allowance, so
// that the caller hears of it at once. Content that the account has already is not charged again.
func (u *Uploads) fits(account state.AccountID, roots []cid.Cid, size uint64) error {
	view, release := u.state.LocalView()
	defer release()
	q, err := view.Quota(account)
	if err != nil {
		return fmt.Errorf("read the allowance: %w", err)
	}
	left := q.Allowance - min(q.Allowance, q.Used())
	if q.Credits > 0 || size <= left {
		return nil
	}
	for _, root := range roots {
		record, err := view.Root(state.RootOf(root))
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		has := false
		if err == nil {
			has, err = view.Names(account, &record)
		}
		if err != nil {
			return fmt.Errorf("read root %s: %w", root, err)
		}
		if has {
			return nil
		}
	}
	return state.Errorf(state.CodeQuota, "the upload has %d bytes, and the account may store %d more", size, left)
}

// reader returns a reader of r that fails after the allowed bytes.
func (a *allowed) reader(r io.Reader) io.Reader { return &limited{a, r} }

type limited struct {
	*allowed
	r io.Reader
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if !l.limited {
		return n, err
	}
	if uint64(n) > l.left {
		return 0, state.Errorf(state.CodeQuota, "the upload has more bytes than the account may store")
	}
	l.left -= uint64(n)
	return n, err
}
