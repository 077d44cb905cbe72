// Package pins is the use case of the Pinning Service API: it creates, replaces,
// reads, lists and deletes an account's pins. A change is one command. This package
// checks it first, for clear error texts; the check of the state machine is
// authoritative.
//
// Imports: consensus/state, cluster/placement, cluster/duty, go-cid, go-multiaddr, uuid, x/sync.
// Never:   raft, libp2p, storage, HTTP.
package pins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxAttempts is how often a change is tried if the state changes between its placement and its
// commit. This happens only if a node leaves at that moment.
const maxAttempts = 4

// State is the part of consensus that this package uses.
type State interface {
	// View returns a linearizable view of the state; the caller releases it. It fails with
	// state.ErrUnavailable without a majority.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the entries that this node has applied; the caller releases
	// it.
	LocalView() (view state.View, release func())
	// Propose commits a command. When it returns a result, this node has applied it too, so
	// a later local view includes it, unless ctx ended first.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// IsLeader returns whether this node leads the cluster.
	IsLeader() bool
}

// Nodes returns the members with their load, for placement.
type Nodes interface {
	Candidates() []placement.Node
}

// Options are the settings and dependencies of Pins. State and Nodes are required.
type Options struct {
	State State
	Nodes Nodes
	Live  Live // nil means that only the state is reported
	// Refused returns why no node dials an origin. It returns "" if the origin is dialled or
	// the result is not known yet. Nil means that all origins are dialled.
	Refused func(origin string) string
	Watch   *state.Watch     // notifies Run of changes; nil means that waiting callers poll
	Now     func() time.Time // nil means time.Now
	// Agreed returns a time that the clocks of most members have reached and one that they have
	// not passed. Idempotency keys are forgotten by the first and remembered since the second.
	// Pins end by the first. ok is false, and both are 0, while the times are unknown. nil: Now.
	Agreed func() (early, late state.Millis, ok bool)
	NewID  func() state.RequestID // nil means UUIDs of version 7
	Logger *slog.Logger           // nil means no log
	// Processors is the number of processors, of which long lists may use 50 %; 0:
	// runtime.GOMAXPROCS.
	Processors int
}

// Pins manages the pins of all accounts.
type Pins struct {
	state State
	nodes Nodes
	now   func() time.Time
	newID func() state.RequestID
	log   *slog.Logger
	// agreed has the value of the option Agreed.
	agreed func() (early, late state.Millis, ok bool)

	live    Live // may be nil
	refused func(origin string) string
	watch   *state.Watch // may be nil
	waiters *waiters
	traces  *traces
	scans   *scans
}

// New returns the use cases of pins.
func New(o Options) *Pins {
	p := &Pins{
		state: o.State, nodes: o.Nodes, now: o.Now, agreed: o.Agreed, newID: o.NewID, log: o.Logger,
		live: o.Live, refused: o.Refused, watch: o.Watch, waiters: newWaiters(), traces: newTraces(), scans: newScans(maxScans(o.Processors)),
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.refused == nil {
		p.refused = func(string) string { return "" }
	}
	if p.agreed == nil {
		p.agreed = state.OneClock(p.now)
	}
	if p.newID == nil {
		p.newID = newRequestID
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	return p
}

// newRequestID returns a new id, a UUID of version 7: rows of pins that were created one after the
// other are neighbours in the ordered store, so Pebble merges fewer bytes (ADR 67). 62 of its
// bits are random.
func newRequestID() state.RequestID { return state.RequestID(uuid.Must(uuid.NewV7()).String()) }

// Request is a pin as a client requests it.
type Request struct {
	CID     string      // text of a CID, any version and base
	Given   state.Given // the optional fields that were submitted, including empty ones
	Name    string
	Origins []string // multiaddrs of hosts that have the content
	Meta    map[string]string
	End     End
	// MaxBytes is the largest size of the DAG in bytes; the pin of a larger one fails. 0: no bound.
	MaxBytes uint64
}

// Create adds a pin to an account and returns it as accepted: queued, even if the content
// is already on this node.
//
// Errors: state.ErrInvalid with the mistake in the request, state.ErrUnauthorized if the
// account is gone, state.ErrUnavailable without a majority and for an end that not all members
// understand yet, state.ErrNoSpace if too few members have capacity for new content.
func (p *Pins) Create(ctx context.Context, account state.AccountID, r Request) (Record, error) {
	c, err := r.Validate()
	if err != nil {
		return Record{}, err
	}
	return p.propose(ctx, account, "", r, state.RootOf(c))
}

// Replace puts a new pin in the place of an old one, so that no reader ever sees both or none.
// After any error the old pin stays.
//
// Errors: those of Create, and state.ErrNotFound if the account has no pin with the id old.
func (p *Pins) Replace(ctx context.Context, account state.AccountID, old state.RequestID, r Request) (Record, error) {
	c, err := r.Validate()
	if err != nil {
		return Record{}, err
	}
	if !validID(old) {
		return Record{}, notFound()
	}
	return p.propose(ctx, account, old, r, state.RootOf(c))
}

// propose creates a pin of root, in the place of old if there is one.
func (p *Pins) propose(ctx context.Context, account state.AccountID, old state.RequestID, r Request, root state.RootKey) (Record, error) {
	pin := state.Pin{
		ID: p.newID(), Account: account, Created: state.MillisOf(p.now()), Status: state.Queued,
		CID: r.CID, Given: r.given(), Name: r.Name, Origins: r.Origins, Meta: r.Meta,
	}
	if err := p.setEnd(&pin, &r); err != nil {
		if old == "" && errors.Is(err, state.ErrInvalid) {
			if first, err := p.firstAnswer(ctx, pin, r.End); !errors.Is(err, state.ErrNotFound) {
				return first, err
			}
		}
		return Record{}, fmt.Errorf("end of a pin: %w", err)
	}
	for attempt := 1; ; attempt++ {
		nodes, asNew, err := p.place(account, old, root)
		if err != nil {
			return Record{}, fmt.Errorf("place pin: %w", err)
		}
		var cmd state.Command = &state.CreatePin{Pin: pin, Nodes: nodes}
		if old != "" {
			cmd = &state.ReplacePin{Old: old, Pin: pin, Nodes: nodes}
		}
		// The same id every time: should an attempt have been committed after
		// all, the next one finds its pin and changes nothing.
		result, err := p.state.Propose(ctx, p.asked(ctx, cmd, r.End))
		switch {
		case err == nil && result.Pin == nil:
			return Record{}, fmt.Errorf("propose pin %s: no pin came back", pin.ID)
		case err == nil:
			r, err := p.accepted(*result.Pin, asNew)
			if err == nil && old != "" {
				p.replaced(old, &r)
			}
			return r, err
		case errors.Is(err, state.ErrNotFound):
			return Record{}, notFound()
		case !errors.Is(err, state.ErrConflict):
			return Record{}, fmt.Errorf("propose pin: %w", err)
		case attempt == maxAttempts:
			p.log.WarnContext(ctx, "cannot place a pin: the members keep changing", "root", root, "attempts", attempt)
			return Record{}, fmt.Errorf("propose pin: %w", state.Errorf(state.CodeUnavailable, "the members of the cluster are changing, try again"))
		}
	}
}

// GivenFields returns the optional fields that the request has.
func (r *Request) GivenFields() state.Given { return r.given() }

// given adds the present optional fields to the submitted ones.
func (r *Request) given() state.Given {
	g := r.Given
	if r.Name != "" {
		g |= state.GivenName
	}
	if len(r.Origins) > 0 {
		g |= state.GivenOrigins
	}
	if len(r.Meta) > 0 {
		g |= state.GivenMeta
	}
	return g
}

// place chooses the nodes for a root in case the root is new. A root that exists stays where it
// is. If the new pin replaces old, the nodes of old are preferred, because they have the blocks
// that both contents share. place may read the local state, because the choice is only a
// proposal: Apply keeps an existing root in its place and refuses nodes that are no members. So
// a POST costs one round of the cluster and not two.
func (p *Pins) place(account state.AccountID, old state.RequestID, root state.RootKey) (chosen, asNew []state.NodeID, err error) {
	view, release := p.state.LocalView()
	defer release()
	cluster, err := view.Cluster()
	if err != nil {
		return nil, nil, err
	}
	known, err := allocation(view, root)
	if err != nil {
		return nil, nil, err
	}
	var olds []state.NodeID
	if old != "" {
		if olds, err = allocationOf(view, account, old); err != nil {
			return nil, nil, err
		}
	}
	nodes, err := p.candidates(view)
	if err != nil {
		return nil, nil, err
	}
	// The old root's nodes hold nothing of a new one yet.
	olds = slices.DeleteFunc(olds, func(id state.NodeID) bool {
		return slices.ContainsFunc(nodes, func(n placement.Node) bool { return n.ID == id && n.Full })
	})
	asNew = placement.Choose(root, int(cluster.Replication), nodes, olds)
	if known != nil {
		return placement.Choose(root, int(cluster.Replication), nodes, known), asNew, nil
	}
	if len(asNew) < writeCopies(&cluster, nodes) {
		return nil, nil, state.Errorf(state.CodeNoSpace, "the disks of the cluster are full: %d of its members have room for new content", len(nodes)-full(nodes))
	}
	return asNew, asNew, nil
}

// NodesFor returns the nodes for a root in case the root is new, for a pin that another use case
// creates. Errors: state.ErrNoSpace if too few members have capacity for new content.
func (p *Pins) NodesFor(root state.RootKey) ([]state.NodeID, error) {
	nodes, _, err := p.place("", "", root)
	return nodes, err
}

// full returns the number of members that have no room for new content.
func full(nodes []placement.Node) (count int) {
	for _, n := range nodes {
		if n.Full {
			count++
		}
	}
	return count
}

// writeCopies returns how many members must have room for new content so that a pin is
// accepted. This is the number that makes a pin pinned, but not more than there are members. If
// all members have room, no check is needed.
func writeCopies(c *state.Cluster, nodes []placement.Node) int {
	if full(nodes) == 0 {
		return 0
	}
	able := 0
	for _, n := range nodes {
		if n.Alive && !n.Draining {
			able++
		}
	}
	return min(int(c.WriteCopies), int(c.Replication), max(able, 1))
}

// allocation returns the nodes that keep a root; nil if none does.
func allocation(view state.View, root state.RootKey) ([]state.NodeID, error) {
	r, err := view.Root(root)
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r.Nodes(), nil
}

// allocationOf returns the nodes that keep the root of a pin.
func allocationOf(view state.View, account state.AccountID, id state.RequestID) ([]state.NodeID, error) {
	pin, err := view.Pin(account, id)
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil // Apply knows better
	}
	if err != nil {
		return nil, err
	}
	c, err := ParseCID(pin.CID)
	if err != nil {
		return nil, fmt.Errorf("stored pin %s: %w", id, err)
	}
	return allocation(view, state.RootOf(c))
}

// candidates returns the members with their load. A member without a sample, because it or
// this node has just started, counts as down: it is chosen only if there is no other.
func (p *Pins) candidates(view state.View) ([]placement.Node, error) {
	members, err := view.Nodes()
	if err != nil {
		return nil, err
	}
	known := p.nodes.Candidates()
	nodes := make([]placement.Node, len(members))
	for i, m := range members {
		nodes[i] = placement.Node{ID: m.ID}
		at := slices.IndexFunc(known, func(n placement.Node) bool { return n.ID == m.ID })
		if at >= 0 {
			nodes[i] = known[at]
		}
	}
	return nodes, nil
}

// accepted describes a pin that was just committed. If this node has not applied the commit
// yet, it names other members as delegates.
//
// Content that only objects refer to, of this account or of others, is described as new
// content, because its existence in a private bucket must not be revealed.
func (p *Pins) accepted(pin state.Pin, asNew []state.NodeID) (Record, error) {
	view, release := p.state.LocalView()
	defer release()
	d := newDescriber(view, p.nodes, p.refused)
	c, err := d.content(pin.CID)
	if err != nil {
		return Record{}, fmt.Errorf("describe pin %s: %w", pin.ID, err)
	}
	if r := c.root; r != nil && r.Links > 0 && r.Public == 0 && r.Refs <= 1 {
		if err := d.newContent(c, asNew); err != nil {
			return Record{}, fmt.Errorf("describe pin %s: %w", pin.ID, err)
		}
	}
	return d.record(pin)
}

// seenKey is the context key of Seen.
type seenKey struct{}

// onceKey is the key of a context's value that Once puts there.
type onceKey struct{}

// Once gives the requests under ctx a name. A pin that Create makes is made only once for each
// name of an account, however often and through whichever node the account sends it. A repeated
// request within a day is answered like the first. With the same name and another pin, Create
// returns state.ErrExists.
func Once(ctx context.Context, name state.Hash) context.Context {
	return context.WithValue(ctx, onceKey{}, name)
}

// asked returns cmd with the credentials and the idempotency key of the caller. end is the end that
// the caller asked for.
func (p *Pins) asked(ctx context.Context, cmd state.Command, end End) state.Command {
	_, creates := cmd.(*state.CreatePin)
	cmd = state.ByAsker(ctx, cmd)
	if name, ok := ctx.Value(onceKey{}).(state.Hash); ok && creates {
		by, at, _ := p.agreed() // 0 if too few members report their time
		cmd = &state.CreateOnce{Key: name, Change: cmd, By: by, At: at, Lasts: state.Millis(end.For.Milliseconds())}
	}
	return cmd
}

// firstAnswer returns the answer to the first request with the name of ctx, for a request that names an
// end that has passed meanwhile. The error is state.ErrNotFound if no such request is remembered, and
// state.ErrExists if it asked for another pin.
func (p *Pins) firstAnswer(ctx context.Context, pin state.Pin, end End) (Record, error) {
	pin.Until = end.At
	once, ok := p.asked(ctx, &state.CreatePin{Pin: pin}, end).(*state.CreateOnce)
	if !ok {
		return Record{}, state.ErrNotFound
	}
	view, release, err := p.view(ctx)
	if err != nil {
		return Record{}, fmt.Errorf("read state: %w", err)
	}
	first, err := view.FirstAnswer(once)
	release()
	if err != nil {
		return Record{}, fmt.Errorf("read first answer: %w", err)
	}
	return p.accepted(first, nil)
}

// Seen returns a context for the reads of a request that has learned, since it began, that
// everything up to index was committed. A node that has applied index then need not ask the
// cluster again: its state includes everything acknowledged before the request. Index 0 has
// no effect.
func Seen(ctx context.Context, index uint64) context.Context {
	return context.WithValue(ctx, seenKey{}, index)
}

// view returns the state of some moment since the request began, or of a later moment; the
// caller releases it.
func (p *Pins) view(ctx context.Context) (state.View, func(), error) {
	if seen, ok := ctx.Value(seenKey{}).(uint64); ok && seen > 0 {
		view, release := p.state.LocalView()
		if view.Index() >= seen {
			return view, release, nil
		}
		release()
	}
	return p.state.View(ctx)
}

// Get returns the current state of a pin of an account in the cluster. While its content is
// being fetched, its info has the progress of the nodes.
//
// Errors: state.ErrNotFound, also for another account's pin; state.ErrUnavailable without a
// majority.
func (p *Pins) Get(ctx context.Context, account state.AccountID, id state.RequestID) (Record, error) {
	view, release, err := p.view(ctx)
	if err != nil {
		return Record{}, fmt.Errorf("read pin: %w", err)
	}
	r, root, err := p.read(view, account, id)
	release()
	if err != nil {
		return Record{}, err
	}
	p.enliven(ctx, &r, root)
	return r, nil
}

// List returns the newest pins of an account that match q, newest first, of at most
// state.MaxListBytes, and the number of all matches. Records of one list may share
// delegates and info; do not change them. A list that reads much waits for its turn.
//
// Errors: state.ErrInvalid for a query out of bounds, state.ErrUnavailable without a
// majority, state.ErrLimited if its turn does not come.
func (p *Pins) List(ctx context.Context, account state.AccountID, q state.PinQuery) (total uint64, records []Record, err error) {
	if err := validateQuery(&q); err != nil {
		return 0, nil, err
	}
	q.Brief = true
	total, records, err = p.list(ctx, account, q)
	if !errors.Is(err, state.ErrLong) {
		return total, records, err
	}
	leave, err := p.scans.enter(ctx, account)
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	q.Brief = false
	return p.list(ctx, account, q)
}

// list does the same as List without waiting for a turn.
func (p *Pins) list(ctx context.Context, account state.AccountID, q state.PinQuery) (total uint64, records []Record, err error) {
	view, release, err := p.view(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("list pins: %w", err)
	}
	defer release()
	total, found, err := view.ListPins(ctx, account, q)
	if err != nil {
		return 0, nil, fmt.Errorf("list pins: %w", err)
	}
	d := newDescriber(view, p.nodes, p.refused)
	records = make([]Record, len(found))
	for i, pin := range found {
		if records[i], err = d.record(pin); err != nil {
			return 0, nil, err
		}
	}
	return total, records, nil
}

// Delete removes a pin of an account.
//
// Errors: state.ErrNotFound, also for another account's pin;
// state.ErrUnavailable without a majority.
func (p *Pins) Delete(ctx context.Context, account state.AccountID, id state.RequestID) error {
	if !validID(id) {
		return notFound()
	}
	_, err := p.state.Propose(ctx, p.asked(ctx, &state.DeletePin{Account: account, ID: id}, End{}))
	if errors.Is(err, state.ErrNotFound) {
		return notFound()
	}
	if err != nil {
		return fmt.Errorf("delete pin: %w", err)
	}
	return nil
}

// notFound returns the same error for a pin that is unknown, deleted, or of another
// account. It does not repeat the id, which may be any text.
func notFound() error {
	return state.Errorf(state.CodeNotFound, "there is no such pin request")
}
