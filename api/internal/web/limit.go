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

// Rate is a limit on the requests of one account or address: PerSecond on average, and Burst at
// once. A PerSecond of zero means no limit.
type Rate struct {
	PerSecond, Burst int
}

// Sizes and times of the rate limits.
const (
	limitShards = 32
	// maxLimited is the number of accounts, and of addresses, whose buckets are in memory, at
	// about 110 bytes each. An account or address whose bucket was evicted starts with a full
	// burst.
	maxLimited = 1 << 17
	// pressedFor is how long Pressed returns true after a refusal.
	pressedFor = time.Second
	// refusalFor is how long Refusal repeats the refusal of a token. maxRefusals is the number of
	// tokens that it remembers, at about 50 bytes each.
	refusalFor  = 100 * time.Millisecond
	maxRefusals = 1 << 12
	// patience is the longest time for which Paced delays a request.
	patience = 250 * time.Millisecond
)

// Limits enforces, on this node, the request rates of accounts and addresses, the memory that
// their requests may use, and through a Pacer their share of the processors. Most APIs have their
// own Limits.
type Limits struct {
	accounts, unknown, content *Memory

	pacer            *Pacer // nil: requests are not delayed
	account, address *limiter
	trusted          []netip.Prefix
	now              func() time.Time
	made             time.Time    // when these limits were created
	refused          atomic.Int64 // result of elapsed when an account was last refused; 0: never

	refusals *cache.Locked[uint64, refusal] // key: hash of the token
}

// refusal is a cached rate-limit error. Requests with the same token get it without further work
// until the given time.
type refusal struct {
	until int64 // in the unit of Limits.elapsed
	err   error
}

// NewLimits returns limits with the rates account for each account and address for each client
// address. For a request from an address in trusted, the client is the one in X-Forwarded-For. A
// nil now means time.Now.
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

// PacedBy sets the Pacer that Enter uses, and returns l. All APIs of a node share one Pacer.
func (l *Limits) PacedBy(p *Pacer) *Limits {
	l.pacer = p
	return l
}

// Enter waits until the Pacer lets a request of the account start, see Pacer.Enter. A nil Limits
// delays nothing.
func (l *Limits) Enter(ctx context.Context, id state.AccountID) (leave func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	return l.pacer.Enter(ctx, id)
}

// elapsed returns the time since the limits were created, in nanoseconds, at least 1. It uses the
// monotonic clock, so that clients need not wait longer after the wall clock is set back.
func (l *Limits) elapsed() int64 { return 1 + int64(l.now().Sub(l.made)) }

// limiter has a token bucket for each account or address, with the generic cell rate algorithm
// (GCRA): it stores a bucket as the time at which it will be full again if no more requests
// arrive.
type limiter struct {
	each   int64 // nanoseconds by which one request delays the time at which the bucket is full; 0: no limit
	most   int64 // burst: the farthest that this time may be in the future, in nanoseconds
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

// take removes one token from the token bucket of the account or address whose hash is h. now is
// a value of Limits.elapsed. If there is no token, ok is false and wait is the time until the
// next one.
func (l *limiter) take(h uint64, now int64) (wait time.Duration, ok bool) {
	return l.add(h, 1, now, 0)
}

// add takes n requests from the bucket with the hash h at the time now. wait is the time until
// they are available. If wait is longer than patience, add takes none and ok is false.
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

// Account takes one request from the rate of an account, or returns the 429 error. If r is not
// nil, its bearer token must be one of the account; Refusal then repeats the error for this token
// without another look-up. A nil Limits has no limits.
func (l *Limits) Account(id state.AccountID, r *http.Request) error {
	return l.within(id, r, 0)
}

// Paced works like Account, for requests in sequence, such as those for the pages of a list. A
// request that comes at most 250 ms too early is delayed instead of refused. Paced returns the
// error of r's context if that ends during the delay.
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

// Owed takes further requests from the rate of an account, for a request that was already
// admitted and does the work of several. It always succeeds. Later requests of the account are
// refused until the rate has recovered.
func (l *Limits) Owed(id state.AccountID, requests int) {
	if l == nil || requests <= 0 {
		return
	}
	l.account.add(maphash.String(l.account.seed, string(id)), int64(requests), l.elapsed(), math.MaxInt64)
}

// Refusal returns the 429 error that the token of r got from Account within the last 100 ms, or
// nil. So a flood of requests with one token does not need an account look-up for each request.
// The time is short because the token may be revoked meanwhile.
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

// tokenOf returns a hash of the bearer token of r. It returns false if r is nil or has no token.
func (l *Limits) tokenOf(r *http.Request) (uint64, bool) {
	if r == nil {
		return 0, false
	}
	token, err := Bearer(r)
	return maphash.String(l.account.seed, token), err == nil
}

// Pressed reports whether an account was refused by its rate within the last second. In that case
// the caller should identify the account by the local state and check its rate first, before a
// linearizable read, so that a refused request costs the other nodes nothing. At other times the
// extra check would be a waste.
func (l *Limits) Pressed() bool {
	if l == nil {
		return false
	}
	last := l.refused.Load()
	return last != 0 && l.elapsed()-last < int64(pressedFor)
}

// Address takes one request from the rate of the client's address, or returns the 429 error. All
// addresses of an IPv6 /64 share one rate. A nil Limits has no limits.
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

// maxForwarded is the maximum number of addresses in X-Forwarded-For that Client reads.
const maxForwarded = 16

// Client returns the address of the client of a request. That is the other end of the connection,
// unless it is a trusted proxy. Behind trusted proxies it is the last address in X-Forwarded-For
// that is no trusted proxy, because the client itself may have written the addresses before that
// one.
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

// Scheme returns the URL scheme that the client of a request uses. It is https for a connection
// with TLS, and if a trusted proxy sent the request with https as the last value of
// X-Forwarded-Proto. Otherwise it is http.
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

// Proxied reports whether a trusted proxy sent the request. If it did not, the client itself may have
// written headers such as X-Forwarded-Host.
func (l *Limits) Proxied(r *http.Request) bool {
	_, proxy := l.peer(r)
	return proxy
}

// peer returns the address of the other end of the connection and whether it is a trusted proxy.
// For a Unix socket the address is invalid.
func (l *Limits) peer(r *http.Request) (addr netip.Addr, proxy bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	addr = peer.Addr().Unmap().WithZone("") // prefixes have no zones
	return addr, l != nil && l.trusts(addr)
}

// parseForwarded parses an address of X-Forwarded-For, with or without a port.
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
