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

// State is what this package needs of consensus.
type State interface {
	// View returns the state as it is now, anywhere in the cluster; release it.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns what this node has applied; release it.
	LocalView() (view state.View, release func())
	// Propose commits a command; a read that follows sees it.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// Leader returns the leader, if this node knows one.
	Leader() (state.NodeID, bool)
	// Roles returns "voter" or "nonvoter" for every server of the log.
	Roles() map[state.NodeID]string
	// Applied is the index of the newest entry in the local state.
	Applied() uint64
}

// Load is what a node last said of itself.
type Load struct {
	State     string // alive, suspect or down
	UsedBytes uint64
	FreeBytes uint64
	Queue     int
	Version   string
	Full      bool          // has no room for new content
	Refuses   bool          // the disk of its Raft log is full: no write can count on its vote
	Ended     bool          // its process was told to end, and none has been started since
	Away      bool          // not heard of lately, and no connection to it stands: who needs what it holds does not get it
	Connected bool          // a connection to it stands
	Silent    time.Duration // since it was last heard of, or, of one never heard of, since it is listened for
}

// Gossip tells the newest load of a node; false, and no more than its State, when it was
// never heard of.
type Gossip interface {
	Load(state.NodeID) (Load, bool)
}

// Options are what Members is made of. All fields but Own and Fits are required.
type Options struct {
	Self state.Node // as this node was at its start
	// Own returns this node as it is now. Nil: it is as it was.
	Own    func() state.Node
	State  State
	Gossip Gossip
	Secret []byte
	// JoinID returns the peer id by which somebody proves a secret.
	JoinID func(secret []byte) (string, error)
	// Fits tells that the secret is the cluster's, as far as the state here says;
	// else nobody is told it. Nil: it is.
	Fits func() error
	// Seed is the membership to go by until the state is here.
	Seed   []state.Node
	Now    func() time.Time
	Logger *slog.Logger
	// GoneAfter is how long a member may be away before its content is placed anew.
	GoneAfter time.Duration
	// Agreed are a time that the clocks of most members have reached, by which tickets have
	// expired that are removed, and one that they have not passed; ok is false while nobody
	// knows. Whom a ticket admits is judged by Now.
	Agreed func() (early, late state.Millis, ok bool)
}

// Members answers who belongs to the cluster, and changes it.
type Members struct {
	opts     Options
	secretID string // join identity of the cluster secret

	// gate is what the connection gates go by; replaced whole by Refresh.
	gate atomic.Pointer[gate]

	// vouched are members by the word of another one; nil: none are. See Vouch.
	vouched atomic.Pointer[vouched]

	// admitted are the nodes that tickets let in here and that were not told so yet.
	admitted admitted

	// pinned are the pins whose content members hold.
	pinned pinned
}

type vouched struct {
	ids   map[string]bool
	index uint64 // of the state that has them
}

type gate struct {
	nodes   map[string]state.Node
	tickets map[string]state.Millis // id -> end
	leaving map[string]time.Time    // removed members -> when they are cut off
	spent   map[string]string       // tickets that were open since the start -> why they are not, for people
}

// maxSpent is how many tickets are remembered that are not open any more.
const maxSpent = 1024

// LeaveGrace is how long a removed member is still admitted: in that time it
// hears of its removal, and ends, instead of knocking for ever.
const LeaveGrace = 5 * time.Second

// voterGrace is how long one that votes is admitted after a look found that it does: longer
// than it is to the next look.
const voterGrace = 4 * LeaveGrace

// New returns the use cases of membership. Refresh them when the state's
// members change.
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

// Refresh takes the membership over from the local state.
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
	g := &gate{
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
				if grace := now.Add(LeaveGrace); grace.Before(end) { // it voted at the last look
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
			// Raft has not let go of it. It may lead, and nobody else could before it has
			// handed over: whom it leaves behind has to catch up, or lacks its vote.
			g.leaving[string(id)] = m.opts.Now().Add(voterGrace)
		}
	}
	m.gate.Store(g)
	if v := m.vouched.Load(); v != nil && view.Index() >= v.index {
		m.vouched.CompareAndSwap(v, nil)
	}
	return nil
}

// Vouch has the gate admit whom a member says to be members, until the state here is as
// new as the one of which that is true. A node that was away does not know who has joined
// meanwhile, and it is one of those who may lead: nobody else could tell it.
func (m *Members) Vouch(by Membership) {
	if by.Index == 0 {
		return // nobody could say until when
	}
	v := &vouched{ids: make(map[string]bool, len(by.Members)), index: by.Index}
	for _, n := range by.Members {
		v.ids[string(n.ID)] = true
	}
	m.vouched.Store(v)
}

// Vouched are whom the gate admits by the word of a member.
func (m *Members) Vouched() (ids []state.NodeID) {
	if v := m.vouched.Load(); v != nil {
		for id := range v.ids {
			ids = append(ids, state.NodeID(id))
		}
	}
	return ids
}

// remember takes over which tickets were open before and why they are not now.
func (g *gate) remember(before *gate, now state.Millis) {
	if len(before.spent) < maxSpent {
		g.spent = maps.Clone(before.spent) // readers have the other
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

// Is tells whether a peer id is a member, also by the word of one, was one until
// LeaveGrace ago, or still votes. It never blocks.
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

// own is Options.Own.
func (m *Members) own() state.Node {
	if m.opts.Own == nil {
		return m.opts.Self
	}
	return m.opts.Own()
}

// fits is Options.Fits.
func (m *Members) fits() error {
	if m.opts.Fits == nil {
		return nil
	}
	return m.opts.Fits()
}

// MayJoin tells whether a peer id proves a secret that admits joiners now: the
// cluster's, an open ticket's or that of one whose joiner waits for its answer. It does not
// wait for anybody.
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

// WhyNot says, for the log of this node, why a peer id may neither speak nor join here.
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

// Nodes returns the members that the gate knows, by id.
func (m *Members) Nodes() []state.Node {
	g := m.gate.Load()
	nodes := make([]state.Node, 0, len(g.nodes))
	for _, n := range g.nodes {
		nodes = append(nodes, n)
	}
	return nodes
}

// Bounds of a ticket's life.
const (
	MinTicketTTL = time.Second
	MaxTicketTTL = 30 * 24 * time.Hour
)

// ticketPrefix begins every ticket; the number is the version of its form.
const ticketPrefix = "holdfast1."

// maxTicketLen is the most characters of a ticket that is read.
const maxTicketLen = 8 << 10

// maxTicketAddrs is how many addresses of members a ticket carries.
const maxTicketAddrs = 8

// Ticket is what a joiner gets: a secret of its own, and where to show it.
type Ticket struct {
	Secret []byte   `json:"s"`
	Addrs  []string `json:"a"` // cluster multiaddrs with /p2p/
	// Expires is when it ends by the clock of who made it; 0: it does not tell.
	Expires state.Millis `json:"e,omitempty"`
}

func (t Ticket) String() string {
	b, err := json.Marshal(t)
	if err != nil {
		return "" // a struct of bytes and strings always marshals
	}
	return ticketPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseTicket reads a ticket; ok is false when text is something else.
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

// LooksLikeTicket tells whether text begins as tickets do, whatever else it is.
func LooksLikeTicket(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), ticketPrefix)
}

// CreateTicket makes a ticket that admits one node until ttl is over.
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
	expired, _, _ := m.opts.Agreed() // 0 while nobody knows
	_, err = m.opts.State.Propose(ctx, &state.CreateTicket{Expired: expired, Ticket: state.Ticket{
		ID: state.NodeID(id), Created: state.MillisOf(now), Expires: t.Expires,
	}})
	if err != nil {
		return "", fmt.Errorf("create ticket: %w", err)
	}
	return t.String(), nil
}

// Remove ends a membership. Without force the node must answer and must not be the only
// holder of anything among those that do: what it alone keeps would be lost. With force or
// without, one that answers stays while the others could not go on without it.
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
	if alive || !force { // what is found here is true of these members
		for _, n := range nodes {
			cmd.Of = append(cmd.Of, n.ID)
		}
	}
	if alive {
		if votes, answer := m.votersWithout(cmd.Of, id); votes > 0 && answer <= votes/2 { // 0: it is the last, see RemoveNode
			return state.Errorf(state.CodeConflict,
				"without node %s only %d of the %d members that vote would answer, and the cluster could not go on: remove the dead ones first, with --force", id, answer, votes)
		}
	} else if !force {
		return state.Errorf(state.CodeConflict, "node %s does not answer: remove a dead node with --force", id)
	}
	if !force {
		sole, err := soleHolder(ctx, view, id, m.answers)
		if err != nil {
			return err
		}
		if sole > 0 {
			return state.Errorf(state.CodeConflict, "of those that answer, node %s is the only holder of %d roots, which would be lost: wait until they have other copies, or use --force", id, sole)
		}
		cmd.At = view.Index() // what is stored on it alone meanwhile counts too
	}
	_, err = m.opts.State.Propose(ctx, cmd)
	return err
}

// answers tells whether this node was heard of a moment ago, as far as gossip knows.
func (m *Members) answers(id state.NodeID) bool {
	load, heard := m.opts.Gossip.Load(id)
	return id == m.opts.Self.ID || heard && load.State == "alive"
}

// votersWithout counts the members that vote, but for one, and those of them that answer.
// When that one alone votes it is all others: one of them will. Raft lets go of who was
// removed a moment later, and is not asked whether it has.
func (m *Members) votersWithout(of []state.NodeID, gone state.NodeID) (votes, answer int) {
	roles := m.opts.State.Roles()
	maps.DeleteFunc(roles, func(id state.NodeID, _ string) bool { return id == gone || !slices.Contains(of, id) })
	all := !slices.Contains(slices.Collect(maps.Values(roles)), "voter")
	for id, role := range roles {
		if !all && role != "voter" {
			continue
		}
		votes++
		if m.answers(id) {
			answer++
		}
	}
	return votes, answer
}

// soleHolder counts the roots that no other member that answers holds.
func soleHolder(ctx context.Context, view state.View, id state.NodeID, answers func(state.NodeID) bool) (n int, err error) {
	err = view.WantedOn(id, "", func(k state.RootKey, p state.Phase) (bool, error) {
		if p != state.Held {
			return true, ctx.Err()
		}
		root, err := view.Root(k)
		if err != nil {
			return false, err
		}
		others := slices.ContainsFunc(root.Copies, func(c state.Copy) bool {
			if c.Phase != state.Held || c.Node == id || !answers(c.Node) {
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
