package state

import (
	"cmp"
	"fmt"
	"slices"
)

// View is a read-only view of the state after one log entry. It is valid until the Reader from
// which it was made is closed.
type View struct {
	r       Reader
	index   uint64
	members *Members // member records of the view; nil if they must be read
	firsts  *firstPins
}

// Members caches the records of the cluster and its nodes, which most requests need and which
// seldom change. Any number of views may share one.
type Members struct {
	cluster *Cluster // nil if there is no cluster yet
	nodes   []Node   // in the order of their keys
}

// Founded returns whether the cluster exists.
func (m *Members) Founded() bool { return m.cluster != nil }

// Members reads the records of the cluster and its nodes, for With.
func (v View) Members() (*Members, error) {
	c, err := get[Cluster](v.r, clusterKey)
	if err != nil {
		return nil, err
	}
	nodes, err := scanAll[Node](v.r, table(tableNode))
	if err != nil {
		return nil, err
	}
	return &Members{cluster: c, nodes: nodes}, nil
}

// With returns the view with cached member records, which must be those of the same state.
// Entries that change these records set Effects.Members.
func (v View) With(m *Members) View {
	v.members = m
	return v
}

// NewView returns a view of the state in r, which is the state after the log entry index.
func NewView(r Reader, index uint64) View { return View{r: r, index: index} }

// Index returns the log index of the view.
func (v View) Index() uint64 { return v.index }

// Cluster returns the record of the cluster, or ErrUnavailable if there is no cluster yet. The
// caller must not change its byte slices.
func (v View) Cluster() (Cluster, error) {
	if v.members != nil && v.members.cluster != nil {
		return *v.members.cluster, nil
	}
	c, err := cluster(v.r)
	if err != nil {
		return Cluster{}, err
	}
	return *c, nil
}

// errNoRoot is the error for a missing root. It is one value for all roots, to avoid formatting:
// the error is the usual result for new content, and its text is not shown.
var errNoRoot = Errorf(CodeNotFound, "the root is not kept")

// Emails calls fn for the e-mail address and the id of each account, shorter addresses first,
// until fn returns false.
func (v View) Emails(fn func(email string, id AccountID) (more bool, err error)) error {
	all := table(tableEmail)
	return v.r.Scan(all, all.end(), false, func(k, value []byte) (bool, error) {
		email, _, err := readPart[string](k[len(all):])
		if err != nil {
			return false, err
		}
		return fn(email, AccountID(value))
	})
}

// Root returns the record of a root, or ErrNotFound.
func (v View) Root(k RootKey) (Root, error) {
	root, err := get[Root](v.r, rootKey(k))
	if err != nil {
		return Root{}, err
	}
	if root == nil {
		return Root{}, errNoRoot
	}
	return *root, nil
}

// Need returns the number of copies that a root needs to count as pinned.
func (v View) Need() (int, error) {
	need, _, err := copiesIn(v.r)
	return need, err
}

// Enough returns whether enough members hold a root for it to count as pinned.
func (v View) Enough(root *Root) (bool, error) {
	need, err := v.Need()
	if err != nil {
		return false, err
	}
	return root.enough(v.r, need)
}

// AttachedAccounts returns up to limit accounts whose pins, objects or parts reference a root, in
// the order of their keys. The cost does not grow with the number of these references.
func (v View) AttachedAccounts(k RootKey, limit int) ([]AccountID, error) {
	root, err := get[Root](v.r, rootKey(k))
	if err != nil || root == nil {
		return nil, err
	}
	var pinned, linked []AccountID
	if only, err := v.firsts.only(v.r, root); err != nil {
		return nil, err
	} else if only != nil {
		pinned = []AccountID{only.Account}
	} else if root.Refs > 0 {
		if pinned, err = v.accountsIn(attachedTo(k), limit); err != nil {
			return nil, err
		}
	}
	if root.Links > 0 {
		if linked, err = v.accountsIn(linksOf(k), limit); err != nil {
			return nil, err
		}
	}
	if len(linked) == 0 {
		return pinned[:min(len(pinned), limit)], nil
	}
	all := append(pinned, linked...)
	slices.SortFunc(all, func(a, b AccountID) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	all = slices.Compact(all)
	return all[:min(len(all), limit)], nil
}

// Names returns true if a pin, an object or a part of an account references the root. The cost
// does not grow with the number of accounts.
func (v View) Names(a AccountID, root *Root) (bool, error) {
	n, err := holdsAt(v.r, a, root, 1)
	return n > 0, err
}

// accountsIn returns up to limit different accounts that follow a prefix in keys.
func (v View) accountsIn(prefix key, limit int) ([]AccountID, error) {
	const inRow = 8 // rows of one account that are passed before the rest is skipped
	end := prefix.end()
	var accounts []AccountID
	for from := prefix; len(accounts) < limit; {
		same, more := 0, false
		err := v.r.Scan(from, end, false, func(entry, _ []byte) (bool, error) {
			account, _, err := readPart[AccountID](entry[len(prefix):])
			if err != nil {
				return false, err
			}
			if n := len(accounts); n == 0 || accounts[n-1] != account {
				accounts, same = append(accounts, account), 0
			}
			same++
			more = same > inRow
			return !more && len(accounts) < limit, nil
		})
		if err != nil || !more {
			return accounts, err
		}
		from = part(slices.Clone(prefix), accounts[len(accounts)-1]).end()
	}
	return accounts, nil
}

// WantedOn calls fn for each root that is allocated to a node, with the phase of the node's copy,
// in key order from the root from on, until fn returns false.
func (v View) WantedOn(n NodeID, from RootKey, fn func(RootKey, Phase) (more bool, err error)) error {
	prefix := wantedOn(n)
	lower := prefix
	if from != "" {
		lower = part(wantedOn(n), from)
	}
	return v.r.Scan(lower, prefix.end(), false, func(k, value []byte) (bool, error) {
		root, _, err := readPart[RootKey](k[len(prefix):])
		if err != nil {
			return false, err
		}
		var phase Phase
		if len(value) == 1 {
			phase = Phase(value[0])
		}
		return fn(root, phase)
	})
}

// Roots calls fn for each root, in key order from the root from on, until fn returns false.
func (v View) Roots(from RootKey, fn func(Root) (more bool, err error)) error {
	prefix := table(tableRoot)
	lower := prefix
	if from != "" {
		lower = rootKey(from)
	}
	return v.r.Scan(lower, prefix.end(), false, func(_, value []byte) (bool, error) {
		root, err := decode[Root](value)
		if err != nil {
			return false, err
		}
		return fn(*root)
	})
}

// Settling returns up to limit roots that have pins whose status must still be changed to that of
// the root.
func (v View) Settling(limit int) ([]RootKey, error) { return v.marked(tableSettling, limit) }

// IsShort returns whether a root is marked as having fewer copies than it should have. Changes of
// the root update the mark; a change of the number of members does not.
func (v View) IsShort(k RootKey) (bool, error) { return has(v.r, shortKey(k)) }

// Surplus calls fn for each root that is marked as having more copies than it should have, in key
// order from the root from on, until fn returns false.
func (v View) Surplus(from RootKey, fn func(Root) (more bool, err error)) error {
	return v.markedFrom(tableSurplus, from, fn)
}

// Lacking calls fn for each pinned root that is marked as having fewer copies than it should
// have, in key order from the root from on, until fn returns false.
func (v View) Lacking(from RootKey, fn func(Root) (more bool, err error)) error {
	return v.markedFrom(tableShort, from, fn)
}

func (v View) markedFrom(t byte, from RootKey, fn func(Root) (more bool, err error)) error {
	prefix := table(t)
	lower := prefix
	if from != "" {
		lower = part(prefix, from)
	}
	return v.r.Scan(lower, prefix.end(), false, func(k, _ []byte) (bool, error) {
		at, _, err := readPart[RootKey](k[len(prefix):])
		if err != nil {
			return false, err
		}
		root, err := v.Root(at)
		if err != nil {
			return false, fmt.Errorf("state: root %s is marked for its copies: %w", at, err)
		}
		return fn(root)
	})
}

// SurplusSince returns the index of the entry that gave a root more copies than it should have,
// or 0 if there is none.
func (v View) SurplusSince(k RootKey) (uint64, error) { return counter(v.r, surplusKey(k)) }

// Short returns up to limit pinned roots that are marked as having fewer copies than they should
// have.
func (v View) Short(limit int) ([]RootKey, error) { return v.marked(tableShort, limit) }

func (v View) marked(t byte, limit int) ([]RootKey, error) {
	var roots []RootKey
	prefix := table(t)
	err := v.r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		if len(roots) == limit {
			return false, nil
		}
		root, _, err := readPart[RootKey](k[len(prefix):])
		roots = append(roots, root)
		return err == nil, err
	})
	return roots, err
}

// Totals returns the number of pins of all accounts by status, and short, the number of pinned
// roots that are marked as having fewer copies than they should have. Whether the holders are up
// does not matter.
func (v View) Totals() (pins map[Status]uint64, short uint64, err error) {
	pins = make(map[Status]uint64, 4)
	for _, s := range Statuses() {
		if pins[s], err = counter(v.r, totalKey(s)); err != nil {
			return nil, 0, err
		}
	}
	short, err = counter(v.r, shortCount)
	return pins, short, err
}

// CopiesOn returns how many roots a node holds, and how many are allocated to it.
func (v View) CopiesOn(n NodeID) (held, wanted uint64, err error) {
	if held, err = counter(v.r, heldKey(n)); err != nil {
		return 0, 0, err
	}
	wanted, err = counter(v.r, wantedCount(n))
	return held, wanted, err
}
