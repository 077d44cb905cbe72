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
	// apply changes tx. If it returns an *Error, it has changed nothing. Any other error means
	// a broken store or a broken invariant, and the node stops.
	apply(tx Tx, e *entry) (Result, error)
}

// entry has what a command knows in addition to the store.
type entry struct {
	index  uint64
	settle int    // number of pins that may still be changed in this entry
	by     Actor  // caller of an audited command
	did    string // what an audited command has done, if only apply knows it; a part of its row
	at     Millis // time of the command, for the effects; 0 if it has none
	fx     *Effects
}

// Result is the result of a command for its proposer.
type Result struct {
	Pin *Pin // the accepted pin, for CreatePin and ReplacePin
	// Deeds has the result for each key in a bucket with versions: one for PutObject,
	// CopyObject and CompleteUpload, and one for each key of DeleteObjects. In other
	// buckets it is empty.
	Deeds []Deed
	// Created is the creation time of the version or part that PutObject, CopyObject,
	// CompleteUpload, PutPart or CopyPart has made. Apply may have changed the proposed time,
	// see PutObject. 0 means that nothing was made.
	Created Millis
}

// Effects collects what the commands of an entry have changed, for the parts of the node that
// wait for it.
type Effects struct {
	Members      bool // nodes, tickets or quarantine have changed
	Check        bool // the state after this entry is to be hashed
	Checked      bool // a hash was reported
	FeatureLevel bool // the feature level of the cluster was raised
	Keys         bool // API keys were revoked
	Settling     bool // roots have pins that must still be changed
	Roots        []RootChange
	Accounts     []AccountChange
	Objects      []ObjectChange
}

// AccountChange names an account whose pins, buckets or objects a caller has changed, and the index
// of the entry.
type AccountChange struct {
	Account AccountID
	Index   uint64
}

// changeOf returns the account that a command changes for a caller; empty: none.
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

// RootChange names a root whose record has changed, and the nodes that the change concerns.
type RootChange struct {
	Root  RootKey
	Nodes []NodeID
}

func (f *Effects) touch(root *Root) {
	f.Roots = append(f.Roots, RootChange{Root: root.Key, Nodes: root.Nodes()})
}

// Apply does the same as the method Apply of an Applier with an empty cache.
func Apply(tx Tx, index uint64, op OpID, cmd Command, fx *Effects) (Result, error) {
	return new(Applier).Apply(tx, index, op, cmd, fx)
}

// Apply runs one command of the log. Its result depends only on the store and its
// arguments. A command whose op was applied before changes nothing and returns the first
// result, or an error with the first one's code.
//
// An *Error is an outcome, which is part of the state's history. Any other error means that
// the store cannot be trusted.
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
	result, err := run(tx, cmd, &entry{index: index, settle: MaxSettle, fx: fx})
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

// run applies a command. Only InitCluster can be applied before the cluster is founded.
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

// CodeOutcome encodes or decodes a result and its error, for the operation table and the wire.
// It returns that error.
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
