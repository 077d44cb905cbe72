package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// Limits for joining a cluster.
const (
	// JoinTimeout is how long a new node tries to join its cluster before Open fails.
	JoinTimeout = 60 * time.Second
	joinRetry   = time.Second // pause between two rounds
	joinDial    = 20 * time.Second
	// joinRefusals is the number of consecutive rounds in which members only close the joiner's
	// connection before join fails. The usual reason is a wrong secret. It takes several rounds,
	// because a member that is starting closes the connection too. Unreachable addresses are
	// ignored: a ticket may contain addresses that only its member's machine can reach.
	joinRefusals = 5
	joinTold     = 10              // a log line is written every joinTold rounds
	clockMargin  = 5 * time.Minute // a ticket counts as expired by this node's clock only after this margin
)

// ErrNoWayIn is the error of Open if an entry of the --join settings cannot be used: it is
// neither a whole ticket nor an address, or it is an address and there is no cluster secret.
var ErrNoWayIn = errors.New("no way to join")

// ErrRunsElsewhere is the error of Open if another process runs with the identity of this node.
var ErrRunsElsewhere = errors.New("another process runs with the identity of this node")

// enter returns the cluster secret and what the node knows about its cluster. If the folder is
// new or that of a removed node, enter first joins the cluster in the --join settings, or founds
// a cluster without these settings, and stores the result in the folder.
func (n *Node) enter(ctx context.Context) (secret []byte, known *seed, err error) {
	if secret, err = n.folder.secret(); err != nil {
		return nil, nil, err
	}
	if known, err = n.folder.seed(); err != nil {
		return nil, nil, err
	}
	if secret != nil && known != nil {
		return secret, known, nil // already a member: --join only helps to find the others, see find
	}
	given, err := n.opts.Config.GivenSecret()
	if err != nil {
		return nil, nil, err
	}
	if len(n.opts.Config.Cluster.Join) == 0 {
		if err := n.folder.mayFound(); err != nil {
			return nil, nil, err
		}
		switch { // with one in its folder it was about to found when it went down
		case secret == nil && given != nil:
			secret = given
		case secret == nil:
			secret = newSecret()
		}
		known = newSeed(uuid.NewString(), []state.Node{n.self})
		known.Founder = true
	} else if secret, known, err = n.join(ctx, secret, given); err != nil {
		return nil, nil, n.sayRemoved(err)
	}
	// The seed is written last: a folder with both files belongs to a cluster, also if it
	// says that the node was removed.
	if err := n.folder.writeSecret(secret); err != nil {
		return nil, nil, err
	}
	if err := n.folder.writeSeed(known); err != nil {
		return nil, nil, err
	}
	if err := durable.RemoveAll(n.folder.file(newFile)); err != nil {
		return nil, nil, err
	}
	return secret, known, n.forgetRemoval()
}

// Limits of checkAlone.
const (
	aloneDial  = 2 * time.Second  // time limit for dialling one address
	aloneWait  = 10 * time.Second // how long another process may take to end
	aloneRetry = time.Second
)

// checkAlone returns ErrRunsElsewhere if another process runs with this node's identity, for
// example from a copied folder. Raft would treat both processes as one voter and could lose
// committed entries. checkAlone dials the earlier addresses of this node, in known. A peer there
// that proves this node's key and the cluster secret is another process, because this process
// accepts no connections yet. checkAlone waits up to aloneWait for that process to end.
func (n *Node) checkAlone(ctx context.Context, secret []byte, known *seed) error {
	var before []string
	for _, m := range known.Members {
		if m.ID != string(n.self.ID) {
			continue
		}
		for _, addr := range m.ClusterAddrs {
			if hintedID(addr) == n.self.ID && !slices.Contains(n.self.ClusterAddrs, addr) {
				before = append(before, addr)
			}
		}
	}
	if len(before) == 0 {
		return nil
	}
	late := time.NewTimer(aloneWait)
	defer late.Stop()
	retry := time.NewTicker(aloneRetry)
	defer retry.Stop()
	for {
		at := n.isRunAt(ctx, secret, before)
		if at == "" {
			return nil
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("%w: it answers at %s; is the data folder %s a copy?", ErrRunsElsewhere, at, n.folder.path)
		}
	}
}

// isRunAt returns the address at which another process answers with the identity of this node,
// or "" if none does.
func (n *Node) isRunAt(ctx context.Context, secret []byte, addrs []string) (at string) {
	ctx, cancel := context.WithTimeout(ctx, aloneDial)
	defer cancel()
	answers := make(chan string, len(addrs))
	for _, addr := range addrs {
		go func() { // ends with ctx
			_, hangUp, err := n.dialJoin(ctx, secret, addr)
			if err != nil {
				answers <- ""
				return
			}
			hangUp() // that it answers is all
			answers <- addr
		}()
	}
	for range addrs {
		if answer := <-answers; at == "" {
			at = answer
		}
	}
	return at
}

// checkFolder returns an error if the folder belongs to a member, but the identity or the cluster
// secret is missing. With a new identity it would be another node, and with a new secret it could
// not verify API keys. If membersFile is missing or damaged, checkFolder writes it again from the
// state. Without a state it returns an error, because the node would found another cluster. It
// accepts a folder that never belonged to a cluster.
func (n *Node) checkFolder() error {
	known, unread := n.folder.seed()
	if unread != nil && !errors.Is(unread, errSeedUnread) {
		return unread
	}
	snapshot := n.store.View()
	defer snapshot.Close()
	view := state.NewView(snapshot, 0)
	c, err := view.Cluster()
	if err != nil && !errors.Is(err, state.ErrUnavailable) {
		return fmt.Errorf("read cluster: %w", err)
	}
	hasState := err == nil
	last, err := n.log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if known == nil && unread == nil && !hasState && last == 0 {
		return nil
	}
	if err := n.folder.needs(IdentityFile, "with a new one it would be another node; "+identityAdvice); err != nil {
		return err
	}
	if err := n.folder.needs(SecretFile, "with a new one no API key would open; "+secretAdvice); err != nil {
		return err
	}
	switch {
	case known != nil:
		return nil
	case !hasState && unread != nil:
		return fmt.Errorf("%w: nothing else here tells which cluster this node belongs to; put the file back from a backup, or start on an empty data folder", unread)
	case !hasState:
		return n.folder.needs(membersFile, "nothing else here tells which one; put it back from a backup, or start on an empty data folder")
	}
	nodes, err := view.Nodes()
	if err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}
	if unread != nil {
		n.logger.Warn("cannot read a file: writing it again from the state", "file", n.folder.file(membersFile), "err", unread)
	} else {
		n.logger.Warn("a file is missing: writing it again from the state", "file", n.folder.file(membersFile))
	}
	return n.folder.writeSeed(newSeed(c.ID, nodes))
}

// checkSecret returns an error if the cluster secret cannot decrypt the signing keys in the
// state. It returns nil if this node has no state yet; Ready checks the secret later.
func (n *Node) checkSecret() error {
	err := n.secretFits()
	if errors.Is(err, state.ErrUnavailable) {
		return nil
	}
	return err
}

// secretFits is accounts.Fits with an error that contains the path of the secret file.
func (n *Node) secretFits() error {
	err := n.accounts.Fits()
	if errors.Is(err, accounts.ErrSealed) {
		return fmt.Errorf("%s is not the secret of this node's cluster: put the one of another member there: %w", n.folder.file(SecretFile), err)
	}
	return err
}

// join asks the members in the --join settings, one after the other and in repeated rounds, until
// one admits this node. It returns the secret of the cluster and its members. join fails if a
// member refuses with a reason, after joinRefusals rounds in which every reached member closed
// the connection, if no address leads to a cluster host, or after JoinTimeout.
//
// given is the secret in the settings for joining by an address, or nil. own is the secret in the
// folder, or nil. A node that has own may have been admitted before, by a ticket that cannot be
// used again, and may have stopped before it recorded that. So join first uses own to ask whether
// this node is a member already.
func (n *Node) join(ctx context.Context, own, given []byte) ([]byte, *seed, error) {
	targets, err := n.joinTargets(own, given)
	if err != nil {
		return nil, nil, err
	}
	n.tellExpired(ctx, targets)
	asked := ctx // ends when the node is to end
	ctx, cancel := context.WithTimeout(ctx, JoinTimeout)
	defer cancel()
	retry := time.NewTicker(joinRetry)
	defer retry.Stop()
	refusals := 0
	var unable error // of the last whole round in which a member knew the secret
	for rounds := 0; ; rounds++ {
		r, joined, err := n.joinRound(ctx, asked, targets, own)
		if err != nil {
			return nil, nil, err
		}
		if joined != nil {
			return joined.Secret, newSeed(joined.ClusterID, joined.Members), nil
		}
		failed := errors.Join(r.failed...)
		if r.wrong == len(targets) {
			return nil, nil, failed
		}
		if refusals++; r.cut == 0 || r.known > 0 {
			refusals = 0
		}
		if refusals == joinRefusals {
			return nil, nil, fmt.Errorf("the cluster does not admit this node: %s: %w", n.whyCut(targets), failed)
		}
		if r.known > 0 {
			unable = failed
		} else if ctx.Err() == nil {
			unable = nil
		}
		if rounds%joinTold == 0 {
			why := "no member was reached: is the address right, and does a member run there?"
			switch {
			case r.known > 0:
				why = cannotAdmit
			case r.cut > 0:
				why = n.whyCut(targets) + "; or the member is only starting"
			case r.other > 0:
				why = "a node answers, and not the one that the address names: is the id behind /p2p/ right?"
			}
			n.logger.WarnContext(ctx, "this node has not joined yet and tries again", "check", why, "err", failed)
		}
		select {
		case <-ctx.Done():
			if asked.Err() != nil {
				return nil, nil, fmt.Errorf("join: %w", asked.Err())
			}
			if unable != nil {
				return nil, nil, fmt.Errorf("%s: %w", cannotAdmit, unable)
			}
			return nil, nil, fmt.Errorf("no member could be joined (is the secret or ticket right, and the address reachable?): %w", failed)
		case <-retry.C:
		}
	}
}

// cannotAdmit is the error text if members accept the secret but cannot admit this node.
const cannotAdmit = "a member answers, and its cluster can admit nobody now: does a majority of its members run?"

// round is the result of one round, in which join asks at each address once.
type round struct {
	failed []error
	cut    int // number of addresses at which a member closed the connection
	known  int // number of addresses at which a member accepted the secret but could not admit this node now
	wrong  int // number of addresses that do not lead to a cluster host
	other  int // number of addresses at which a node with another id than in the address answered
}

// joinRound asks at each target once, until a member admits this node; joined is nil if none
// does. An error means that further rounds are useless, because a member refused for good or
// because asked has ended. asked is the context of the caller, ctx has the time limit too.
func (n *Node) joinRound(ctx, asked context.Context, targets []target, own []byte) (r round, joined *members.Joined, err error) {
	for _, t := range targets {
		joined, err := n.joinAt(ctx, t, own)
		if err == nil {
			return r, &joined, nil
		}
		if asked.Err() != nil {
			return r, nil, fmt.Errorf("join: %w", asked.Err())
		}
		var refused *state.Error
		if errors.As(err, &refused) && refused.Code != state.CodeUnavailable {
			return r, nil, fmt.Errorf("join at %s: %w", t.addr, err)
		}
		switch {
		case refused != nil:
			r.known++
		case errors.Is(err, peer.ErrJoinRefused):
			r.cut++
		case errors.Is(err, peer.ErrNoJoin):
			r.wrong++
		case errors.Is(err, peer.ErrOtherNode):
			r.other++
		}
		r.failed = append(r.failed, fmt.Errorf("join at %s: %w", t.addr, err))
	}
	return r, nil, nil
}

// tellExpired logs a warning for each ticket that has expired by this machine's clock. The node
// tries such tickets nevertheless, because the clocks of the members decide.
func (n *Node) tellExpired(ctx context.Context, targets []target) {
	for i, t := range targets {
		if i > 0 && t.expires == targets[i-1].expires {
			continue // the same ticket at another address
		}
		if t.expires > 0 && n.opts.Now().Sub(t.expires.Time()) > clockMargin {
			n.logger.WarnContext(ctx, "the ticket has expired by the clock of this machine: make a new one with `holdfast token`", "expired", t.expires.Time())
		}
	}
}

// whyCut returns the possible reasons why members have closed the connection, for the log and an
// error. Members send no reason.
func (n *Node) whyCut(targets []target) string {
	var tickets, secrets bool
	var ended state.Millis
	for _, t := range targets {
		tickets = tickets || t.ticket
		secrets = secrets || !t.ticket && t.secret != nil
		if t.expires > 0 && t.expires <= state.MillisOf(n.opts.Now()) {
			ended = max(ended, t.expires)
		}
	}
	var why []string
	if tickets {
		text := "the ticket may have been used, have expired, or be of another cluster"
		if ended > 0 {
			text = "the ticket has expired at " + ended.Time().Format(time.RFC3339)
		}
		why = append(why, text+" (a ticket admits one node: make a new one with `holdfast token`)")
	}
	if secrets {
		why = append(why, "the secret may be wrong, or that of another cluster (it is in the file cluster.secret of every member)")
	}
	return strings.Join(why, ", and ") + "; the log of the member says which"
}

// target is one address at which to join, with the secret for it.
type target struct {
	addr    string
	secret  []byte       // secret to show; nil means only to ask whether this node is a member
	ticket  bool         // the secret is that of a ticket
	expires state.Millis // expiry of the ticket; 0 means unknown
}

// joinTargets returns the targets in the --join settings. The secret for an address is given, or
// own without given; own helps a member that has lost its disk but has its secret. For a removed
// node the targets of addresses have no secret: only a new ticket lets it return. joinTargets
// returns ErrNoWayIn if an entry cannot be used.
func (n *Node) joinTargets(own, given []byte) ([]target, error) {
	secret := given
	if secret == nil {
		secret = own
	}
	removed := n.wasRemoved()
	if removed {
		secret = nil
	}
	var targets []target
	for _, where := range n.opts.Config.Cluster.Join {
		if ticket, ok := members.ParseTicket(where); ok {
			for _, addr := range ticket.Addrs {
				targets = append(targets, target{addr: addr, secret: ticket.Secret, ticket: true, expires: ticket.Expires})
			}
			continue
		}
		if members.LooksLikeTicket(where) {
			return nil, fmt.Errorf("%w: the ticket of --join is not whole: copy all of what `holdfast token` printed", ErrNoWayIn)
		}
		if !strings.HasPrefix(where, "/") {
			return nil, fmt.Errorf("%w: --join takes a ticket of `holdfast token` or the multiaddr of a member, /ip4/.../tcp/9096/p2p/ID", ErrNoWayIn)
		}
		if secret == nil && !removed {
			return nil, errNoSecret
		}
		targets = append(targets, target{addr: where, secret: secret})
	}
	return targets, nil
}

func (n *Node) joinAt(ctx context.Context, t target, own []byte) (members.Joined, error) {
	if own != nil {
		m, err := n.askMembership(ctx, t.addr, own, n.self.ID)
		if err == nil && m.Member {
			return members.Joined{ClusterID: m.ClusterID, Secret: own, Members: m.Members}, nil
		}
		n.logger.DebugContext(ctx, "asked a member whether this node is one already", "addr", t.addr, "member", m.Member, "err", err)
	}
	if t.secret == nil {
		return members.Joined{}, errNoTicket
	}
	ctx, cancel := context.WithTimeout(ctx, joinDial)
	defer cancel()
	conn, hangUp, err := n.dialJoin(ctx, t.secret, t.addr)
	if err != nil {
		return members.Joined{}, err
	}
	defer hangUp()
	deadline, _ := ctx.Deadline()
	return members.Join(conn, deadline, n.self)
}

// dialJoin is peer.DialJoin with the host options of this node. The caller must call hangUp at
// the end.
func (n *Node) dialJoin(ctx context.Context, secret []byte, addr string) (conn net.Conn, hangUp func(), err error) {
	conn, host, err := peer.DialJoin(ctx, secret, addr, slices.Concat(n.opts.HostOptions, n.opts.ClusterOptions)...)
	if err != nil {
		return nil, nil, err
	}
	return conn, func() {
		_ = conn.Close()
		_ = host.Close()
	}, nil
}
