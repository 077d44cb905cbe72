package state

import (
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// tableRetained is the table of replaced roots whose blocks are not deleted yet: replacement
// root, replaced root -> retained. The blocks of the replaced root remain until the replacement
// is replicated or has failed, so that a client who replaces a pin never loses both.
const tableRetained = 'G'

func retainedPrefix(k RootKey) key { return part(table(tableRetained), k) }

func retainedKey(old, replacement RootKey) key { return part(retainedPrefix(replacement), old) }

// retained is the record of a replaced root whose blocks remain for an account. They are not
// charged to the account.
type retained struct {
	Account AccountID
	Bytes   uint64 // bytes of its blocks, as counted in Quota.Retained
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *retained) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Account, MaxIDLen)
	codec.Uint(c, &v.Bytes)
}

// retainedAt returns the record of the replaced root old and its replacement, or an error if it
// is missing.
func retainedAt(r Reader, old, replacement RootKey) (*retained, error) {
	kept, err := get[retained](r, retainedKey(old, replacement))
	if err == nil && kept == nil {
		err = fmt.Errorf("state: root %s does not retain %s", replacement, old)
	}
	return kept, err
}

// retain ensures that the blocks of a replaced root remain until replacement is replicated or has
// failed. It returns false if the retained bytes of the account would exceed its quota, unless
// this is the first retained root, so that replacements that never complete cannot accumulate
// content. The caller must store old.
func retain(tx Tx, a AccountID, old *Root, replacement RootKey) (bool, error) {
	kept := &retained{Account: a}
	q, err := get[Quota](tx, quotaKey(a))
	if err != nil {
		return false, err
	}
	if q != nil {
		if sum := addBounded(q.Retained, old.Size); q.Retained > 0 && q.exceeds(sum) {
			return false, nil
		}
		kept.Bytes = old.Size
		q.Retained = addBounded(q.Retained, kept.Bytes)
		if err := put(tx, quotaKey(a), q); err != nil {
			return false, err
		}
	}
	old.Retainers++
	return true, put(tx, retainedKey(old.Key, replacement), kept)
}

// end subtracts the bytes of the record from Quota.Retained of its account, if the account still
// exists.
func (v *retained) end(tx Tx) error {
	q, err := get[Quota](tx, quotaKey(v.Account))
	if err != nil || q == nil || v.Bytes == 0 {
		return err
	}
	if q.Retained < v.Bytes {
		return fmt.Errorf("state: %d bytes are retained for %s, and %d of one root", q.Retained, v.Account, v.Bytes)
	}
	q.Retained -= v.Bytes
	return put(tx, quotaKey(v.Account), q)
}

// retainReplaced ensures that the blocks of a replaced root remain until its replacement is
// replicated or has failed. If the replaced root is itself neither, the roots that were retained
// for it are now retained for the replacement, so that chains of replacements do not grow.
//
// The account is not charged for retained content, because it may need its quota for the
// replacement. retain and MaxRetained limit its amount.
func retainReplaced(tx Tx, a AccountID, old *Root, replacement RootKey) error {
	g, err := get[Root](tx, rootKey(replacement))
	if err != nil || g == nil || g.settled() {
		return err
	}
	olds, err := retainedBy(tx, replacement)
	if err != nil {
		return err
	}
	if old.Status == Pinned && !slices.Contains(olds, old.Key) && len(olds) < MaxRetained {
		if keeps, err := retain(tx, a, old, replacement); err != nil {
			return err
		} else if keeps {
			olds = append(olds, old.Key)
		}
	}
	if old.settled() {
		return nil
	}
	inherited, err := retainedBy(tx, old.Key)
	if err != nil {
		return err
	}
	for _, k := range inherited {
		again := k == replacement || slices.Contains(olds, k) // roots that keep each other stay for ever
		if !again && len(olds) >= MaxRetained {
			continue // released with old
		}
		if again { // something else keeps it
			root, err := unretain(tx, k, old.Key)
			if err != nil {
				return err
			}
			if err := put(tx, rootKey(k), root); err != nil {
				return err
			}
			continue
		}
		kept, err := retainedAt(tx, k, old.Key)
		if err != nil {
			return err
		}
		if err := tx.Delete(retainedKey(k, old.Key)); err != nil {
			return err
		}
		olds = append(olds, k)
		if err := put(tx, retainedKey(k, replacement), kept); err != nil {
			return err
		}
	}
	return nil
}

// unretain deletes the record of the replaced root k and its replacement. It returns root k with
// Retainers decreased by one. The caller must store that root.
func unretain(tx Tx, k, replacement RootKey) (*Root, error) {
	kept, err := retainedAt(tx, k, replacement)
	if err != nil {
		return nil, err
	}
	if err := kept.end(tx); err != nil {
		return nil, err
	}
	if err := tx.Delete(retainedKey(k, replacement)); err != nil {
		return nil, err
	}
	root, err := get[Root](tx, rootKey(k))
	if err != nil {
		return nil, err
	}
	if root == nil || root.Retainers == 0 {
		return nil, fmt.Errorf("state: root %s does not know that %s retains it", k, replacement)
	}
	root.Retainers--
	return root, nil
}

// retainedBy returns the replaced roots whose blocks remain until root k is replicated or has
// failed.
func retainedBy(r Reader, k RootKey) ([]RootKey, error) {
	prefix := retainedPrefix(k)
	var olds []RootKey
	err := r.Scan(prefix, prefix.end(), false, func(entry, _ []byte) (bool, error) {
		old, _, err := readPart[RootKey](entry[len(prefix):])
		olds = append(olds, old)
		return err == nil, err
	})
	return olds, err
}

// releaseRetained ends the retention of the roots that k has replaced, because k is replicated,
// has failed or was removed. It removes those that nothing else references.
func releaseRetained(tx Tx, k RootKey, e *entry) error {
	olds, err := retainedBy(tx, k)
	if err != nil {
		return err
	}
	for _, o := range olds {
		old, err := unretain(tx, o, k)
		if err != nil {
			return err
		}
		if err := keepOrRemove(tx, old, e); err != nil {
			return err
		}
	}
	return nil
}
