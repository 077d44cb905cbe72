package state

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Command is one change of the state. Package wire gives each type of command its kind number.
type Command interface {
	// Code encodes or decodes the command.
	Code(*codec.Coder)
	// apply changes tx. If it returns an *Error, the command was rejected and has changed
	// nothing. Any other error means that the store is broken or an invariant does not hold; the
	// node then stops.
	apply(tx Tx, e *entry) (Result, error)
}

// entry has the data of a log entry that a command reads or changes in addition to the store.
type entry struct {
	index  uint64
	settle int    // how many further records the entry may change; bounds its cost
	by     Actor  // actor of an audited command
	did    string // text that apply adds to the audit row about what the command did
	at     Millis // time of the command, for ObjectChange; 0 if it has none
	fx     *Effects
	firsts *firstPins // nil: no cache
}

// Result is what a successful command returns to its proposer.
type Result struct {
	Pin *Pin // the accepted pin, for CreatePin and ReplacePin
	// Deeds is what happened to each key in a bucket with versions: one element for PutObject,
	// CopyObject and CompleteUpload, and one for each key of DeleteObjects. In other buckets it
	// is empty.
	Deeds []Deed
	// Created is the creation time of the version or part that PutObject, CopyObject,
	// CompleteUpload, PutPart or CopyPart has made. Apply may have changed the proposed time,
	// see PutObject. 0 means that nothing was made.
	Created Millis
}

// Effects collects what the commands of an entry have changed, so that other parts of the node
// can react.
type Effects struct {
	Members      bool // nodes, tickets or quarantine have changed
	Check        bool // the state after this entry is to be hashed
	Checked      bool // a hash was reported
	FeatureLevel bool // the feature level of the cluster was raised
	Keys         bool // API keys were revoked
	Settling     bool // work remains for later commands of the leader, such as pins or parts that did not fit into the entry
	Roots        []RootChange
	Accounts     []AccountChange
	Objects      []ObjectChange
}

// AccountChange names an account whose pins, buckets or objects have changed at a caller's
// request. Index is that of the log entry.
type AccountChange struct {
	Account AccountID
	Index   uint64
}

// changeOf returns the account whose content a command changes at the request of a caller, or "".
func changeOf(cmd Command) AccountID {
	switch by := cmd.(type) {
	case *Audited:
		return changeOf(by.Change)
	case *ByKey:
		return changeOf(by.Change)
	case *BySession:
		return changeOf(by.Change)
	case *CreateOnce:
		return changeOf(by.Change)
	}
	_, account := asked(cmd)
	return account
}

// RootChange names a root whose record has changed, and the nodes that the record names.
type RootChange struct {
	Root  RootKey
	Nodes []NodeID
}

func (f *Effects) touch(root *Root) {
	f.Roots = append(f.Roots, RootChange{Root: root.Key, Nodes: root.Nodes()})
}

// Apply applies one command with a new Applier; see Applier.Apply.
func Apply(tx Tx, index uint64, op OpID, cmd Command, fx *Effects) (Result, error) {
	return new(Applier).Apply(tx, index, op, cmd, fx)
}

// Apply applies one command of the log to tx. Its result depends only on the store and the
// arguments. If a command with the same op was applied before, Apply changes nothing and returns
// the first result again, or an error with the same code.
//
// A returned *Error is the cluster's decision and part of the history. Any other error means that
// the store cannot be trusted. Apply adds to fx what has changed.
func (a *Applier) Apply(tx Tx, index uint64, op OpID, cmd Command, fx *Effects) (Result, error) {
	if op != (OpID{}) {
		if b, done, err := tx.Get(opKey(op)); err != nil {
			return Result{}, err
		} else if done {
			r, err := decodeOutcome(b)
			return recalled(r, cmd), err
		}
	}
	before := len(fx.Objects)
	result, err := run(tx, cmd, &entry{index: index, settle: MaxSettle, fx: fx, firsts: a.firsts})
	if err != nil {
		fx.Objects = fx.Objects[:before] // nothing was changed
	}
	var outcome *Error
	if err != nil && !errors.As(err, &outcome) {
		return Result{}, fmt.Errorf("apply %T at %d: %w", cmd, index, err)
	}
	if account := changeOf(cmd); account != "" && err == nil {
		fx.Accounts = append(fx.Accounts, AccountChange{account, index})
	}
	if op != (OpID{}) {
		kept, err := brief(tx, result, cmd)
		if err == nil {
			err = a.remember(tx, op, kept, outcome)
		}
		if err != nil {
			return Result{}, err
		}
	}
	return result, err
}

// run applies a command. Before the cluster is founded, it rejects every command but InitCluster
// with ErrUnavailable.
func run(tx Tx, cmd Command, e *entry) (Result, error) {
	if _, founding := cmd.(*InitCluster); !founding {
		if founded, err := has(tx, clusterKey); err != nil {
			return Result{}, err
		} else if !founded {
			return Result{}, Errorf(CodeUnavailable, "the cluster has no state yet")
		}
	}
	return audited(tx, cmd, e)
}

func opKey(op OpID) key { return append(table(tableOp), op[:]...) }

func opOrderKey(n uint64) key { return table(tableOpOrder).u64(n) }

// CodeOutcome encodes r and e, or decodes a result into r and returns the decoded error. The form
// is used on the wire and for remembered operations.
func CodeOutcome(c *codec.Coder, r *Result, e *Error) *Error {
	c.Version(1)
	var code Code
	var detail string
	if e != nil {
		code, detail = e.Code, e.Detail[:min(len(e.Detail), MaxReasonLen)]
	}
	codec.Uint(c, &code)
	codec.String(c, &detail, MaxReasonLen)
	const pin, deeds, created uint8 = 1, 2, 4
	var has uint8
	if r.Pin != nil {
		has |= pin
	}
	if len(r.Deeds) > 0 {
		has |= deeds
	}
	if r.Created != 0 {
		has |= created
	}
	if codec.Uint(c, &has); has > pin|deeds|created {
		c.Fail("a result of a newer release")
	}
	if has&pin != 0 {
		if r.Pin == nil {
			r.Pin = new(Pin)
		}
		r.Pin.Code(c)
	}
	if has&deeds != 0 {
		codeDeeds(c, &r.Deeds)
	}
	if has&created != 0 {
		codec.Int(c, &r.Created)
	}
	if code == CodeOK {
		return nil
	}
	return &Error{Code: code, Detail: detail}
}

func encodeOutcome(r Result, e *Error) ([]byte, error) {
	c := codec.Encoder(nil)
	_ = CodeOutcome(c, &r, e) // e itself
	b, err := c.Finish()
	if err != nil {
		return nil, fmt.Errorf("state: outcome: %w", err)
	}
	return b, nil
}

func decodeOutcome(b []byte) (Result, error) {
	var r Result
	c := codec.Decoder(b)
	e := CodeOutcome(c, &r, nil)
	if _, err := c.Finish(); err != nil {
		return Result{}, fmt.Errorf("state: outcome: %w", err)
	}
	if e != nil {
		return Result{}, e.worded()
	}
	return r, nil
}

// compactRoots merges the changes of each root into one change with all its nodes.
func compactRoots(changes []RootChange) []RootChange {
	at := make(map[RootKey]int, len(changes))
	out := changes[:0:0]
	for _, c := range changes {
		i, seen := at[c.Root]
		if !seen {
			at[c.Root] = len(out)
			out = append(out, RootChange{Root: c.Root, Nodes: slices.Clone(c.Nodes)})
			continue
		}
		for _, n := range c.Nodes {
			if !slices.Contains(out[i].Nodes, n) {
				out[i].Nodes = append(out[i].Nodes, n)
			}
		}
	}
	return out
}
