// Package members manages the members of the cluster: tickets, joining, removal, and
// the overview of all nodes that `holdfast status` prints.
//
// Imports: consensus/state.
// Never:   libp2p, raft, storage, HTTP.
package members

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// State is the part of consensus that this package uses.
type State interface {
	// View returns a linearizable view of the state; the caller releases it.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the entries that this node has applied; the caller
	// releases it.
	LocalView() (view state.View, release func())
	// Propose commits a command. A read after it returns sees the change.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// Leader returns the leader, if this node knows one.
	Leader() (state.NodeID, bool)
	// Roles returns "voter" or "nonvoter" for every server of the Raft configuration.
	Roles() map[state.NodeID]string
	// Applied returns the index of the newest entry that this node has applied.
	Applied() uint64
}

// Load is the newest load that a node reported by gossip.
type Load struct {
	State     string // state by gossip: alive, suspect or down; of a Peer also Draining
	UsedBytes uint64
	FreeBytes uint64
	Queue     int
	Version   string
	Full      bool          // no capacity for new content
	Refuses   bool          // the disk of its Raft log is full, so it cannot acknowledge writes
	Ended     bool          // its process was told to stop, and no new one has reported since
	Away      bool          // no recent sample and no open connection: its copies are out of reach
	Connected bool          // a connection to it is open
	Silent    time.Duration // since its last sample; if there was none, since this node has watched it
	Started   state.Millis  // when its process started, by its clock; 0: not known
	Busy      bool          // its threads wait for processors
	Zone      string        // where it stands, by its settings; empty: not known
	// Skew is the time of its clock in its last sample minus the time of this node when the sample
	// came. The time that the sample was on its way makes Skew smaller. 0 also if it is not known.
	Skew time.Duration
}

// Gossip returns the newest load of a node. The second result is false if the node never
// sent a sample; then only State is set.
type Gossip interface {
	Load(state.NodeID) (Load, bool)
}

// Options are the dependencies of Members. All fields but Own, Fits and Refused are required.
type Options struct {
	Self state.Node // record of this node when it started
	// Own returns the current record of this node; nil: Self.
	Own    func() state.Node
	State  State
	Gossip Gossip
	Secret []byte // secret of the cluster
	// JoinID returns the peer id that a secret derives. A connection with this identity
	// proves the secret.
	JoinID func(secret []byte) (string, error)
	// Fits returns an error if the local state shows that Secret is not the secret of the
	// cluster. After such an error this node admits nobody. Nil: there is no check.
	Fits func() error
	// Seed is the list of members until the local state has one.
	Seed   []state.Node
	Now    func() time.Time
	Logger *slog.Logger
	// Refused is called for each node that was not admitted, with the peer id of its connection
	// and the reason. It must return at once. Nil: no call.
	Refused func(joiner, why string)
	// GoneAfter is how long a member may be down before the leader places its content on
	// other nodes.
	GoneAfter time.Duration
	// Agreed returns a time that the clocks of most members have passed (early) and one
	// that they have not (late); ok is false while too few members report. Expired tickets
	// are deleted by early. This node admits by a ticket as long as Now has not passed its
	// expiry.
	Agreed func() (early, late state.Millis, ok bool)
}

// Members lists the members of the cluster and changes them.
type Members struct {
	opts     Options
	secretID string // join identity of the cluster secret

	// gate has the membership as the connection gates use it. Refresh replaces it.
	gate atomic.Pointer[gate]

	// vouched are members that another member named; nil: none. See Vouch.
	vouched atomic.Pointer[vouched]

	// admitted has the nodes that may ask again for the answer to their join request.
	admitted admitted

	// pinned counts the pins of each member.
	pinned pinned

	// repairs has the newest numbers of missing copies.
	repairs repairs

	// drains has the newest samples of the members that are being drained.
	drains drains

	// ages tells how old content is.
	ages ages
}

type vouched struct {
	ids   map[string]bool
	index uint64 // log index of the state that names them
}

type gate struct {
	nodes   map[string]state.Node
	tickets map[string]state.Millis // ticket id -> expiry
	leaving map[string]time.Time    // removed members -> when connections to them are refused
	spent   map[string]string       // tickets that are no longer open -> reason, for the log
	drained map[state.NodeID]bool   // members that are being drained
}

// maxSpent bounds the number of tickets in gate.spent.
const maxSpent = 1024

// LeaveGrace is how long a removed member may still connect. In that time it learns of its
// removal and stops, instead of dialling for ever.
const LeaveGrace = 5 * time.Second

// voterGrace is how long a removed member may connect after Refresh found that it is still
// a voter. It is longer than the time between two calls of Refresh.
const voterGrace = 4 * LeaveGrace

// New returns the use cases of membership. The caller calls Refresh whenever the members in
// the state change.
func New(opts Options) (*Members, error) {
	id, err := opts.JoinID(opts.Secret)
	if err != nil {
		return nil, fmt.Errorf("members: join identity: %w", err)
	}
	m := &Members{opts: opts, secretID: id}
	if err := m.Refresh(); err != nil {
		return nil, err
	}
	return m, nil
}

// Refresh reads members and tickets from the local state and replaces the gate.
func (m *Members) Refresh() error {
	view, release := m.opts.State.LocalView()
	defer release()
	nodes, err := view.Nodes()
	if err != nil {
		return fmt.Errorf("members: read nodes: %w", err)
	}
	if len(nodes) == 0 {
		nodes = m.opts.Seed
	}
	tickets, err := view.Tickets()
	if err != nil {
		return fmt.Errorf("members: read tickets: %w", err)
	}
	drained, err := drainedOf(view)
	if err != nil {
		return fmt.Errorf("members: %w", err)
	}
	g := &gate{
		drained: drained,
		nodes:   make(map[string]state.Node, len(nodes)),
		tickets: make(map[string]state.Millis, len(tickets)),
		leaving: map[string]time.Time{},
		spent:   map[string]string{},
	}
	for _, n := range nodes {
		g.nodes[string(n.ID)] = n
	}
	for _, t := range tickets {
		g.tickets[string(t.ID)] = t.Expires
	}
	if before := m.gate.Load(); before != nil {
		now := m.opts.Now()
		for id, end := range before.leaving {
			if _, back := g.nodes[id]; !back && now.Before(end) {
				g.leaving[id] = end
				if grace := now.Add(LeaveGrace); grace.Before(end) { // it was a voter at the last Refresh
					g.leaving[id] = grace
				}
			}
		}
		for id := range before.nodes {
			if _, stays := g.nodes[id]; !stays {
				g.leaving[id] = now.Add(LeaveGrace)
			}
		}
		g.remember(before, state.MillisOf(now))
	}
	for id, role := range m.opts.State.Roles() {
		if _, stays := g.nodes[string(id)]; !stays && role == "voter" {
			// It is still in the Raft configuration and may lead. Until it has handed over,
			// other members may need its log entries or its vote.
			g.leaving[string(id)] = m.opts.Now().Add(voterGrace)
		}
	}
	m.gate.Store(g)
	if v := m.vouched.Load(); v != nil && view.Index() >= v.index {
		m.vouched.CompareAndSwap(v, nil)
	}
	return nil
}

// Vouch makes the gate admit the members that another member names, until the local state
// has reached the index of that answer. A node that was down does not know who joined
// meanwhile. The leader may be such a member, and then no other member could send the
// missing entries.
func (m *Members) Vouch(by Membership) {
	if by.Index == 0 {
		return // without an index there is no end
	}
	v := &vouched{ids: make(map[string]bool, len(by.Members)), index: by.Index}
	for _, n := range by.Members {
		v.ids[string(n.ID)] = true
	}
	m.vouched.Store(v)
}

// Vouched returns the ids that the gate admits because of Vouch.
func (m *Members) Vouched() (ids []state.NodeID) {
	if v := m.vouched.Load(); v != nil {
		for id := range v.ids {
			ids = append(ids, state.NodeID(id))
		}
	}
	return ids
}

// remember copies the tickets that are no longer open from the gate before, each with the
// reason.
func (g *gate) remember(before *gate, now state.Millis) {
	if len(before.spent) < maxSpent {
		g.spent = maps.Clone(before.spent) // concurrent readers use the other map
	}
	for id, end := range before.tickets {
		switch _, open := g.tickets[id]; {
		case open:
		case end > now:
			g.spent[id] = "a ticket that was used before"
		default:
			g.spent[id] = expired(end)
		}
	}
}

func expired(end state.Millis) string {
	return "a ticket that expired at " + end.Time().UTC().Format(time.RFC3339)
}

// Is returns whether a peer may speak the cluster protocols: it is a member, another member
// vouches for it, or it was removed and its grace has not ended. It never blocks.
func (m *Members) Is(id string) bool {
	g := m.gate.Load()
	if _, ok := g.nodes[id]; ok || id == string(m.opts.Self.ID) {
		return true
	}
	if v := m.vouched.Load(); v != nil && v.ids[id] {
		return true
	}
	end, leaving := g.leaving[id]
	return leaving && m.opts.Now().Before(end)
}

// own returns the current record of this node.
func (m *Members) own() state.Node {
	if m.opts.Own == nil {
		return m.opts.Self
	}
	return m.opts.Own()
}

// fits returns nil if Secret is the secret of the cluster, as far as the local state shows.
func (m *Members) fits() error {
	if m.opts.Fits == nil {
		return nil
	}
	return m.opts.Fits()
}

// MayJoin returns whether a peer id proves a secret that admits joining nodes now: the
// cluster secret, an open ticket, or a spent ticket whose node may ask for its answer
// again. It never blocks.
func (m *Members) MayJoin(id string) bool {
	if id == m.secretID {
		return true
	}
	now := m.opts.Now()
	if end, ok := m.gate.Load().tickets[id]; ok && end > state.MillisOf(now) {
		return true
	}
	_, waits := m.admitted.by(id, now)
	return waits
}

// WhyNot returns, for the log, the reason why a peer may neither speak nor join.
func (m *Members) WhyNot(id string) string {
	g := m.gate.Load()
	if end, known := g.tickets[id]; known {
		return expired(end)
	}
	if why := g.spent[id]; why != "" {
		return why
	}
	if _, left := g.leaving[id]; left {
		return "a member that was removed"
	}
	return "neither a member nor the secret of this cluster or one of its open tickets: a wrong secret, an old ticket, one of another cluster, or an unknown node"
}

// Nodes returns the members of the gate, in no order.
func (m *Members) Nodes() []state.Node {
	g := m.gate.Load()
	nodes := make([]state.Node, 0, len(g.nodes))
	for _, n := range g.nodes {
		nodes = append(nodes, n)
	}
	return nodes
}

// Bounds of the lifetime of a ticket.
const (
	MinTicketTTL = time.Second
	MaxTicketTTL = 30 * 24 * time.Hour
)

// ticketPrefix is the beginning of every ticket; the digit is the version of the format.
const ticketPrefix = "holdfast1."

// maxTicketLen is the maximum length of a ticket, in bytes.
const maxTicketLen = 8 << 10

// maxTicketAddrs is the maximum number of member addresses in a ticket.
const maxTicketAddrs = 8

// Ticket admits one node: it has a secret and the addresses of members to dial.
type Ticket struct {
	Secret []byte   `json:"s"`
	Addrs  []string `json:"a"` // cluster multiaddrs with /p2p/
	// Expires is the expiry by the clock of the node that made the ticket; 0: unknown.
	Expires state.Millis `json:"e,omitempty"`
}

func (t Ticket) String() string {
	b, err := json.Marshal(t)
	if err != nil {
		return "" // a struct of bytes and strings always marshals
	}
	return ticketPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseTicket decodes a ticket; ok is false if text is not one.
func ParseTicket(text string) (t Ticket, ok bool) {
	body, found := strings.CutPrefix(strings.TrimSpace(text), ticketPrefix)
	if !found || len(body) > maxTicketLen {
		return t, false
	}
	b, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(b, &t) != nil {
		return t, false
	}
	return t, len(t.Secret) >= 16 && len(t.Addrs) > 0
}

// LooksLikeTicket returns whether text begins like a ticket. The rest may be invalid.
func LooksLikeTicket(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), ticketPrefix)
}

// CreateTicket creates a ticket that admits one node within ttl. It fails with a
// *state.Error.
func (m *Members) CreateTicket(ctx context.Context, ttl time.Duration, random func([]byte)) (string, error) {
	if ttl < MinTicketTTL || ttl > MaxTicketTTL {
		return "", state.Errorf(state.CodeInvalid, "a ticket lives from %v to %v, not %v", MinTicketTTL, MaxTicketTTL, ttl)
	}
	t := Ticket{Secret: make([]byte, 32)}
	random(t.Secret)
	id, err := m.opts.JoinID(t.Secret)
	if err == nil {
		err = m.fits()
	}
	if err != nil {
		return "", fmt.Errorf("create ticket: %w", err)
	}
	t.Addrs = append(t.Addrs, m.own().ClusterAddrs...)
	for _, n := range m.Nodes() {
		if n.ID != m.opts.Self.ID {
			t.Addrs = append(t.Addrs, n.ClusterAddrs...)
		}
	}
	t.Addrs = t.Addrs[:min(len(t.Addrs), maxTicketAddrs)]
	now := m.opts.Now()
	t.Expires = state.MillisOf(now.Add(ttl))
	expired, _, _ := m.opts.Agreed() // 0 if too few members report their time
	_, err = m.opts.State.Propose(ctx, &state.CreateTicket{Expired: expired, Ticket: state.Ticket{
		ID: state.NodeID(id), Created: state.MillisOf(now), Expires: t.Expires,
	}})
	if err != nil {
		return "", fmt.Errorf("create ticket: %w", err)
	}
	return t.String(), nil
}

// Remove removes a member. It returns a CodeConflict error if a member that answers would
// leave too few voters that stay. Without force it also refuses a member that does not
// answer, or that is the only holder of a root among the members that stay, because that
// content would be lost.
func (m *Members) Remove(ctx context.Context, id state.NodeID, force bool) error {
	view, release, err := m.opts.State.View(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := view.Node(id); err != nil {
		return err
	}
	nodes, err := view.Nodes()
	if err != nil {
		return err
	}
	cmd := &state.RemoveNode{ID: id}
	alive := m.answers(id)
	if alive || !force { // the command is valid only for the members that these checks have seen
		for _, n := range nodes {
			cmd.Of = append(cmd.Of, n.ID)
		}
	}
	if alive {
		if votes, answer := m.votersWithout(cmd.Of, id); votes > 0 && answer <= votes/2 { // 0: it is the last voter, see RemoveNode
			return state.Errorf(state.CodeConflict,
				"without node %s only %d of the %d members that vote would answer, and the cluster could not go on: remove the dead ones first, with --force", id, answer, votes)
		}
	} else if !force {
		return state.Errorf(state.CodeConflict, "node %s does not answer: remove a dead node with --force", id)
	}
	if !force {
		sole, err := soleHolder(ctx, view, id, m.stays)
		if err != nil {
			return err
		}
		if sole > 0 {
			return state.Errorf(state.CodeConflict, "of those that answer, node %s is the only holder of %d roots, which would be lost: wait until they have other copies, or use --force", id, sole)
		}
		cmd.At = view.Index() // Apply also counts content that was stored on it alone since
	}
	_, err = m.opts.State.Propose(ctx, cmd)
	return err
}

// answers returns whether gossip heard of the node within SuspectAfter, or it is this node.
// A node that has just died still answers by this measure, so that nobody removes a node for
// dead whose connection only broke.
func (m *Members) answers(id state.NodeID) bool {
	load, heard := m.opts.Gossip.Load(id)
	return id == m.opts.Self.ID || heard && load.State == "alive"
}

// stays returns whether the cluster can count on the node after a removal: it answers, has a
// connection, and was not told to stop. The connection of a process that dies ends at once,
// seconds before gossip notices.
func (m *Members) stays(id state.NodeID) bool {
	load, _ := m.opts.Gossip.Load(id)
	return id == m.opts.Self.ID || m.answers(id) && load.Connected && !load.Ended
}

// votersWithout returns the number of voters among the members of, without gone, and how
// many of them answer. If gone is the only voter, it counts all members, because one of
// them will get the vote. It reads the members from of, because Raft removes a member only
// some time after the state has.
func (m *Members) votersWithout(of []state.NodeID, gone state.NodeID) (votes, answer int) {
	roles := m.opts.State.Roles()
	maps.DeleteFunc(roles, func(id state.NodeID, _ string) bool { return id == gone || !slices.Contains(of, id) })
	all := !slices.Contains(slices.Collect(maps.Values(roles)), "voter")
	for id, role := range roles {
		if !all && role != "voter" {
			continue
		}
		votes++
		if m.stays(id) {
			answer++
		}
	}
	return votes, answer
}

// soleHolder counts the roots of id that no other member that stays holds.
func soleHolder(ctx context.Context, view state.View, id state.NodeID, stays func(state.NodeID) bool) (n int, err error) {
	err = view.WantedOn(id, "", func(k state.RootKey, p state.Phase) (bool, error) {
		if p != state.Held {
			return true, ctx.Err()
		}
		root, err := view.Root(k)
		if err != nil {
			return false, err
		}
		others := slices.ContainsFunc(root.Copies, func(c state.Copy) bool {
			if c.Phase != state.Held || c.Node == id || !stays(c.Node) {
				return false
			}
			_, err := view.Node(c.Node)
			return err == nil
		})
		if !others {
			n++
		}
		return true, ctx.Err()
	})
	return n, err
}
