package state

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// PaidObject is the record of who owns a paid object and until when. Its content is the object
// with the key Object in the bucket PaidBucket of PaidAccount. The record remains for PaidTrace
// after the end of the paid time, so that a read can distinguish an expired object from one that
// never existed.
type PaidObject struct {
	Object  string // bucket/key
	Payer   string // address
	Until   Millis
	Version VersionID // version of the object that was paid for
	Ended   bool      // the paid time is over, and the content was removed
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *PaidObject) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Object, MaxKeyBytes)
	codec.String(c, &v.Payer, maxNetwork)
	codec.Int(c, &v.Until)
	codec.String(c, &v.Version, MaxIDLen)
	codec.Bool(c, &v.Ended)
}

// Lives returns whether the object is still paid for at the time now.
func (v *PaidObject) Lives(now Millis) bool { return !v.Ended && now < v.Until }

func ownerKey(object string) key { return part(paidKey(paidOwner), object) }

func (v *PaidObject) endKey() key {
	of := byte(paidEnds)
	if v.Ended {
		of = paidEnded
	}
	return append(paidKey(of).u64(uint64(v.Until)), v.Object...)
}

// write stores the record and its index row, and removes those of old, which may be nil.
func (v *PaidObject) write(tx Tx, old *PaidObject) error {
	if old != nil {
		if err := tx.Delete(old.endKey()); err != nil {
			return err
		}
	}
	if err := tx.Set(v.endKey(), nil); err != nil {
		return err
	}
	return put(tx, ownerKey(v.Object), v)
}

// erase removes the record and its index row.
func (v *PaidObject) erase(tx Tx) error {
	if err := tx.Delete(v.endKey()); err != nil {
		return err
	}
	return tx.Delete(ownerKey(v.Object))
}

// paidContent returns the object with the content of a paid object, or nil if it does not exist
// or was replaced.
func paidContent(r Reader, owner *PaidObject) (*Object, error) {
	b, err := findBucket(r, PaidAccount, PaidBucket)
	if err != nil || b == nil {
		return nil, err
	}
	o, err := findObject(r, b, owner.Object)
	if err != nil || o == nil || o.ID != owner.Version {
		return nil, err
	}
	return o, nil
}

// dropContent removes the content of a paid object, if the current version is still the one that
// was paid for.
func (v *PaidObject) dropContent(tx Tx, e *entry) error {
	o, err := paidContent(tx, v)
	if err != nil || o == nil {
		return err
	}
	b, err := findBucket(tx, PaidAccount, PaidBucket)
	if err != nil {
		return err
	}
	return b.remove(tx, o, e)
}

// EndPaidObjects removes the content of paid objects whose time is over, and their records
// PaidTrace later, at most MaxSettle in total. The command needs feature level PaymentsLevel.
type EndPaidObjects struct{ Now Millis } // time that most members' clocks have reached

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *EndPaidObjects) Code(c *codec.Coder) { codec.Int(c, &v.Now) }

func (v *EndPaidObjects) apply(tx Tx, e *entry) (Result, error) {
	if err := needsPayments(tx); err != nil {
		return Result{}, err
	}
	over, err := paidBy(tx, paidEnds, v.Now, MaxSettle)
	if err != nil {
		return Result{}, err
	}
	old, err := paidBy(tx, paidEnded, v.Now-PaidTrace, MaxSettle-len(over))
	if err != nil {
		return Result{}, err
	}
	return Result{}, gathered(tx, func(tx Tx) error {
		for _, owner := range over {
			if err := owner.dropContent(tx, e); err != nil {
				return err
			}
			ended := *owner
			ended.Ended = true
			if err := ended.write(tx, owner); err != nil {
				return err
			}
		}
		for _, owner := range old {
			if err := owner.erase(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// paidBy returns up to limit paid objects whose end is not after now, in the order of their ends.
// of is the index to read: paidEnds for objects that are stored, or paidEnded for those whose
// time is over.
func paidBy(r Reader, of byte, now Millis, limit int) (all []*PaidObject, err error) {
	if now <= 0 || limit <= 0 {
		return nil, nil
	}
	prefix := paidKey(of)
	var objects []string
	err = r.Scan(prefix, paidKey(of).u64(uint64(now)+1), false, func(k, _ []byte) (bool, error) {
		if len(k) < len(prefix)+8 {
			return false, fmt.Errorf("state: short key %x", k)
		}
		objects = append(objects, string(k[len(prefix)+8:]))
		return len(objects) < limit, nil
	})
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		owner, err := get[PaidObject](r, ownerKey(object))
		if err != nil {
			return nil, err
		}
		if owner == nil {
			return nil, fmt.Errorf("state: the paid object %q has an end and no owner", object)
		}
		all = append(all, owner)
	}
	return all, nil
}

// DeletePaidObject records a settled payment for the deletion of a paid object by its owner.
// Apply removes the content and the record of the object, and the payment becomes paid. If the
// object no longer belongs to the payer, the payment becomes refundable instead, and its record
// has the reason. A repeat changes nothing. The command needs feature level PaymentsLevel.
//
// Errors: ErrInvalid; ErrExists if another attempt has reserved the payment.
type DeletePaidObject struct{ PaymentOutcome }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *DeletePaidObject) Code(c *codec.Coder) { v.code(c) }

func (v *DeletePaidObject) apply(tx Tx, e *entry) (Result, error) {
	if v.Payment.Kind != PaysDelete {
		return Result{}, Errorf(CodeInvalid, "the payment is not for a deletion")
	}
	row, err := v.find(tx)
	if err != nil || row.State == PaymentPaid {
		return Result{}, err
	}
	if row.State != PaymentReserved {
		return Result{}, v.refund(tx, row, "the payment was settled and is not reserved any more")
	}
	owner, err := get[PaidObject](tx, ownerKey(row.Object))
	if err != nil {
		return Result{}, err
	}
	if owner == nil || owner.Ended || owner.Payer != row.ID.Payer {
		return Result{}, v.refund(tx, row, "the object was gone before the payment was settled")
	}
	if err := owner.dropContent(tx, e); err != nil {
		return Result{}, err
	}
	if err := owner.erase(tx); err != nil {
		return Result{}, err
	}
	return Result{}, v.end(tx, row, PaymentPaid, "")
}
