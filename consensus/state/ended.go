package state

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// ended marks a completed or aborted upload that still has parts, because they did not fit into
// its log entry. Clients do not see these parts. They reference their content until ClearUploads
// removes them; a new object that uses the content references it by then. Until then the account
// is charged for the parts.
type ended struct {
	After uint16 // the parts up to this number are removed
}

// Code encodes the record, or decodes it if c is a decoder.
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

// readUpload decodes the end of a key, which consists of an account, the Incarnation of a bucket
// and an upload id.
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

// leaveParts marks an upload as ended, so that its parts are removed later.
func (v *Bucket) leaveParts(tx Tx, id UploadID, e *entry) error {
	e.fx.Settling = true
	return put(tx, v.endedKey(id), &ended{})
}

// freeing returns whether an account has parts of ended uploads. Their removal may reduce its
// stored bytes.
func freeing(r Reader, a AccountID) (bool, error) {
	left, err := endedIn(r, part(table(tableEnded), a), 1)
	return len(left) > 0, err
}

// noRoom returns the error for an account whose quota does not suffice for what. While parts of
// ended uploads are being removed, the error is ErrLimited, which asks the client to try again.
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

// freed returns how many parts the entry may remove. The removal of a part costs about as much as
// a put.
func (e *entry) freed() int { return min(e.settle, MaxFreed) }

// ClearUploads removes the remaining parts of ended uploads, at most MaxFreed parts in one
// command.
type ClearUploads struct{ Items []UploadRef }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
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

// clearEnded removes the parts of ended uploads, up to the entry's limit of changed records. If
// parts remain, it sets Effects.Settling.
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

// clearEnded removes parts of one ended upload, up to the entry's limit, and stores how far it
// got.
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

// endedIn returns up to limit ended uploads whose records have keys with the given prefix.
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

// Ended returns up to limit ended uploads that still have parts.
func (v View) Ended(limit int) ([]UploadRef, error) { return endedIn(v.r, table(tableEnded), limit) }
