// Package accounts implements the operations on accounts: it manages accounts, their API keys and
// sessions, and checks the token of each request.
//
// An API key is a JWT signed with an Ed25519 key of the cluster. Ed25519 gives the same signature
// for the same text, so the token is not stored: to show it, a node signs it again from the
// record of the key. A key is valid while its record is in the replicated state. Therefore all
// nodes reject a key as soon as one node has revoked it.
//
// Imports: consensus/state, golang-jwt, golang.org/x/crypto/argon2.
// Never:   raft, libp2p, storage, HTTP; secrets in logs or errors.
package accounts

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// State has the methods of consensus that this package needs.
type State interface {
	// View returns a linearizable view of the state; the caller must call release. It returns
	// state.ErrUnavailable without a majority.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the state after the entries that this node has applied; the
	// caller must call release.
	LocalView() (view state.View, release func())
	// Propose commits a command. A read after it returns sees the change.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
}

// Options are the settings and dependencies of Accounts. State and Secret are required.
type Options struct {
	State  State
	Secret []byte           // the cluster secret, from which the account secret is known
	Now    func() time.Time // nil means time.Now
	NewID  func() string    // nil: random; lower-case base32, at most state.MaxIDLen-2 bytes
	Logger *slog.Logger     // nil means no log
	Watch  *state.Watch     // source of the events of Losses; nil means that Losses reports nothing
	// Agreed returns two times: early is one that most members' clocks have reached, and late is
	// one that most have not passed. ok is false while they are unknown. Ended keys and sessions
	// are removed by early; authentication uses Now. Nil means that both times are Now.
	Agreed func() (early, late state.Millis, ok bool)

	// Node is the id of this node, under which its counts of requests are charged. Empty means
	// that requests are not charged.
	Node state.NodeID

	// Refused is called after each wrong password, with the account that has the given name, or
	// "" if there is none, and the Network of the client's address. It must return at once. It
	// may be nil.
	Refused func(account state.AccountID, from netip.Addr)

	// Allowance is how many bytes a new account may store without credits; zero means
	// state.DefaultAllowance.
	Allowance uint64

	// SignUp is who may open an account; empty means SignUpOff.
	SignUp SignUp

	// SessionIdle is how long a session that begins on this node may be unused, and SessionLife
	// is its longest life. Zero means the defaults.
	SessionIdle, SessionLife time.Duration
	// Tries is the number of wrong passwords per minute that this node accepts for one name; for
	// one client address it accepts ten times as many. Zero means DefaultTries.
	Tries int
}

// maxVerified is the number of tokens whose valid signatures are cached, at about 500 bytes each.
const maxVerified = 8192

// Accounts manages accounts, keys and sessions.
type Accounts struct {
	state  State
	secret []byte // the cluster secret
	own    *keys  // those of the cluster secret
	now    func() time.Time
	newID  func() string
	agreed func() (early, late state.Millis, ok bool)
	log    *slog.Logger
	watch  *state.Watch
	node   state.NodeID
	refuse func(account state.AccountID, from netip.Addr)

	hashSlots hashSlots // slots for hashing passwords
	known     *known    // recent sign-ins
	// verified has the claims of tokens with a valid signature, by the hash of the token. For
	// each request the state decides whether the token is still valid.
	verified  *cache.Locked[[sha256.Size]byte, claims]
	signers   atomic.Pointer[signers] // nil until the state was read once
	asked     atomic.Int64            // when the cluster was last asked for signing keys, in milliseconds since 1970
	sessions  sessions
	derived   atomic.Pointer[keys] // nil until the record of the cluster was read once
	signUp    SignUp
	uses      *uses
	requests  requests // counts the requests of accounts since they were last written to the state
	tries     *tries
	allowance uint64 // allowance of new accounts
}

// New returns an Accounts with the given options.
func New(o Options) *Accounts {
	a := &Accounts{
		state: o.State, secret: o.Secret, now: o.Now, newID: o.NewID, agreed: o.Agreed, log: o.Logger, watch: o.Watch, node: o.Node,
		verified: cache.NewLocked[[sha256.Size]byte, claims](maxVerified), known: newKnown(),
		own: keysOf(o.Secret), tries: newTries(o.Tries),
	}
	a.sessions = newSessions(func() []byte { return a.keys().sessions }, o.SessionIdle, o.SessionLife)
	a.uses = newUses(a.sessions.idle)
	a.signUp = cmp.Or(o.SignUp, SignUpOff)
	a.allowance = cmp.Or(o.Allowance, state.DefaultAllowance)
	if a.refuse = o.Refused; a.refuse == nil {
		a.refuse = func(state.AccountID, netip.Addr) {}
	}
	if a.now == nil {
		a.now = time.Now
	}
	if a.agreed == nil {
		a.agreed = state.OneClock(a.now)
	}
	if a.newID == nil {
		a.newID = func() string { return strings.ToLower(rand.Text()) }
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	return a
}

// NormalEmail returns an e-mail address in the form that account records have: in lower case and
// without white space around it. The address must be printable ASCII with one @ that is neither
// first nor last, and have at most state.MaxEmailLen bytes. Domains in other scripts must be in
// their xn-- form. So two different addresses never look the same. The error is state.ErrInvalid.
func NormalEmail(email string) (string, error) {
	e := strings.ToLower(strings.TrimSpace(email))
	at := strings.IndexByte(e, '@')
	switch {
	case len(e) > state.MaxEmailLen:
		return "", state.Errorf(state.CodeInvalid, "the e-mail address is longer than %d bytes", state.MaxEmailLen)
	case at < 1, at == len(e)-1, strings.Count(e, "@") != 1, strings.ContainsFunc(e, unprintable):
		return "", state.Errorf(state.CodeInvalid, "%q is not an e-mail address", e)
	}
	return e, nil
}

func unprintable(r rune) bool { return r <= ' ' || r >= 0x7f }

// CreateAccount adds an account and returns it without its password hash. With an empty password,
// nobody can sign in with a password.
//
// Errors: state.ErrInvalid; state.ErrExists if the e-mail address has an account;
// state.ErrUnavailable without a majority.
func (a *Accounts) CreateAccount(ctx context.Context, email, password string) (User, error) {
	account, err := a.newAccount(ctx, email, password)
	if err != nil {
		return User{}, err
	}
	cmd, err := a.opening(account)
	if err == nil {
		_, err = a.state.Propose(ctx, cmd)
	}
	if err != nil {
		return User{}, fmt.Errorf("create account: %w", err)
	}
	a.log.InfoContext(ctx, "account created", "account", account.ID, "email", account.Email)
	account.PasswordHash = ""
	return User{Account: account, Quota: state.Quota{Allowance: a.allowance}}, nil
}

// newAccount returns the record of a new account. If password is empty, the account has no
// password.
func (a *Accounts) newAccount(ctx context.Context, email, password string) (state.Account, error) {
	email, err := NormalEmail(email)
	if err != nil {
		return state.Account{}, err
	}
	account := state.Account{ID: state.AccountID(a.newID()), Email: email, Created: state.MillisOf(a.now())}
	if password != "" {
		if account.PasswordHash, err = a.hashPassword(ctx, password); err != nil {
			return state.Account{}, err
		}
	}
	return account, nil
}

// ByEmail returns the account with an e-mail address, without its password hash, or
// state.ErrNotFound.
func (a *Accounts) ByEmail(ctx context.Context, email string) (state.Account, error) {
	return a.read(ctx, func(v state.View) (state.Account, error) { return byEmail(v, email) })
}

// Operator returns the operator account, with which local commands act.
func (a *Accounts) Operator(ctx context.Context) (state.Account, error) {
	return a.read(ctx, func(v state.View) (state.Account, error) {
		c, err := v.Cluster()
		if err != nil {
			return state.Account{}, err
		}
		return v.Account(c.Operator)
	})
}

func (a *Accounts) read(ctx context.Context, find func(state.View) (state.Account, error)) (state.Account, error) {
	account, err := a.withHash(ctx, find)
	account.PasswordHash = ""
	return account, err
}

// byEmail returns the account with an e-mail address, or state.ErrNotFound, also for text that is
// not an e-mail address.
func byEmail(v state.View, email string) (state.Account, error) {
	normal, err := NormalEmail(email)
	if err == nil {
		var account state.Account
		if account, err = v.AccountByEmail(normal); err == nil {
			return account, nil
		}
		if !errors.Is(err, state.ErrNotFound) {
			return state.Account{}, err
		}
	}
	return state.Account{}, state.Errorf(state.CodeNotFound, "there is no account with this e-mail address")
}
