package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/ipfs/boxo/exchange"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	// MaxOrigins is how many origins of one session are dialled.
	MaxOrigins = 20
	// originDialTimeout bounds one dial of an origin.
	originDialTimeout = 15 * time.Second
	// originNumbersFirst is how long only the IP addresses of an origin are dialled if it
	// also has names.
	originNumbersFirst = 5 * time.Second
	// originRedialFirst is the pause before an origin without a connection is dialled
	// again. It doubles up to originRedialMost, as long as the session lives.
	originRedialFirst = 500 * time.Millisecond
	originRedialMost  = 16 * time.Second
	// originHeadStart is the longest time for which the first request waits until an origin is
	// connected. Without this wait, bitswap would ask an origin that connects during the request
	// only after a delay.
	originHeadStart = time.Second
	// staleWindow is the time after the end of a bitswap session in which a request first checks
	// that bitswap has cancelled the wants of that session. staleLimit is the longest time of this
	// check. stalePoll is its interval, because bitswap gives no signal.
	staleWindow = 3 * time.Second
	staleLimit  = 500 * time.Millisecond
	stalePoll   = 2 * time.Millisecond
)

// Session fetches blocks of one DAG from the IPFS network by bitswap, which verifies every
// hash. Until Close, the origins stay connected and their connections are not trimmed.
type Session struct {
	p       *Peer
	account string          // account for which its dials count
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	dials   sync.WaitGroup
	named   []*origin       // origins that are dialled
	awaited []libp2ppeer.ID // peers of refused origins; they are not dialled but may connect by themselves

	dialling dialling // guarded by p.dials

	first     chan struct{} // closed when an origin is connected or all failed once
	firstOnce sync.Once

	// mu guards the fields below.
	mu      sync.Mutex
	fetcher exchange.Fetcher
	end     context.CancelFunc // cancels fetcher
	reasons map[string]string  // key: origin as given; present while it is not connected
	refused map[string]bool    // the keys of reasons whose origin the rules of this node refuse
	pending int                // origins whose first dial has not ended
}

// Session starts to dial the origins in the background and returns at once. Accounts share
// the number of concurrent dials of the node, and the dials of this session count for
// account. The session ends with ctx or Close; the caller must call Close.
func (p *Peer) Session(ctx context.Context, account string, origins []string) *Session {
	ctx, cancel := context.WithCancel(ctx)
	s := &Session{
		p:       p,
		account: account,
		ctx:     ctx,
		cancel:  cancel,
		first:   make(chan struct{}),
		reasons: make(map[string]string),
		refused: make(map[string]bool),
	}
	s.named, s.awaited = s.targets(origins)
	for _, id := range s.awaited {
		p.gate.addOrigin(id, false)
		s.dials.Go(func() { s.await(id) })
	}
	s.pending = len(s.named)
	if s.pending == 0 {
		s.firstOnce.Do(func() { close(s.first) })
	}
	for _, t := range s.named {
		p.gate.addOrigin(t.info.ID, true)
		s.dials.Go(func() { s.keepOrigin(t) })
	}
	return s
}

// origin is a peer that a user named, by one or more addresses.
type origin struct {
	info  libp2ppeer.AddrInfo
	texts []string
}

// targets parses origins, records why some are refused, and merges those of one peer. It
// also returns the peers of which no address is dialled, because they may connect by
// themselves from behind a NAT.
func (s *Session) targets(texts []string) (out []*origin, awaited []libp2ppeer.ID) {
	byID := make(map[libp2ppeer.ID]*origin)
	for i, text := range texts {
		if i >= MaxOrigins {
			s.reasons[text] = fmt.Sprintf("more than %d origins", MaxOrigins)
			continue
		}
		info, err := s.p.origins.parse(text)
		switch {
		case err != nil:
			s.reasons[text], s.refused[text] = err.Error(), true
			if info.ID != "" && info.ID != s.p.id && !slices.Contains(awaited, info.ID) {
				awaited = append(awaited, info.ID)
			}
			continue
		case info.ID == s.p.id:
			continue
		}
		o := byID[info.ID]
		if o == nil {
			o = &origin{info: libp2ppeer.AddrInfo{ID: info.ID}}
			byID[info.ID] = o
			out = append(out, o)
		}
		o.info.Addrs = append(o.info.Addrs, info.Addrs...)
		o.texts = append(o.texts, text)
	}
	return out, slices.DeleteFunc(awaited, func(id libp2ppeer.ID) bool { return byID[id] != nil })
}

// await makes the node treat a peer that it does not dial as a known peer, if that peer connects by
// itself. The effect ends with the session.
func (s *Session) await(id libp2ppeer.ID) {
	defer s.protect(id)()
	defer s.p.gate.removeOrigin(id, false)
	<-s.ctx.Done()
}

// protect keeps the connections of a peer from being trimmed until release is called.
func (s *Session) protect(id libp2ppeer.ID) (release func()) {
	tag := fmt.Sprintf("session-%p", s)
	manager := s.p.public.ConnManager()
	manager.Protect(id, tag)
	return func() { manager.Unprotect(id, tag) }
}

// keepOrigin connects to one origin again and again until the session ends.
func (s *Session) keepOrigin(o *origin) {
	release := s.protect(o.info.ID)
	defer func() {
		release()
		if s.p.gate.removeOrigin(o.info.ID, true) {
			// Otherwise libp2p could dial these addresses of the user later for another
			// reason.
			s.p.public.Peerstore().UpdateAddrs(o.info.ID, peerstore.TempAddrTTL, 0)
		}
	}()
	redial := backoff.New(originRedialFirst, originRedialMost)
	for first := true; ; first = false {
		err := s.dialOrigin(o)
		s.note(o, err)
		if first {
			s.settle(err == nil)
		}
		if !redial.Wait(s.ctx) {
			return
		}
	}
}

// dialOrigin connects to an origin if it is not connected.
func (s *Session) dialOrigin(o *origin) error {
	h := s.p.public
	if h.Network().Connectedness(o.info.ID) == network.Connected {
		return nil
	}
	info := o.info
	known := h.Peerstore().Addrs(info.ID)
	if len(info.Addrs) == 0 && len(known) == 0 {
		if s.p.dht == nil {
			return errors.New("no address, and routing is off")
		}
		ctx, cancel := context.WithTimeout(s.ctx, originDialTimeout)
		defer cancel()
		found, err := s.p.dht.FindPeer(ctx, info.ID)
		if err != nil {
			return fmt.Errorf("no address found: %w", err)
		}
		info.Addrs = found.Addrs
	}
	return s.p.dials.run(s.ctx, s, max(len(info.Addrs), len(known)), func(ctx context.Context) error {
		all := slices.Concat(info.Addrs, known)
		if numbers := numeric(all); len(numbers) > 0 && len(numbers) < len(all) {
			// libp2p resolves all known names of a peer before it dials any address. A name
			// whose server does not answer would block the other addresses.
			h.Peerstore().ClearAddrs(info.ID)
			err := s.connect(ctx, libp2ppeer.AddrInfo{ID: info.ID, Addrs: numbers}, originNumbersFirst)
			h.Peerstore().AddAddrs(info.ID, all, peerstore.TempAddrTTL)
			if err == nil || ctx.Err() != nil {
				return err
			}
		}
		return s.connect(ctx, info, originDialTimeout)
	})
}

func (s *Session) connect(ctx context.Context, info libp2ppeer.AddrInfo, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	endBackoff(s.p.public, info.ID)
	return s.p.public.Connect(ctx, info)
}

// numeric returns the addresses that begin with an IP address.
func numeric(addrs []ma.Multiaddr) (numbers []ma.Multiaddr) {
	for _, a := range addrs {
		if _, ok := ipOf(a); ok {
			numbers = append(numbers, a)
		}
	}
	return numbers
}

// note records why an origin is not connected, as a text for users. err is nil if it is connected
// now.
func (s *Session) note(o *origin, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range o.texts {
		switch {
		case err == nil:
			delete(s.reasons, text)
			delete(s.refused, text)
		case s.ctx.Err() == nil:
			s.reasons[text], s.refused[text] = dialReason(err), isRefusal(err)
		}
	}
}

// dialReason shortens libp2p's dial errors, which list every address.
func dialReason(err error) string {
	var dial *swarm.DialError
	switch {
	case isRefusal(err):
		return ErrOriginRefused.Error() + ": no public address behind it"
	case errors.Is(err, errGaveWay):
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &dial) && len(dial.DialErrors) > 0:
		return "not reachable: " + firstLine(dial.DialErrors[0].Cause.Error())
	default:
		return "not reachable: " + firstLine(err.Error())
	}
}

// isRefusal returns whether the rules of this node refuse all addresses that were found for
// an origin. A name that was not resolved has no addresses and is not refused; it is
// resolved again later.
func isRefusal(err error) bool {
	dial, ok := errors.AsType[*swarm.DialError](err)
	if !ok || len(dial.DialErrors) == 0 {
		return errors.Is(err, swarm.ErrGaterDisallowedConnection)
	}
	return !slices.ContainsFunc(dial.DialErrors, func(e swarm.TransportError) bool {
		return !errors.Is(e.Cause, swarm.ErrGaterDisallowedConnection)
	})
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// settle records that the first dial of an origin has ended; connected says whether it succeeded.
// When one has succeeded or all have ended, the first request stops waiting.
func (s *Session) settle(connected bool) {
	s.mu.Lock()
	s.pending--
	done := connected || s.pending == 0
	s.mu.Unlock()
	if done {
		s.firstOnce.Do(func() { close(s.first) })
	}
}

// OriginErrors returns one line for each origin that is refused or not connected now: its
// address and the reason.
func (s *Session) OriginErrors() []string {
	s.mu.Lock()
	reasons := maps.Clone(s.reasons)
	s.mu.Unlock()
	for _, o := range s.named {
		if s.p.public.Network().Connectedness(o.info.ID) == network.Connected {
			continue
		}
		for _, text := range o.texts {
			if reasons[text] == "" {
				reasons[text] = "not connected"
			}
		}
	}
	out := make([]string, 0, len(reasons))
	for text, reason := range reasons {
		out = append(out, text+": "+reason)
	}
	slices.Sort(out)
	return out
}

// AllRefused returns whether there are origins, all of them are refused, and none of their
// peers is connected. A connected peer may have dialled this node.
func (s *Session) AllRefused() bool {
	connected := func(id libp2ppeer.ID) bool { return s.p.public.Network().Connectedness(id) == network.Connected }
	if slices.ContainsFunc(s.awaited, connected) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.named {
		if connected(o.info.ID) || slices.ContainsFunc(o.texts, func(text string) bool { return !s.refused[text] }) {
			return false
		}
	}
	return len(s.refused) > 0
}

// Name returns the name of this kind of source for messages.
func (s *Session) Name() string { return "the IPFS network" }

// ChecksHashes returns true, because bitswap computes the CID of a received block from its
// bytes.
func (s *Session) ChecksHashes() bool { return true }

// Renew ends the current bitswap session. The next request starts a new one, which sends wants
// again that bitswap has lost. Running requests end, and return the blocks that they have not
// received as missing.
func (s *Session) Renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		s.end()
		s.p.sessionEnd.Store(time.Now().UnixNano())
	}
	s.fetcher, s.end = nil, nil
}

// letGo waits until bitswap has cancelled the wants of an ended bitswap session: that of this
// Session before Renew, or another one that ended shortly before. bitswap cancels wants in the
// background. If a want is repeated before it is cancelled, bitswap assumes that it has asked the
// peer already and sends nothing; it repeats all wants only after 30 s or more. If a running
// session wants the same blocks, letGo cannot see the cancellation and returns after staleLimit.
func (s *Session) letGo(ctx context.Context, cids []cid.Cid) {
	if time.Since(time.Unix(0, s.p.sessionEnd.Load())) > staleWindow {
		return
	}
	mine := make(map[string]bool, len(cids))
	for _, c := range cids {
		mine[string(c.Hash())] = true
	}
	ctx, cancel := context.WithTimeout(ctx, staleLimit)
	defer cancel()
	for slices.ContainsFunc(s.p.bitswap.GetWantlist(), func(c cid.Cid) bool { return mine[string(c.Hash())] }) {
		if !backoff.Wait(ctx, stalePoll) {
			return
		}
	}
}

// current returns the bitswap session, and starts one if there is none. Before that it waits until an
// origin is connected or all have failed once, for at most originHeadStart.
func (s *Session) current(ctx context.Context) (exchange.Fetcher, error) {
	t := time.NewTimer(originHeadStart)
	defer t.Stop()
	select {
	case <-s.first:
	case <-t.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	if s.fetcher == nil {
		scope, end := context.WithCancel(s.ctx)
		s.fetcher, s.end = s.p.bitswap.NewSession(scope), end
	}
	return s.fetcher, nil
}

// GetBlock fetches one block. It blocks until the block arrives or ctx ends.
func (s *Session) GetBlock(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	f, err := s.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("peer: session: %w", err)
	}
	s.letGo(ctx, []cid.Cid{c})
	return f.GetBlock(ctx, c)
}

// GetBlocks fetches blocks and returns them as they arrive, in any order. The channel is
// closed when all have arrived or ctx ends. The caller must read it to the end or end ctx.
func (s *Session) GetBlocks(ctx context.Context, cids []cid.Cid) (<-chan blocks.Block, error) {
	f, err := s.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("peer: session: %w", err)
	}
	s.letGo(ctx, cids)
	return f.GetBlocks(ctx, cids)
}

// Blocks passes every block to fn as it arrives, never two at once. It returns the blocks
// that had not arrived when ctx ended or Renew ended the bitswap session. The network never
// reports that it lacks a block, so only ctx bounds the call.
func (s *Session) Blocks(ctx context.Context, cids []cid.Cid, fn func(blocks.Block) error) (missing []cid.Cid, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch, err := s.GetBlocks(ctx, cids)
	if err != nil {
		return cids, err
	}
	got := make(map[string]bool, len(cids))
	for b := range ch {
		if err == nil {
			if err = fn(b); err == nil {
				got[b.Cid().KeyString()] = true
				continue
			}
		}
		cancel() // stop, and read the channel to its end
	}
	for _, c := range cids {
		if !got[c.KeyString()] {
			missing = append(missing, c)
		}
	}
	if err == nil && len(missing) > 0 {
		err = errors.New("peer: session: ended before all blocks came")
		if cause := ctx.Err(); cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	return missing, err
}

// Close ends the session and waits for its dials.
func (s *Session) Close() {
	s.cancel()
	s.Renew()
	s.dials.Wait()
}
