package state

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Limits of the remembered operations, in addition to MaxOps. The state remembers the results of
// recent operations, so that a repeated command takes effect once.
const (
	// MaxOpBytes is the largest size of all remembered results in bytes, because a result can
	// contain a whole pin.
	MaxOpBytes = 64 << 20
	// maxForget is the largest number of operations that one command forgets, so that the cost of
	// a command is bounded even after many large results.
	maxForget = 64
)

// operations is the record about the remembered operations. It is stored as 8 bytes at feature
// level 0 (next), and as three numbers of 8 bytes from level 1 on.
type operations struct {
	next    uint64 // sequence number of the next operation
	first   uint64 // sequence number of the oldest operation
	bytes   uint64 // bytes of all results
	bounded bool   // bytes is known, and limited to MaxOpBytes
}

var opNext = metaKey("ops")

func readOperations(r Reader) (o operations, err error) {
	b, ok, err := r.Get(opNext)
	switch {
	case err != nil || !ok:
		return o, err
	case len(b) == 8:
		o.next = binary.BigEndian.Uint64(b)
		o.first = max(o.next, MaxOps) - MaxOps
	case len(b) == 24:
		o.next, o.first, o.bytes = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
		o.bounded = true
	default:
		return o, fmt.Errorf("state: bookkeeping of operations of %d bytes", len(b))
	}
	return o, nil
}

func (o operations) write(tx Tx) error {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 24), o.next)
	if o.bounded {
		b = binary.BigEndian.AppendUint64(b, o.first)
		b = binary.BigEndian.AppendUint64(b, o.bytes)
	}
	return tx.Set(opNext, b)
}

// remember stores the outcome of an operation, and forgets the oldest ones beyond MaxOps
// operations or MaxOpBytes of results. It stores only the code of an error, because the text may
// differ between releases and this record must be equal on all members during an upgrade.
func (a *Applier) remember(tx Tx, op OpID, r Result, e *Error) error {
	if e != nil {
		e = &Error{Code: e.Code}
	}
	b, err := encodeOutcome(r, e)
	if err != nil {
		return err
	}
	o, err := readOperations(tx)
	if err != nil {
		return err
	}
	if err := tx.Set(opKey(op), b); err != nil {
		return err
	}
	if err := tx.Set(opOrderKey(o.next), op[:]); err != nil {
		return err
	}
	a.ops.note(o.next, op, len(b))
	o.next++
	o.bytes += uint64(len(b))
	if err := o.forget(tx, &a.ops); err != nil {
		return err
	}
	return o.write(tx)
}

// brief returns the part of a result that is stored. If the result contains the pin of the
// command, which can have 84 KiB, it stores only the fields that Apply has set. Otherwise an
// account with large pins could displace the operations of others before they are retried. Below
// feature level 4, the whole result is stored.
func brief(r Reader, result Result, cmd Command) (Result, error) {
	pin, asked := result.Pin, pinIn(cmd)
	if pin == nil || asked == nil || pin.Account != asked.Account || pin.CID != asked.CID || pin.Given != asked.Given ||
		pin.Name != asked.Name || !slices.Equal(pin.Origins, asked.Origins) || !maps.Equal(pin.Meta, asked.Meta) ||
		pin.Until != asked.Until || pin.MaxBytes != asked.MaxBytes {
		return result, nil
	}
	level, err := levelOf(r)
	if err != nil || level < 4 {
		return result, err
	}
	return Result{Pin: &Pin{ID: pin.ID, Created: pin.Created}}, nil
}

// recalled restores the full result from a stored brief one and the repeated command.
func recalled(result Result, cmd Command) Result {
	asked := pinIn(cmd)
	if result.Pin == nil || result.Pin.CID != "" || asked == nil {
		return result
	}
	pin := *asked
	pin.ID, pin.Created = result.Pin.ID, result.Pin.Created
	return accepted(&pin)
}

// pinIn returns the pin in a command that creates one, or nil.
func pinIn(cmd Command) *Pin {
	switch v := cmd.(type) {
	case *CreatePin:
		return &v.Pin
	case *ReplacePin:
		return &v.Pin
	case *ByKey:
		return pinIn(v.Change)
	case *BySession:
		return pinIn(v.Change)
	case *CreateOnce:
		return pinIn(v.Change)
	}
	return nil
}

// forget removes the oldest operations beyond the limits, at most maxForget. It never removes the
// newest one.
func (o *operations) forget(tx Tx, recent *recentOps) error {
	for range maxForget {
		tooMany := o.next-o.first > MaxOps || o.bounded && o.bytes > MaxOpBytes
		if !tooMany || o.first+1 == o.next {
			return nil
		}
		op, known := recent.at(o.first)
		if !known {
			var err error
			if op, err = o.oldest(tx); err != nil {
				return err
			}
		}
		if o.bounded {
			o.bytes -= uint64(op.size)
		}
		if err := tx.Delete(opOrderKey(o.first)); err != nil {
			return err
		}
		if err := tx.Delete(opKey(op.id)); err != nil {
			return err
		}
		o.first++
	}
	return nil
}

// oldest returns the oldest operation, with the size of its result if bounded is set.
func (o *operations) oldest(tx Tx) (op recentOp, err error) {
	id, ok, err := tx.Get(opOrderKey(o.first))
	if err != nil || !ok || len(id) != len(OpID{}) {
		return op, fmt.Errorf("state: operation %d is not on record: %w", o.first, err)
	}
	op.id = OpID(id)
	if o.bounded {
		b, ok, err := tx.Get(opKey(op.id))
		if err != nil || !ok || uint64(len(b)) > o.bytes {
			return op, fmt.Errorf("state: result of operation %d of %d bytes in %d: %w", o.first, len(b), o.bytes, err)
		}
		op.size = uint32(len(b)) //nolint:gosec // at most MaxCommand
	}
	return op, nil
}

// boundOps counts the bytes of the remembered results when the cluster reaches feature level 1.
// From then on they are limited.
func boundOps(tx Tx) error {
	o, err := readOperations(tx)
	if err != nil || o.bounded {
		return err
	}
	prefix := table(tableOp)
	err = tx.Scan(prefix, prefix.end(), false, func(_, value []byte) (bool, error) {
		o.bytes += uint64(len(value))
		return true, nil
	})
	if err != nil {
		return err
	}
	o.bounded = true
	return o.write(tx)
}
