package state

import (
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// tableGuard: root, old root -> guarded. The old root's blocks stay until root is settled.
const tableGuard = 'G'

func guardsOf(k RootKey) key { return part(table(tableGuard), k) }

func guardKey(old, guard RootKey) key { return part(guardsOf(guard), old) }

// guarded is what a guard keeps for an account that is not charged for it any more.
type guarded struct {
	Account AccountID
	Bytes   uint64 // of the blocks, as the account's quota counts them
}

// Code implements the record's form.
func (v *guarded) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Account, MaxIDLen)
	codec.Uint(c, &v.Bytes)
}

// guardAt reads a guard that there is.
func guardAt(r Reader, old, guard RootKey) (*guarded, error) {
	kept, err := get[guarded](r, guardKey(old, guard))
	if err == nil && kept == nil {
		err = fmt.Errorf("state: root %s does not guard %s", guard, old)
	}
	return kept, err
}

// keepGuarded makes a guard of an old root for an account, unless that has others whose
// content comes to more than its allowance with this: what never comes could replace one
// content after the other, and all would stay. The caller writes the old root.
func keepGuarded(tx Tx, a AccountID, old *Root, guard RootKey) (bool, error) {
	kept := &guarded{Account: a}
	q, err := get[Quota](tx, quotaKey(a))
	if err != nil {
		return false, err
	}
	if q != nil {
		if sum := addBounded(q.Guarded, old.Size); q.Guarded > 0 && q.exceeds(sum) {
			return false, nil
		}
		kept.Bytes = old.Size
		q.Guarded = addBounded(q.Guarded, kept.Bytes)
		if err := put(tx, quotaKey(a), q); err != nil {
			return false, err
		}
	}
	old.Guards++
	return true, put(tx, guardKey(old.Key, guard), kept)
}

// end takes a guard from what its account has, which may be closed.
func (v *guarded) end(tx Tx) error {
	q, err := get[Quota](tx, quotaKey(v.Account))
	if err != nil || q == nil || v.Bytes == 0 {
		return err
	}
	if q.Guarded < v.Bytes {
		return fmt.Errorf("state: %d bytes are guarded for %s, and %d of one root", q.Guarded, v.Account, v.Bytes)
	}
	q.Guarded -= v.Bytes
	return put(tx, quotaKey(v.Account), q)
}

// guardOld keeps the blocks of an old root until guard, which replaces it, is
// settled. A root that was never whole has nothing to keep but what it guards
// itself, so chains of replacements do not grow; one that was, and is late, has both.
//
// The content stays uncharged, for the account may need the room for what replaces it: as
// much as keepGuarded says.
func guardOld(tx Tx, a AccountID, old *Root, guard RootKey) error {
	g, err := get[Root](tx, rootKey(guard))
	if err != nil || g == nil || g.settled() {
		return err
	}
	olds, err := guardedBy(tx, guard)
	if err != nil {
		return err
	}
	if old.Status == Pinned && !slices.Contains(olds, old.Key) && len(olds) < MaxGuards {
		if keeps, err := keepGuarded(tx, a, old, guard); err != nil {
			return err
		} else if keeps {
			olds = append(olds, old.Key)
		}
	}
	if old.settled() {
		return nil
	}
	inherited, err := guardedBy(tx, old.Key)
	if err != nil {
		return err
	}
	for _, k := range inherited {
		again := k == guard || slices.Contains(olds, k) // roots that keep each other stay for ever
		if !again && len(olds) >= MaxGuards {
			continue // released with old
		}
		if again { // something else keeps it
			root, err := unguard(tx, k, old.Key)
			if err != nil {
				return err
			}
			if err := put(tx, rootKey(k), root); err != nil {
				return err
			}
			continue
		}
		kept, err := guardAt(tx, k, old.Key)
		if err != nil {
			return err
		}
		if err := tx.Delete(guardKey(k, old.Key)); err != nil {
			return err
		}
		olds = append(olds, k)
		if err := put(tx, guardKey(k, guard), kept); err != nil {
			return err
		}
	}
	return nil
}

// unguard takes a guard from root k. The caller writes the root.
func unguard(tx Tx, k, guard RootKey) (*Root, error) {
	kept, err := guardAt(tx, k, guard)
	if err != nil {
		return nil, err
	}
	if err := kept.end(tx); err != nil {
		return nil, err
	}
	if err := tx.Delete(guardKey(k, guard)); err != nil {
		return nil, err
	}
	root, err := get[Root](tx, rootKey(k))
	if err != nil {
		return nil, err
	}
	if root == nil || root.Guards == 0 {
		return nil, fmt.Errorf("state: root %s does not know its guard %s", k, guard)
	}
	root.Guards--
	return root, nil
}

// guardedBy returns the roots that k keeps until it is settled.
func guardedBy(r Reader, k RootKey) ([]RootKey, error) {
	prefix := guardsOf(k)
	var olds []RootKey
	err := r.Scan(prefix, prefix.end(), false, func(entry, _ []byte) (bool, error) {
		old, _, err := readPart[RootKey](entry[len(prefix):])
		olds = append(olds, old)
		return err == nil, err
	})
	return olds, err
}

// releaseGuards lets go of the roots that k, now settled or gone, replaced.
func releaseGuards(tx Tx, k RootKey, e *entry) error {
	olds, err := guardedBy(tx, k)
	if err != nil {
		return err
	}
	for _, o := range olds {
		old, err := unguard(tx, o, k)
		if err != nil {
			return err
		}
		if err := keepOrRemove(tx, old, e); err != nil {
			return err
		}
	}
	return nil
}
