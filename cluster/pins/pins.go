// Package pins creates, replaces, reads, lists and deletes the pins of accounts for the Pinning
// Service API. A change is one command. This package checks the command first, to give clear
// error texts; the check of the state machine decides.
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

// maxAttempts is how often a new pin is tried if a chosen node leaves the cluster between the
// choice of nodes and the commit.
const maxAttempts = 4

// State is the part of consensus that this package uses.
type State interface {
	// View returns a linearizable view of the state. The caller must call release. View returns
	// state.ErrUnavailable without a majority.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the state after the entries that this node has applied. The
	// caller must call release.
	LocalView() (view state.View, release func())
	// Propose commits a command. When Propose returns a result, this node has applied the
	// command, so a later local view includes it, unless ctx has ended first.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// IsLeader returns whether this node leads the cluster.
	IsLeader() bool
}

// Nodes lists the members with their load, for the choice of nodes for content.
type Nodes interface {
	Candidates() []placement.Node
}

// Options are the settings and dependencies of Pins. State and Nodes are required.
type Options struct {
	State State
	Nodes Nodes
	Live  Live // nil means that records contain no live progress
	// Refused returns the reason why no node dials an origin. It returns "" if nodes dial it, or
	// if that is not known yet. Nil means that all origins are dialled.
	Refused func(origin string) string
	Watch   *state.Watch     // notifies Run of changes; nil means that waiting callers poll
	Now     func() time.Time // nil means time.Now
	// Agreed returns two times: early, which the clocks of most members have reached, and late,
	// which they have not passed. Pins end by early. An idempotency key is stored with late and
	// deleted by early, so that it lasts long enough. ok is false, and both times are 0, while
	// they are unknown. Nil means the clock Now.
	Agreed func() (early, late state.Millis, ok bool)
	NewID  func() state.RequestID // nil means UUIDs of version 7
	Logger *slog.Logger           // nil means no log
	// Processors is the number of processors; long lists may use 50 % of them. 0 means
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

// New returns a Pins. It sets the defaults of Options.
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

// newRequestID returns a new id, a UUID of version 7, which begins with the time. So pins that
// are created one after the other have neighbouring rows in the ordered store, and its
// compactions write fewer bytes (ADR 67). 62 bits of the id are random.
func newRequestID() state.RequestID { return state.RequestID(uuid.Must(uuid.NewV7()).String()) }

// Request is a pin as a client requests it.
type Request struct {
	CID     string      // text of a CID of any version in any multibase
	Given   state.Given // the optional fields that were submitted, including empty ones
	Name    string
	Origins []string // multiaddrs of hosts that have the content
	Meta    map[string]string
	End     End
	// MaxBytes is the largest size of the DAG in bytes. The pin of a larger DAG fails. 0 means no
	// limit.
	MaxBytes uint64
}

// Create adds a pin to an account and returns its record. The status in the record is queued,
// even if the content is already on a node.
//
// Errors: state.ErrInvalid that describes the mistake in the request; state.ErrUnauthorized if
// the account does not exist any more; state.ErrUnavailable without a majority, or if the pin has
// an end and not all members support that yet; state.ErrNoSpace if too few members have room for
// new content.
func (p *Pins) Create(ctx context.Context, account state.AccountID, r Request) (Record, error) {
	c, err := r.Validate()
	if err != nil {
		return Record{}, err
	}
	return p.propose(ctx, account, "", r, state.RootOf(c))
}

// Replace replaces the pin old by a new pin in one command, so no reader ever sees both pins or
// neither. After any error except state.ErrUnavailable and the error of ctx the old pin remains.
//
// Errors: those of Create, and state.ErrNotFound if the account has no pin old.
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

// propose creates a pin of root. If old is not "", the new pin replaces the pin old.
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

// GivenFields returns which optional fields the request contains: those in Given and those that
// are not empty.
func (r *Request) GivenFields() state.Given { return r.given() }

// given does the work of GivenFields.
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

// place chooses the nodes for a root. chosen is the choice for the command, and asNew the choice
// as if the root were new. The command moves no existing root. If the new pin replaces old, place
// prefers the nodes of old, because they have the blocks that both contents share. It reads only
// the local state, so that a new pin costs one round trip to the cluster and not two. That is
// safe, because Apply checks the choice: it leaves an existing root where it is, and rejects
// nodes that are not members. place returns state.ErrNoSpace if too few members have room.
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

// NodesFor returns the nodes for a root, for a pin that another package creates. Errors:
// state.ErrNoSpace if too few members have room for new content.
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

// writeCopies returns how many members must have room for new content before a pin is accepted.
// This is the number of copies that makes a pin pinned, but at most the number of members that
// are alive and not draining. If all members have room, it returns 0.
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

// allocation returns the nodes to which a root is allocated, or nil if the state has no such
// root.
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

// allocationOf returns the nodes to which the root of a pin is allocated, or nil if the pin does
// not exist.
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

// candidates returns the members in the state with their load. A member for which p.nodes has no
// entry yet counts as down, so that it is chosen only if there is no other.
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

// accepted returns the record of a pin that was just committed. If this node has not applied the
// commit yet, the delegates are other members. asNew are the nodes to which the content would be
// allocated if it were new.
//
// If only objects reference the content, accepted describes it as new content. Otherwise the
// record would reveal that the content exists in somebody's private bucket.
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

// seenKey is the context key under which Seen stores the index.
type seenKey struct{}

// onceKey is the context key under which Once stores the name.
type onceKey struct{}

// Once returns a context with name as the idempotency key of a request. For each account and
// name, Create makes only one pin, however often and through whichever nodes the request is
// repeated. A repetition within a day gets the answer of the first request. If a repetition asks
// for another pin, Create returns state.ErrExists.
func Once(ctx context.Context, name state.Hash) context.Context {
	return context.WithValue(ctx, onceKey{}, name)
}

// asked returns cmd with the credentials of the caller and, if cmd creates a pin, the idempotency
// key of Once. end is the end in the request.
func (p *Pins) asked(ctx context.Context, cmd state.Command, end End) state.Command {
	_, creates := cmd.(*state.CreatePin)
	cmd = state.ByAsker(ctx, cmd)
	if name, ok := ctx.Value(onceKey{}).(state.Hash); ok && creates {
		by, at, _ := p.agreed() // 0 if too few members report their time
		cmd = &state.CreateOnce{Key: name, Change: cmd, By: by, At: at, Lasts: state.Millis(end.For.Milliseconds())}
	}
	return cmd
}

// firstAnswer returns the answer to the first request with the idempotency key in ctx. It is for
// a repeated request whose end has passed meanwhile. The error is state.ErrNotFound if no such
// request is stored, and state.ErrExists if the first request asked for another pin.
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

// Seen returns a context for the reads of a request. The caller has learned since the request
// began that all log entries up to index were committed. A node that has applied index can then
// read its local state without asking the cluster: that state includes everything that was
// acknowledged before the request. Index 0 has no effect.
func Seen(ctx context.Context, index uint64) context.Context {
	return context.WithValue(ctx, seenKey{}, index)
}

// view returns a state that is at least as new as the beginning of the request: the local state
// if it includes the index of Seen, otherwise a linearizable view. The caller must call the
// returned function at the end.
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

// Get returns the current record of an account's pin. While nodes fetch the content, Info
// contains their progress.
//
// Errors: state.ErrNotFound, also for a pin of another account; state.ErrUnavailable without a
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

// List returns the pins of an account that match q, the newest first, and the number of all
// matches. The records have at most state.MaxListBytes together. They may share Delegates and
// Info; do not change these. A query that must read many pins waits for its turn among such
// queries.
//
// Errors: state.ErrInvalid for invalid values in q, state.ErrUnavailable without a majority,
// state.ErrLimited if its turn does not come in time.
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

// list is List without the checks and without the wait. It returns state.ErrLong if q.Brief is
// set and the query must read many pins.
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

// Delete deletes a pin of an account.
//
// Errors: state.ErrNotFound, also for a pin of another account; state.ErrUnavailable without a
// majority.
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

// notFound returns the error for a pin that is unknown, was deleted or belongs to another
// account. It does not contain the id, which may be any text.
func notFound() error {
	return state.Errorf(state.CodeNotFound, "there is no such pin request")
}
