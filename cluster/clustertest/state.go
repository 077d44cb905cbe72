// Package clustertest provides a fake of consensus for tests of use cases: the real
// state machine over an ordered map in memory, without a log, a network or a disk. A
// proposal is applied before it returns; a view is a snapshot that later changes do
// not touch.
//
// Imports: consensus/state, consensus/codec, testing.
// Never:   raft, libp2p, storage, clocks; nothing but tests imports it.
package clustertest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Operator is the id of the operator account that New creates, and OperatorEmail its e-mail
// address.
const (
	Operator      state.AccountID = "operator"
	OperatorEmail string          = "operator@localhost"
)

// State is the replicated state of a cluster as one node sees it.
type State struct {
	// Watch is notified of every change.
	Watch *state.Watch

	seed  seed
	reads *atomic.Uint64
	views views

	// mu guards the fields below. It is not held during calls of other code.
	mu     sync.Mutex
	root   *tree
	index  uint64
	failed error
	before func(state.Command)
	leader bool
	fault  *fault
}

// Setup describes the initial State. Zero numbers mean the defaults of a cluster: 3 copies, of
// which 2 make a pin pinned.
type Setup struct {
	Replication, WriteCopies uint8
	SealedSigningKey         []byte
	Nodes                    []state.Node // at least one
}

// Members returns node records with the given ids and one public address each.
func Members(ids ...state.NodeID) []state.Node {
	nodes := make([]state.Node, len(ids))
	for i, id := range ids {
		nodes[i] = state.Node{
			ID: id, Name: string(id), Version: "0.0.0",
			Addrs:        []string{fmt.Sprintf("/ip4/198.51.100.%d/tcp/4001/p2p/%s", i+1, id)},
			ClusterAddrs: []string{fmt.Sprintf("/ip4/198.51.100.%d/tcp/9096/p2p/%s", i+1, id)},
		}
	}
	return nodes
}

// New returns the state of a new cluster with the members of s. This node leads it. At the end
// of the test, New fails the test if a view was not released.
func New(tb testing.TB, s Setup) *State {
	tb.Helper()
	if s.Replication == 0 {
		s.Replication = 3
	}
	if s.WriteCopies == 0 {
		s.WriteCopies = min(2, s.Replication)
	}
	st := &State{Watch: new(state.Watch), seed: newSeed(), reads: new(atomic.Uint64), leader: true}
	tb.Cleanup(func() { tb.Helper(); st.views.check(tb) })
	st.Apply(tb, &state.InitCluster{
		Cluster: state.Cluster{
			ID: "cluster", Created: 1, Replication: s.Replication, WriteCopies: s.WriteCopies,
			SealedSigningKey: s.SealedSigningKey, Operator: Operator,
		},
		Node:     s.Nodes[0],
		Operator: state.Account{ID: Operator, Email: OperatorEmail, Created: 1},
	})
	for _, n := range s.Nodes[1:] {
		st.Apply(tb, &state.JoinNode{Node: n, At: 1})
	}
	return st
}

// Apply proposes commands, and fails the test if one of them is rejected.
func (s *State) Apply(tb testing.TB, cmds ...state.Command) {
	tb.Helper()
	for _, cmd := range cmds {
		if _, err := s.Propose(context.Background(), cmd); err != nil {
			tb.Fatalf("%T: %v", cmd, err)
		}
	}
}

// NewBucket creates a bucket and returns its record.
func (s *State) NewBucket(tb testing.TB, account state.AccountID, name string, public bool) state.Bucket {
	tb.Helper()
	s.Apply(tb, &state.CreateBucket{Bucket: state.Bucket{Account: account, Name: name, Created: 1, Public: public}})
	view, release := s.LocalView()
	defer release()
	b, err := view.Bucket(account, name)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Fail makes every later proposal and linearizable view return err, as on a node without a
// majority. A nil err ends this.
func (s *State) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

// Before makes fn run before each proposal is applied, without a lock held. So fn can do what
// another client does between a read and the following write. Proposals of fn itself do not
// call fn.
func (s *State) Before(fn func(state.Command)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = fn
}

// SetLeader sets whether this node leads.
func (s *State) SetLeader(leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = leads
}

// IsLeader returns whether this node leads.
func (s *State) IsLeader() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader
}

// View returns a view of the newest state.
func (s *State) View(ctx context.Context) (state.View, func(), error) {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if err := errors.Join(ctx.Err(), failed); err != nil {
		return state.View{}, nil, err
	}
	v, release := s.LocalView()
	return v, release, nil
}

// LocalView also returns a view of the newest state, and never fails, because there is only one
// node.
func (s *State) LocalView() (state.View, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views.lend(state.NewView(snapshot{s.root, s.reads, s.fault}, s.index))
}

// EachReadFails calls use repeatedly. In the first call the first read of a view fails, in the
// second call the second read, and so on, until use reads less. It fails the test if a call does
// not return the error of the read: code must not mistake a failed read for a missing record.
// Commands are applied as usual.
func (s *State) EachReadFails(tb testing.TB, use func() error) {
	tb.Helper()
	broken := errors.New("the disk is gone")
	for at := 0; ; at++ {
		f := &fault{err: broken}
		f.left.Store(int64(at))
		s.breakViews(f)
		err := use()
		s.breakViews(nil)
		switch met := f.left.Load() < 0; {
		case met && !errors.Is(err, broken):
			tb.Errorf("read %d failed, and the answer is %v", at, err)
		case !met && at == 0:
			tb.Error("nothing is read")
		}
		if f.left.Load() >= 0 {
			return
		}
	}
}

// breakViews makes later views use the fault f; nil ends this.
func (s *State) breakViews(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Reads returns how many records views and commands have read so far.
func (s *State) Reads() uint64 { return s.reads.Load() }

// auditTime is the time of every row of the audit log.
const auditTime state.Millis = 1_800_000_000_000

// Propose applies cmd after it was encoded and decoded, and notifies Watch.
func (s *State) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	s.mu.Lock()
	failed, before := s.failed, s.before
	s.mu.Unlock()
	if err := errors.Join(ctx.Err(), failed); err != nil {
		return state.Result{}, err
	}
	if before != nil {
		s.Before(nil)
		before(cmd)
		s.Before(before)
	}
	view, release := s.LocalView()
	level, err := view.FeatureLevel()
	release()
	if err != nil {
		return state.Result{}, err
	}
	received, err := transmit(state.Audit(ctx, cmd, auditTime, level))
	if err != nil {
		return state.Result{}, err
	}
	index, fx, result, err := s.apply(received)
	if fx != nil {
		s.Watch.Publish(index, fx)
	}
	return result, err
}

func (s *State) apply(cmd state.Command) (uint64, *state.Effects, state.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &transaction{snapshot: snapshot{s.root, s.reads, nil}, seed: s.seed}
	index := s.index + 1
	var op state.OpID
	binary.BigEndian.PutUint64(op[:], index)
	fx := new(state.Effects)
	result, err := state.Apply(tx, index, op, cmd, fx)
	var outcome *state.Error
	if err != nil && !errors.As(err, &outcome) {
		return 0, nil, state.Result{}, fmt.Errorf("the state machine is broken: %w", err)
	}
	s.root, s.index = tx.root, index
	return index, fx, result, err
}

// transmit encodes and decodes cmd. So tests meet the limits of the encoding, and the state
// shares no memory with the proposer.
func transmit(cmd state.Command) (state.Command, error) {
	enc := codec.Encoder(nil)
	cmd.Code(enc)
	b, err := enc.Finish()
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", cmd, err)
	}
	received, ok := reflect.New(reflect.TypeOf(cmd).Elem()).Interface().(state.Command)
	if !ok {
		return nil, fmt.Errorf("%T is not a pointer to a command", cmd)
	}
	dec := codec.Decoder(b)
	received.Code(dec)
	if _, err := dec.Finish(); err != nil {
		return nil, fmt.Errorf("decode %T: %w", cmd, err)
	}
	return received, nil
}
