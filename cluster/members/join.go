package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"golang.org/x/sync/errgroup"
)

// Limits of the join protocol. Each side sends one JSON message; an admitted node then confirms
// that it has received the answer.
const (
	maxJoinRequest = 64 << 10
	maxJoinTold    = 1 << 10
	maxJoinReply   = 32 << 20 // bytes; names up to state.MaxNodes members, each with all its addresses
	maxJoins       = 16       // connections at a time
	joinTimeout    = 20 * time.Second
	// hangUpWait is how long a joining node waits for the other side to close the
	// connection after it has confirmed the answer.
	hangUpWait = time.Second
)

type joinRequest struct {
	Node joinNode `json:"node"`
	// Ask is true if the caller does not want to join but only asks whether the node Node.ID is a
	// member. The other fields of Node are then empty.
	Ask bool `json:"ask,omitempty"`
}

type joinNode struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Addrs        []string `json:"addrs"`
	ClusterAddrs []string `json:"cluster_addrs"`
	Version      string   `json:"version"`
	// Level is the highest feature level that the release supports; 0 for a release without
	// feature levels.
	Level state.FeatureLevel `json:"level,omitempty"`
}

type joinReply struct {
	Error     string     `json:"error,omitempty"`
	Code      state.Code `json:"code,omitempty"`
	ClusterID string     `json:"cluster_id,omitempty"`
	Secret    []byte     `json:"secret,omitempty"`
	Members   []joinNode `json:"members,omitempty"`
	Member    *bool      `json:"member,omitempty"` // answer to Ask
	// Index is the log index of the state from which the answer was read; 0 from releases that do
	// not send it.
	Index uint64 `json:"index,omitempty"`
}

// joinTold confirms that the joining node has received the answer. Old releases do not send it.
type joinTold struct {
	Told bool `json:"told"`
}

// Joined is what a new member gets from Join.
type Joined struct {
	ClusterID string
	Secret    []byte
	Members   []state.Node
}

// ServeJoin accepts connections of the join protocol from l and answers their requests, up to
// maxJoins at a time. It returns when ctx ends or l is closed, after the running requests have
// ended, or with an error of Accept. The remote address of a connection is the authenticated peer
// id of the joining node. Its key is derived from the secret of a ticket or of the cluster, so
// the peer id proves that the node knows the secret.
func (m *Members) ServeJoin(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var joins errgroup.Group
	joins.SetLimit(maxJoins)
	for {
		conn, err := l.Accept()
		if err != nil {
			waitErr := joins.Wait()
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return waitErr
			}
			return fmt.Errorf("accept joiners: %w", err)
		}
		joins.Go(func() error {
			defer func() { _ = conn.Close() }()
			if err := m.serveJoin(ctx, conn); err != nil {
				m.opts.Logger.InfoContext(ctx, "joining node disconnected", "joiner", conn.RemoteAddr().String(), "err", err)
			}
			return nil
		})
	}
}

func (m *Members) serveJoin(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if err := conn.SetDeadline(m.opts.Now().Add(joinTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	// The deadline in the past makes a blocked read return when this node stops. The answer
	// to an admitted node is still sent.
	heard := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	var req joinRequest
	err := readMessage(conn, maxJoinRequest, &req)
	heard()
	if err != nil {
		return err
	}
	if req.Ask {
		reply, err := m.membership(ctx, state.NodeID(req.Node.ID))
		if err != nil {
			return err
		}
		return json.NewEncoder(conn).Encode(reply)
	}
	reply, err := m.admit(ctx, conn.RemoteAddr().String(), req.Node)
	if err != nil {
		m.opts.Logger.WarnContext(ctx, "join refused", "node", req.Node.ID, "err", err)
		reply = joinReply{Error: err.Error(), Code: state.CodeUnavailable}
		var coded *state.Error
		if errors.As(err, &coded) {
			reply.Code = coded.Code
		}
		if m.opts.Refused != nil && reply.Code != state.CodeUnavailable {
			m.opts.Refused(conn.RemoteAddr().String(), err.Error())
		}
	} else {
		m.opts.Logger.InfoContext(ctx, "node joined", "node", req.Node.ID, "name", req.Node.Name)
	}
	if sent := json.NewEncoder(conn).Encode(reply); sent != nil || err != nil {
		return sent
	}
	// A successful write proves only that a buffer has the bytes.
	var word joinTold
	if err := readMessage(conn, maxJoinTold, &word); err != nil || !word.Told {
		m.opts.Logger.DebugContext(ctx, "joining node did not confirm the answer", "node", req.Node.ID, "err", err)
		return nil
	}
	m.admitted.forget(conn.RemoteAddr().String(), state.NodeID(req.Node.ID))
	return nil
}

func (m *Members) level(ctx context.Context) (state.FeatureLevel, error) {
	view, release, err := m.opts.State.View(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	return view.FeatureLevel()
}

// admit makes the node n a member and returns the answer. joiner is the peer id of the
// connection, which proves that the node knows the cluster secret or a ticket.
func (m *Members) admit(ctx context.Context, joiner string, n joinNode) (joinReply, error) {
	cmd := &state.JoinNode{
		Node: state.Node{
			ID: state.NodeID(n.ID), Name: n.Name, Addrs: n.Addrs, ClusterAddrs: n.ClusterAddrs, Version: n.Version,
			FeatureLevel: n.Level,
		},
		At: state.MillisOf(m.opts.Now()),
	}
	if joiner != m.secretID {
		cmd.Ticket = state.NodeID(joiner)
	}
	if len(n.ClusterAddrs) == 0 || slices.ContainsFunc(slices.Concat(n.Addrs, n.ClusterAddrs), func(a string) bool {
		return !strings.HasSuffix(a, "/p2p/"+n.ID)
	}) {
		return joinReply{}, state.Errorf(state.CodeInvalid, "every address of a joiner ends in /p2p/ and its id, and one of the cluster host is needed")
	}
	if err := m.fits(); err != nil {
		return joinReply{}, err
	}
	if level, err := m.level(ctx); err != nil {
		return joinReply{}, err
	} else if level == 0 {
		cmd.Node = cmd.Node.Before1() // so that members without feature levels can decode the command
	}
	view, release, err := m.letIn(ctx, joiner, cmd)
	if err != nil {
		return joinReply{}, err
	}
	defer release()
	c, err := view.Cluster()
	if err != nil {
		return joinReply{}, err
	}
	nodes, err := view.Nodes()
	if err != nil {
		return joinReply{}, err
	}
	return joinReply{ClusterID: c.ID, Secret: m.opts.Secret, Members: joinNodes(nodes)}, nil
}

// letIn proposes cmd and returns a view in which the node is a member; the caller must release
// it. It also succeeds if the ticket was used for this node before and the node requests the
// answer again.
func (m *Members) letIn(ctx context.Context, joiner string, cmd *state.JoinNode) (state.View, func(), error) {
	now := m.opts.Now()
	known, before := m.admitted.by(joiner, now)
	if cmd.Ticket != "" {
		m.admitted.note(joiner, cmd.Node.ID, now)
	}
	_, refused := m.opts.State.Propose(ctx, cmd)
	spent := before && known == cmd.Node.ID && errors.Is(refused, state.ErrUnauthorized)
	if refused != nil && !spent {
		var coded *state.Error
		if errors.As(refused, &coded) && coded.Code != state.CodeUnavailable {
			m.admitted.forget(joiner, cmd.Node.ID)
		}
		return state.View{}, nil, refused
	}
	view, release, err := m.opts.State.View(ctx)
	if err != nil || !spent {
		return view, release, err
	}
	if _, err := view.Node(cmd.Node.ID); err != nil { // the ticket admitted another node
		release()
		m.admitted.forget(joiner, cmd.Node.ID)
		return state.View{}, nil, refused
	}
	return view, release, nil
}

func joinNodes(nodes []state.Node) (all []joinNode) {
	for _, n := range nodes {
		all = append(all, joinNode{
			ID: string(n.ID), Name: n.Name, Addrs: n.Addrs, ClusterAddrs: n.ClusterAddrs, Version: n.Version,
		})
	}
	return all
}

// nodes returns the members in the reply as records.
func (r *joinReply) nodes() (all []state.Node) {
	for _, n := range r.Members {
		all = append(all, state.Node{
			ID: state.NodeID(n.ID), Name: n.Name, Addrs: n.Addrs, ClusterAddrs: n.ClusterAddrs, Version: n.Version,
		})
	}
	return all
}

// membership returns the answer to the question whether a node is a member, from a linearizable
// view. It includes all members if the node is one.
func (m *Members) membership(ctx context.Context, id state.NodeID) (joinReply, error) {
	view, release, err := m.opts.State.View(ctx)
	if err != nil {
		return joinReply{}, err
	}
	defer release()
	c, err := view.Cluster()
	if err != nil {
		return joinReply{}, err
	}
	_, err = view.Node(id)
	member := err == nil
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return joinReply{}, err
	}
	reply := joinReply{ClusterID: c.ID, Member: &member, Index: view.Index()}
	if member {
		nodes, err := view.Nodes()
		if err != nil {
			return joinReply{}, err
		}
		reply.Members = joinNodes(nodes)
	}
	return reply, nil
}

// Membership is the answer to the question whether a node is a member.
type Membership struct {
	ClusterID string
	Member    bool
	Members   []state.Node // all members; empty if Member is false
	Index     uint64       // log index of the state from which the answer was read; 0 if unknown
}

// AskMembership asks the node at the other end of conn whether the node id is a member. The
// caller's identity on conn must prove the cluster secret. It returns state.ErrUnavailable if the
// other node cannot read the state of a majority, and otherwise the error of the connection.
func AskMembership(conn net.Conn, deadline time.Time, id state.NodeID) (Membership, error) {
	if err := conn.SetDeadline(deadline); err != nil {
		return Membership{}, fmt.Errorf("ask for membership: %w", err)
	}
	// The request has no addresses: a release that does not know Ask takes it for a join
	// request and rejects it.
	if err := json.NewEncoder(conn).Encode(joinRequest{Node: joinNode{ID: string(id)}, Ask: true}); err != nil {
		return Membership{}, fmt.Errorf("ask for membership: %w", err)
	}
	var reply joinReply
	if err := readMessage(conn, maxJoinReply, &reply); err != nil {
		return Membership{}, fmt.Errorf("ask for membership: %w", err)
	}
	if reply.Member == nil || reply.ClusterID == "" || *reply.Member && len(reply.Members) == 0 {
		return Membership{}, state.Errorf(state.CodeUnavailable, "no answer about the membership")
	}
	return Membership{ClusterID: reply.ClusterID, Member: *reply.Member, Members: reply.nodes(), Index: reply.Index}, nil
}

// Join asks the node at the other end of conn to make node a member. The caller's identity on
// conn must prove the cluster secret or a ticket. If the cluster rejects the node, the error is a
// *state.Error.
func Join(conn net.Conn, deadline time.Time, node state.Node) (Joined, error) {
	if err := conn.SetDeadline(deadline); err != nil {
		return Joined{}, fmt.Errorf("join: %w", err)
	}
	req := joinRequest{Node: joinNode{
		ID: string(node.ID), Name: node.Name, Addrs: node.Addrs, ClusterAddrs: node.ClusterAddrs, Version: node.Version,
		Level: node.FeatureLevel,
	}}
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return Joined{}, fmt.Errorf("join: ask: %w", err)
	}
	var reply joinReply
	if err := readMessage(conn, maxJoinReply, &reply); err != nil {
		return Joined{}, fmt.Errorf("join: %w", err)
	}
	if reply.Error != "" {
		return Joined{}, state.Errorf(reply.Code, "the cluster refused: %s", reply.Error)
	}
	if reply.ClusterID == "" || len(reply.Secret) == 0 || len(reply.Members) == 0 {
		return Joined{}, state.Errorf(state.CodeInvalid, "the answer to the join is incomplete")
	}
	confirm(conn, deadline)
	return Joined{ClusterID: reply.ClusterID, Secret: reply.Secret, Members: reply.nodes()}, nil
}

// confirm tells the other node that the answer has arrived, and waits up to hangUpWait until the
// other node closes the connection. It ignores errors, because the confirmation only lets the
// other node forget the admission earlier.
func confirm(conn net.Conn, deadline time.Time) {
	if soon := time.Now().Add(hangUpWait); soon.Before(deadline) {
		deadline = soon
	}
	if conn.SetDeadline(deadline) != nil || json.NewEncoder(conn).Encode(joinTold{Told: true}) != nil {
		return
	}
	_, _ = conn.Read(make([]byte, 1))
}

// readMessage reads one line of JSON of at most limit bytes.
func readMessage(r io.Reader, limit int64, v any) error {
	d := json.NewDecoder(io.LimitReader(r, limit))
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	return nil
}
