package state

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// ended marks a completed or aborted upload whose parts did not fit into its entry. Clients do
// not see these parts. The parts keep their content until ClearUploads frees them, which
// happens after the new object holds the content. Until then the account is charged for the
// parts.
type ended struct {
	After uint16 // the parts up to this number are freed
}

// Code encodes or decodes the record.
func (v *ended) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.After)
}

func (v *Bucket) endedKey(id UploadID) key { return part(v.in(tableEnded), id) }

// UploadRef names an upload that has ended.
type UploadRef struct {
	Account AccountID
	Born    Incarnation
	ID      UploadID
}

// readUpload reads an account, an incarnation and an upload, which end a key.
func readUpload(k []byte) (u UploadRef, err error) {
	var rest []byte
	if u.Account, rest, err = readPart[AccountID](k); err != nil {
		return u, err
	}
	if len(rest) < 8 {
		return u, fmt.Errorf("state: short key %x", k)
	}
	u.Born = Incarnation(binary.BigEndian.Uint64(rest))
	u.ID, _, err = readPart[UploadID](rest[8:])
	return u, err
}

// leaveParts marks an upload as ended.
func (v *Bucket) leaveParts(tx Tx, id UploadID, e *entry) error {
	e.fx.Settling = true
	return put(tx, v.endedKey(id), &ended{})
}

// freeing returns whether an account has parts of ended uploads. When they are freed, its
// charge may fall.
func freeing(r Reader, a AccountID) (bool, error) {
	left, err := endedIn(r, part(table(tableEnded), a), 1)
	return len(left) > 0, err
}

// noRoom returns the error for an account without enough quota for what; while parts are
// being freed, the error asks the client to try again.
func noRoom(r Reader, a AccountID, q *Quota, what string) error {
	soon, err := freeing(r, a)
	if err != nil {
		return err
	}
	if soon {
		return Errorf(CodeLimited, "the account has no room until the parts of an upload that has ended are freed, try again")
	}
	return overQuota(q, what)
}

// freed returns how many parts the entry may free. Freeing a part costs about as much as a put.
func (e *entry) freed() int { return min(e.settle, MaxFreed) }

// ClearUploads frees the parts that ended uploads have left, at most MaxFreed parts in one
// command.
type ClearUploads struct{ Items []UploadRef }

// Code implements Command.
func (v *ClearUploads) Code(c *codec.Coder) {
	codec.List(c, &v.Items, MaxReports, func(c *codec.Coder, u *UploadRef) {
		codec.String(c, &u.Account, MaxIDLen)
		codec.Uint(c, &u.Born)
		codec.String(c, &u.ID, MaxIDLen)
	})
}

func (v *ClearUploads) apply(tx Tx, e *entry) (Result, error) {
	e.settle = e.freed()
	return Result{}, gathered(tx, func(tx Tx) error { return clearEnded(tx, v.Items, e) })
}

// clearEnded frees the parts of uploads that have ended, as far as the entry has room.
func clearEnded(tx Tx, all []UploadRef, e *entry) error {
	for _, u := range all {
		if e.settle == 0 {
			e.fx.Settling = true
			return nil
		}
		b := &Bucket{Account: u.Account, Born: u.Born}
		m, err := get[ended](tx, b.endedKey(u.ID))
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		if err := b.clearEnded(tx, u.ID, m, e); err != nil {
			return err
		}
	}
	return nil
}

// clearEnded frees parts of one upload.
func (v *Bucket) clearEnded(tx Tx, id UploadID, m *ended, e *entry) error {
	parts, more, err := partsOf(tx, v, id, m.After, e.settle)
	if err != nil {
		return err
	}
	if err := v.freeParts(tx, id, parts, e); err != nil {
		return err
	}
	e.settle -= len(parts)
	if more {
		e.fx.Settling = true
		m.After = parts[len(parts)-1].Number
		return put(tx, v.endedKey(id), m)
	}
	e.settle -= min(e.settle, 1)
	return tx.Delete(v.endedKey(id))
}

// endedIn returns up to limit ended uploads with parts whose keys begin with a prefix.
func endedIn(r Reader, prefix key, limit int) (all []UploadRef, err error) {
	if limit <= 0 {
		return nil, nil
	}
	err = r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		u, err := readUpload(k[1:])
		all = append(all, u)
		return err == nil && len(all) < limit, err
	})
	return all, err
}

// Ended returns up to limit ended uploads that have parts left.
func (v View) Ended(limit int) ([]UploadRef, error) { return endedIn(v.r, table(tableEnded), limit) }
