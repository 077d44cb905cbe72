package web

import (
	"context"
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// Rate is the number of requests that one account or address may send: PerSecond steadily,
// Burst at once. A PerSecond of zero is no limit.
type Rate struct {
	PerSecond, Burst int
}

// Bounds of the memory of limits.
const (
	limitShards = 32
	// maxLimited is how many accounts, and how many addresses, are remembered, about 110
	// bytes each. One that is forgotten starts with a full burst.
	maxLimited = 1 << 17
	// pressedFor is how long Pressed returns true after a refusal.
	pressedFor = time.Second
	// refusalFor is how long Refusal repeats the refusal of a token, and maxRefusals for how many
	// tokens, about 50 bytes each.
	refusalFor  = 100 * time.Millisecond
	maxRefusals = 1 << 12
	// patience is the longest delay of Paced.
	patience = 250 * time.Millisecond
)

// Limits enforces the rates of accounts and addresses, their memory and their share of the
// processors, on this node.
type Limits struct {
	accounts, unknown, content *Memory

	pacer            *Pacer // nil: requests are not delayed
	account, address *limiter
	trusted          []netip.Prefix
	now              func() time.Time
	made             time.Time    // when these limits were created
	refused          atomic.Int64 // when an account was last refused, as of elapsed; 0: never

	refusals *cache.Locked[uint64, refusal] // key: hash of the token
}

// refusal is the answer that a token gets until a time, as of elapsed.
type refusal struct {
	until int64
	err   error
}

// NewLimits returns limits. It attributes a request of a trusted proxy to the client in
// X-Forwarded-For. A nil now means time.Now.
func NewLimits(account, address Rate, trusted []netip.Prefix, now func() time.Time) *Limits {
	if now == nil {
		now = time.Now
	}
	return &Limits{
		accounts: NewMemory(memoryOfAccounts, memoryOfAccount), unknown: NewMemory(memoryOfUnknown, memoryOfNetwork),
		content:  NewMemory(memoryOfContent, memoryOfReaders),
		refusals: cache.NewLocked[uint64, refusal](maxRefusals),
		account:  newLimiter(account), address: newLimiter(address), trusted: trusted, now: now, made: now(),
	}
}

// PacedBy makes requests wait for p, which the APIs of a node share, and returns l.
func (l *Limits) PacedBy(p *Pacer) *Limits {
	l.pacer = p
	return l
}

// Enter calls Enter of the Pacer. A nil Limits delays nothing.
func (l *Limits) Enter(ctx context.Context, id state.AccountID) (leave func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	return l.pacer.Enter(ctx, id)
}

// elapsed returns the time since the limits were created, in nanoseconds, at least 1. It
// uses the monotonic clock: if the wall clock is set back, clients do not have to wait for
// it.
func (l *Limits) elapsed() int64 { return 1 + int64(l.now().Sub(l.made)) }

// limiter is a table of token buckets by the generic cell rate algorithm. A bucket is
// stored as the time when it will be full if no more requests arrive.
type limiter struct {
	each   int64 // ns that one request adds; 0: no limit
	most   int64 // ns that a bucket may hold
	seed   maphash.Seed
	shards [limitShards]limitShard
}

type limitShard struct {
	mu   sync.Mutex // guards full
	full *cache.Cache[uint64, int64]
}

func newLimiter(r Rate) *limiter {
	l := &limiter{seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].full = cache.New[uint64, int64](maxLimited / limitShards)
	}
	if r.PerSecond > 0 {
		l.each = max(1, int64(time.Second)/int64(r.PerSecond))
		l.most = int64(min(float64(l.each)*float64(max(1, r.Burst)), math.MaxInt64/4))
	}
	return l
}

// take takes one request from the bucket of h, or returns how long to wait.
func (l *limiter) take(h uint64, now int64) (wait time.Duration, ok bool) {
	return l.add(h, 1, now, 0)
}

// add takes n requests from the bucket of h and returns how long to wait until they are
// available. If that is longer than patience, it takes none and ok is false.
func (l *limiter) add(h uint64, n, now int64, patience time.Duration) (wait time.Duration, ok bool) {
	if l.each == 0 {
		return 0, true
	}
	s := &l.shards[h%limitShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	full, _ := s.full.Peek(h)
	full = max(full, now) + n*l.each
	if wait = time.Duration(max(0, full-now-l.most)); wait > patience {
		return wait, false
	}
	s.full.Put(h, full)
	return wait, true
}

// Account takes one request from the rate of an account, or returns the 429 error. A nil Limits has
// no limits. If the token of the request r identifies the account, Refusal repeats the error for
// this token; in other cases r is nil.
func (l *Limits) Account(id state.AccountID, r *http.Request) error {
	return l.within(id, r, 0)
}

// Paced works like Account, for requests in sequence, such as the pages of a list: it delays a
// request that comes up to a quarter of a second too soon, instead of refusing it. It returns
// the error of r's context if that ends meanwhile.
func (l *Limits) Paced(id state.AccountID, r *http.Request) error {
	return l.within(id, r, patience)
}

func (l *Limits) within(id state.AccountID, r *http.Request, patience time.Duration) error {
	if l == nil {
		return nil
	}
	now := l.elapsed()
	wait, ok := l.account.add(maphash.String(l.account.seed, string(id)), 1, now, patience)
	if ok && wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	err := limited(wait, ok)
	if err != nil {
		l.refused.Store(now)
		l.remember(r, refusal{now + int64(min(wait, refusalFor)), err})
	}
	return err
}

// Owed takes further requests from the rate of an account, for an admitted request that does the
// work of several. It always succeeds; later requests of the account wait until the rate has room
// again.
func (l *Limits) Owed(id state.AccountID, requests int) {
	if l == nil || requests <= 0 {
		return
	}
	l.account.add(maphash.String(l.account.seed, string(id)), int64(requests), l.elapsed(), math.MaxInt64)
}

// Refusal returns the last refusal of a request's token while the rate of its account cannot
// have recovered. So a flood of requests with one token needs no look-up for each. After at
// most 100 ms the token is looked up again, because it may have been revoked.
func (l *Limits) Refusal(r *http.Request) error {
	if !l.Pressed() {
		return nil
	}
	h, ok := l.tokenOf(r)
	if !ok {
		return nil
	}
	if found, ok := l.refusals.Get(h); ok && l.elapsed() < found.until {
		return found.err
	}
	return nil
}

func (l *Limits) remember(r *http.Request, what refusal) {
	h, ok := l.tokenOf(r)
	if !ok {
		return
	}
	l.refusals.Put(h, what) // a token that is forgotten is looked up once more
}

// tokenOf returns a hash of the token of a request, if there is one.
func (l *Limits) tokenOf(r *http.Request) (uint64, bool) {
	if r == nil {
		return 0, false
	}
	token, err := Bearer(r)
	return maphash.String(l.account.seed, token), err == nil
}

// Pressed returns whether an account was refused within the last second. Then the caller
// should identify the account by the state of this node and check its rate before it asks
// the cluster, so that a refusal costs the cluster nothing. At other times that would only
// add work.
func (l *Limits) Pressed() bool {
	if l == nil {
		return false
	}
	last := l.refused.Load()
	return last != 0 && l.elapsed()-last < int64(pressedFor)
}

// Address takes one request from the rate of its address, or returns the 429 error.
func (l *Limits) Address(r *http.Request) error {
	if l == nil || l.address.each == 0 {
		return nil
	}
	return limited(l.address.take(maphash.Comparable(l.address.seed, accounts.Network(l.Client(r))), l.elapsed()))
}

func limited(wait time.Duration, ok bool) error {
	if ok {
		return nil
	}
	return &Error{Answer{
		Status: http.StatusTooManyRequests, Reason: "RATE_LIMITED", Detail: "too many requests", RetryAfter: max(wait, time.Second),
	}}
}

// maxForwarded bounds the number of proxies in X-Forwarded-For.
const maxForwarded = 16

// Client returns the address of a request's sender: the other end of the connection, or
// behind trusted proxies the last address of X-Forwarded-For that is not trusted. Anybody
// may have written the addresses before that one.
func (l *Limits) Client(r *http.Request) netip.Addr {
	client, proxy := l.peer(r)
	if !proxy {
		return client
	}
	said := strings.Join(r.Header["X-Forwarded-For"], ",")
	for range maxForwarded {
		rest, last := "", said
		if i := strings.LastIndexByte(said, ','); i >= 0 {
			rest, last = said[:i], said[i+1:]
		}
		next, err := parseForwarded(strings.TrimSpace(last))
		if err != nil {
			return client
		}
		if client = next; rest == "" || !l.trusts(client) {
			return client
		}
		said = rest
	}
	return client
}

// Scheme returns the scheme by which the sender reaches this API: https for a connection with TLS,
// or if a trusted proxy says so last in X-Forwarded-Proto, and http otherwise.
func (l *Limits) Scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	if _, proxy := l.peer(r); !proxy {
		return "http"
	}
	said := strings.Join(r.Header["X-Forwarded-Proto"], ",")
	if strings.EqualFold(strings.TrimSpace(said[strings.LastIndexByte(said, ',')+1:]), "https") {
		return "https"
	}
	return "http"
}

// peer returns the address of the other end of the connection and whether it is a trusted
// proxy. A Unix socket has no address.
func (l *Limits) peer(r *http.Request) (addr netip.Addr, proxy bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	addr = peer.Addr().Unmap().WithZone("") // prefixes have no zones
	return addr, l != nil && l.trusts(addr)
}

// parseForwarded parses an address, which some proxies write with a port.
func parseForwarded(text string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return a.Unmap().WithZone(""), nil
	}
	ap, err := netip.ParseAddrPort(text)
	return ap.Addr().Unmap().WithZone(""), err
}

func (l *Limits) trusts(a netip.Addr) bool {
	for _, p := range l.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
