package state

import (
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// MaxChecks is the number of state checks whose results are kept; the oldest is removed first.
const MaxChecks = 16

// Check is the record of one state check: a comparison of the members' states after one log
// entry. The members' reports are part of the replicated state, so that all members reach the
// same verdict.
type Check struct {
	Index   uint64   // index of the entry, and of the compared state
	At      Millis   // time at which the check was requested
	Members []NodeID // members at that entry, in the order of their ids
	Reports []HashReport
}

// HashReport is the hash of one node's state at the entry of a check.
type HashReport struct {
	Node NodeID
	Hash Hash
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Check) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.Index)
	codec.Int(c, &v.At)
	codec.Strings(c, &v.Members, MaxNodes, MaxIDLen)
	codec.List(c, &v.Reports, MaxNodes, func(c *codec.Coder, r *HashReport) {
		codec.String(c, &r.Node, MaxIDLen)
		codec.Fixed(c, r.Hash[:])
	})
}

// Majority returns the hash that more than half of the members have reported. It returns false if there is
// no such hash.
func (v *Check) Majority() (Hash, bool) {
	count := make(map[Hash]int)
	for _, r := range v.Reports {
		if count[r.Hash]++; count[r.Hash] > len(v.Members)/2 {
			return r.Hash, true
		}
	}
	return Hash{}, false
}

// Differs returns whether members reported different hashes.
func (v *Check) Differs() bool {
	return slices.ContainsFunc(v.Reports, func(r HashReport) bool { return r.Hash != v.Reports[0].Hash })
}

// Complete returns whether every member has reported.
func (v *Check) Complete() bool { return len(v.Reports) == len(v.Members) }

// Quarantine is the record of a node whose state differs from that of the majority. It
// neither votes nor serves until a later check finds it equal.
type Quarantine struct {
	Node     NodeID
	Check    uint64 // index of the check that found it
	Hash     Hash   // hash of the node's state
	Majority Hash
	Store    StoreID // id of the store that had the node's state then
	Times    uint32  // number of checks in a row that found the node different
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Quarantine) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Node, MaxIDLen)
	codec.Uint(c, &v.Check)
	codec.Fixed(c, v.Hash[:])
	codec.Fixed(c, v.Majority[:])
	codec.String(c, &v.Store, MaxIDLen)
	codec.Uint(c, &v.Times)
}

func checkKey(index uint64) key { return table(tableCheck).u64(index) }

func quarantineKey(id NodeID) key { return part(table(tableQuarantine), id) }

// CheckState makes every node hash its state as it is after this entry.
type CheckState struct{ At Millis }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CheckState) Code(c *codec.Coder) { codec.Int(c, &v.At) }

func (v *CheckState) apply(tx Tx, e *entry) (Result, error) {
	// Several in one entry are one: they mean the same state.
	if known, err := has(tx, checkKey(e.index)); err != nil || known {
		return Result{}, err
	}
	nodes, err := scanAll[Node](tx, table(tableNode))
	if err != nil {
		return Result{}, err
	}
	checks, err := scanAll[Check](tx, table(tableCheck))
	if err != nil {
		return Result{}, err
	}
	for i := range len(checks) - (MaxChecks - 1) {
		if err := tx.Delete(checkKey(checks[i].Index)); err != nil {
			return Result{}, err
		}
	}
	check := Check{Index: e.index, At: v.At}
	for _, n := range nodes {
		check.Members = append(check.Members, n.ID)
	}
	e.fx.Check = true
	return Result{}, put(tx, checkKey(e.index), &check)
}

// ReportHash reports the hash of a node's state at the entry of a check. Only the first report of
// each node counts. Reports for a check that was removed are ignored.
type ReportHash struct {
	Node  NodeID
	Check uint64
	Hash  Hash
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ReportHash) Code(c *codec.Coder) {
	codec.String(c, &v.Node, MaxIDLen)
	codec.Uint(c, &v.Check)
	codec.Fixed(c, v.Hash[:])
}

func (v *ReportHash) apply(tx Tx, e *entry) (Result, error) {
	check, err := get[Check](tx, checkKey(v.Check))
	if err != nil || check == nil || !slices.Contains(check.Members, v.Node) ||
		slices.ContainsFunc(check.Reports, func(r HashReport) bool { return r.Node == v.Node }) {
		return Result{}, err
	}
	check.Reports = append(check.Reports, HashReport{Node: v.Node, Hash: v.Hash})
	if err := put(tx, checkKey(v.Check), check); err != nil {
		return Result{}, err
	}
	e.fx.Checked = true
	majority, decided := check.Majority()
	if !decided {
		return Result{}, nil // without a majority no node goes into quarantine
	}
	for _, r := range check.Reports {
		if err := judge(tx, check.Index, r, majority, e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

// judge compares one report with the majority's hash, and puts the node into quarantine or ends
// its quarantine. A report for an older check does not change a quarantine that a newer check has
// begun.
func judge(tx Tx, check uint64, r HashReport, majority Hash, e *entry) error {
	node, err := get[Node](tx, nodeKey(r.Node))
	if err != nil || node == nil {
		return err // the node is no longer a member
	}
	in, err := get[Quarantine](tx, quarantineKey(r.Node))
	if err != nil || in != nil && in.Check >= check {
		return err
	}
	if r.Hash == majority {
		if in == nil {
			return nil
		}
		e.fx.Members = true
		return tx.Delete(quarantineKey(r.Node))
	}
	if node.Store == "" {
		return nil // the node joined after the check began; the next check includes it
	}
	q := Quarantine{Node: r.Node, Check: check, Hash: r.Hash, Majority: majority, Store: node.Store}
	if in != nil {
		q.Times = in.Times + 1
	}
	e.fx.Members = true
	return put(tx, quarantineKey(r.Node), &q)
}

// Checks returns the checks on record, oldest first.
func (v View) Checks() ([]Check, error) { return scanAll[Check](v.r, table(tableCheck)) }

// Quarantined returns the nodes in quarantine in the order of their ids.
func (v View) Quarantined() ([]Quarantine, error) {
	return scanAll[Quarantine](v.r, table(tableQuarantine))
}

// Quarantine returns a node's record of quarantine, or nil if the node is not in quarantine.
func (v View) Quarantine(id NodeID) (*Quarantine, error) {
	return get[Quarantine](v.r, quarantineKey(id))
}
