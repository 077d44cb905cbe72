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
	// View returns a linearizable view of the state; the caller must call release.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the state that this node has applied; the caller must call
	// release.
	LocalView() (view state.View, release func())
	// Propose commits a command. A read after it returns sees the change.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// Leader returns the leader, if this node knows one.
	Leader() (state.NodeID, bool)
	// Roles returns "voter" or "nonvoter" for every server of the Raft configuration, by id.
	Roles() map[state.NodeID]string
	// Applied returns the index of the newest entry that this node has applied.
	Applied() uint64
}

// Load is the newest load that a node reported by gossip.
type Load struct {
	State     string // state from gossip: alive, suspect or down; in a Peer also Draining
	UsedBytes uint64
	FreeBytes uint64
	Queue     int
	Version   string
	Full      bool          // no capacity for new content
	Refuses   bool          // the disk of its Raft log is full, so it cannot acknowledge writes
	Ended     bool          // its process was told to stop and has not started again
	Away      bool          // no recent sample and no open connection, so its copies cannot be reached
	Connected bool          // a connection to it is open
	Silent    time.Duration // time since its last sample, or since this node knows it if there was none
	Started   state.Millis  // when its process started, by its clock; 0 if not known
	Busy      bool          // its threads wait for processors
	Zone      string        // location from its settings; empty if not known
	// Skew is the time in its last sample minus this node's time when the sample arrived; the
	// transit time makes it smaller. It is also 0 if not known.
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
	// Own returns the current record of this node; nil means that Self is current.
	Own    func() state.Node
	State  State
	Gossip Gossip
	Secret []byte // secret of the cluster
	// JoinID returns the peer id of the key that is derived from a secret. A connection with this
	// peer id proves that the other side knows the secret.
	JoinID func(secret []byte) (string, error)
	// Fits returns an error if Secret is not the secret of the cluster according to the local
	// state. While it does, this node admits nobody. Nil means no check.
	Fits func() error
	// Seed is the list of members that is used until the local state has one.
	Seed   []state.Node
	Now    func() time.Time
	Logger *slog.Logger
	// Refused is called for each node that was not admitted, with the peer id of its connection
	// and the reason. It must return at once. It may be nil.
	Refused func(joiner, why string)
	// GoneAfter is how long a member may be down before the leader places its content on
	// other nodes.
	GoneAfter time.Duration
	// Agreed returns a time that most members' clocks have reached (early) and one that most have
	// not passed (late). ok is false while too few members report. Expired tickets are deleted by
	// early. Whether a ticket still admits a node is decided by Now.
	Agreed func() (early, late state.Millis, ok bool)
}

// Members lists, admits, drains and removes the members of the cluster.
type Members struct {
	opts     Options
	secretID string // peer id that is derived from the cluster secret

	// gate has the data by which connections are accepted. Refresh replaces it.
	gate atomic.Pointer[gate]

	// vouched has the members that another member has named; nil if there are none. See Vouch.
	vouched atomic.Pointer[vouched]

	// admitted has the nodes that may request the answer to their join request again.
	admitted admitted

	// pinned counts the pins of each member.
	pinned pinned

	// repairs has the newest numbers of missing copies.
	repairs repairs

	// drains has the samples from which the progress of drains is computed.
	drains drains

	// ages has the data from which the age of content is estimated.
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
	spent   map[string]string       // tickets that are no longer valid -> reason, for the log
	drained map[state.NodeID]bool   // members that are being drained
}

// maxSpent is the largest number of tickets in gate.spent.
const maxSpent = 1024

// LeaveGrace is how long a removed member may still connect. In that time it learns of its
// removal and stops, instead of dialling forever.
const LeaveGrace = 5 * time.Second

// voterGrace is how long a removed member may still connect after a Refresh that found it to be a
// voter. It is longer than the time between two calls of Refresh.
const voterGrace = 4 * LeaveGrace

// New returns a Members. The caller must call Refresh whenever the members in the state have
// changed.
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

// Refresh reads the members and tickets from the local state and replaces the gate.
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

// Vouch makes this node also accept connections of the members that another member has named in
// by, until the local state has reached the index of that answer. It is needed because a node
// that was down does not know who has joined meanwhile. The leader may be such a member, and no
// other member could send the missing log entries.
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

// Vouched returns the ids of the members that are accepted only because of Vouch.
func (m *Members) Vouched() (ids []state.NodeID) {
	if v := m.vouched.Load(); v != nil {
		for id := range v.ids {
			ids = append(ids, state.NodeID(id))
		}
	}
	return ids
}

// remember copies from the previous gate the tickets that are no longer valid, each with the
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

// Is returns whether a peer may use the cluster protocols: it is a member, another member has
// named it (see Vouch), or it was removed less than LeaveGrace ago. It never blocks.
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

// fits returns nil if Secret is the secret of the cluster according to the local state.
func (m *Members) fits() error {
	if m.opts.Fits == nil {
		return nil
	}
	return m.opts.Fits()
}

// MayJoin returns whether a peer id proves a secret that admits a node now: the cluster secret, a
// valid ticket, or a used ticket whose node may request its answer again. It never blocks.
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

// WhyNot returns, for the log, the reason why a peer may neither use the cluster protocols nor
// join.
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

// Nodes returns the members as of the last Refresh, unsorted.
func (m *Members) Nodes() []state.Node {
	g := m.gate.Load()
	nodes := make([]state.Node, 0, len(g.nodes))
	for _, n := range g.nodes {
		nodes = append(nodes, n)
	}
	return nodes
}

// Limits of the lifetime of a ticket.
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

// Ticket is the content of a ticket as text, which an operator gives to a new node: a secret, and
// addresses of members to dial.
type Ticket struct {
	Secret []byte   `json:"s"`
	Addrs  []string `json:"a"` // cluster multiaddrs with /p2p/
	// Expires is the expiry by the clock of the node that created the ticket; 0 if unknown.
	Expires state.Millis `json:"e,omitempty"`
}

func (t Ticket) String() string {
	b, err := json.Marshal(t)
	if err != nil {
		return "" // a struct of bytes and strings always marshals
	}
	return ticketPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseTicket decodes the text of a ticket; ok is false if it is not valid.
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

// LooksLikeTicket returns whether text begins like a ticket, even if the rest is invalid.
func LooksLikeTicket(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), ticketPrefix)
}

// CreateTicket creates a ticket that admits one node within ttl, and returns its text. random
// fills a slice with random bytes. Errors are of type *state.Error.
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

// Remove removes a member. The error is a *state.Error with CodeConflict if too few of the
// remaining voters can be counted on. Without force, it also rejects the removal of a member that
// does not answer, and of one that is the only holder of a root among the members that remain,
// because that content would be lost.
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

// answers returns whether the node is this node or has sent a gossip sample within SuspectAfter.
// A node that has just died still counts as answering, so that nobody removes a node as dead
// whose connection only broke.
func (m *Members) answers(id state.NodeID) bool {
	load, heard := m.opts.Gossip.Load(id)
	return id == m.opts.Self.ID || heard && load.State == "alive"
}

// stays returns whether the cluster can count on the node after a removal: it answers, has an
// open connection, and was not told to stop. The connection of a process that dies ends at once,
// seconds before gossip notices.
func (m *Members) stays(id state.NodeID) bool {
	load, _ := m.opts.Gossip.Load(id)
	return id == m.opts.Self.ID || m.answers(id) && load.Connected && !load.Ended
}

// votersWithout returns the number of voters among the members of, without the member gone, and
// how many of them can be counted on. If gone is the only voter, it counts all members, because
// one of them will become a voter. Members are taken from of, because Raft removes a member only
// some time after the state does.
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

// soleHolder returns how many roots of id are held by no other member for which stays returns
// true.
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
