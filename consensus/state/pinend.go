package state

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// PinsEndLevel is the lowest feature level with pins that have an end or a size limit.
const PinsEndLevel FeatureLevel = 10

func endsOf() key { return table(tablePinEnd) }

// endKey returns the key of a pin in the index of ends, which sorts by end, account and id.
func endKey(p *Pin) key { return part(part(endsOf().u64(uint64(p.Until)), p.Account), p.ID) }

// readEnd decodes a key that endKey has returned.
func readEnd(k []byte) (p Pin, err error) {
	rest := k[len(endsOf()):]
	if len(rest) < 8 {
		return p, fmt.Errorf("state: short key %x", k)
	}
	p.Until = Millis(binary.BigEndian.Uint64(rest)) //nolint:gosec // endKey wrote a time
	if p.Account, rest, err = readPart[AccountID](rest[8:]); err != nil {
		return p, err
	}
	p.ID, _, err = readPart[RequestID](rest)
	return p, err
}

func boundedOf(k RootKey) key { return part(table(tableBounded), k) }

func boundedKey(p *Pin, k RootKey) key { return part(part(boundedOf(k), p.Account), p.ID) }

// ends returns whether a pin has an end or a size limit, which need PinsEndLevel.
func (v *Pin) ends() bool { return v.Until != 0 || v.MaxBytes != 0 }

// checkEnd returns an error if the end of a pin is not a valid time, or if the pin has an end or
// a size limit and the cluster is below PinsEndLevel.
func (v *Pin) checkEnd(r Reader) error {
	if !v.ends() {
		return nil
	}
	if v.Until < 0 || v.Until > maxCreated {
		return Errorf(CodeInvalid, "the end of a pin is no time before the year 10000")
	}
	level, err := levelOf(r)
	if err == nil && level < PinsEndLevel {
		err = Errorf(CodeUnavailable, "pins with an end need feature level %d, and the cluster has %d: not all members are upgraded", PinsEndLevel, level)
	}
	return err
}

// EndPins removes pins whose end is not after Now, like DeletePin: at most MaxSettle in one
// command, those with the earliest ends first. The command needs feature level PinsEndLevel.
type EndPins struct {
	Now Millis // time that most members' clocks have reached
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *EndPins) Code(c *codec.Coder) { codec.Int(c, &v.Now) }

func (v *EndPins) apply(tx Tx, e *entry) (Result, error) {
	if err := needsLevel(tx, PinsEndLevel, "pins with an end need feature level %d"); err != nil {
		return Result{}, err
	}
	ended, err := endedBy(tx, v.Now, e.settle)
	if err != nil {
		return Result{}, err
	}
	e.settle -= len(ended)
	var accounts []AccountID
	for _, at := range ended {
		p, err := findPin(tx, at.Account, at.ID)
		if err != nil {
			return Result{}, err
		}
		if p == nil {
			return Result{}, fmt.Errorf("state: pin %s has an end and does not exist", at.ID)
		}
		if err := dropPin(tx, p, nil, e); err != nil {
			return Result{}, err
		}
		if !slices.Contains(accounts, p.Account) {
			accounts = append(accounts, p.Account)
			e.fx.Accounts = append(e.fx.Accounts, AccountChange{p.Account, e.index})
		}
	}
	return Result{}, nil
}

// endedBy returns the account, id and end of up to limit pins whose end is not after now.
func endedBy(r Reader, now Millis, limit int) (all []Pin, err error) {
	if limit <= 0 || now <= 0 {
		return nil, nil
	}
	err = r.Scan(endsOf(), endsOf().u64(uint64(now)+1), false, func(k, _ []byte) (bool, error) {
		p, err := readEnd(k)
		all = append(all, p)
		return err == nil && len(all) < limit, err
	})
	return all, err
}

// PinsDue returns whether an EndPins with this time would remove a pin.
func (v View) PinsDue(now Millis) (bool, error) {
	due, err := endedBy(v.r, now, 1)
	return len(due) > 0, err
}

// boundedPins returns the attached pins of a root that have a size limit, as many as the entry may
// change.
func boundedPins(tx Tx, root *Root, e *entry) ([]*Pin, error) {
	if p, err := e.firsts.only(tx, root); err != nil || p != nil && p.MaxBytes == 0 {
		return nil, err
	}
	prefix := boundedOf(root.Key)
	pins, _, err := attachedPins(tx, prefix, prefix, e.settle)
	return pins, err
}

// exceeds returns whether content of the given size is larger than the pin permits.
func (v *Pin) exceeds(bytes uint64) bool { return v.MaxBytes > 0 && bytes > v.MaxBytes }

// tooLarge returns the failure reason of a pin whose content is larger than it permits.
func (v *Pin) tooLarge(bytes uint64) string {
	return fmt.Sprintf("the content, %d bytes or more, is larger than the %d bytes that the request permits", bytes, v.MaxBytes)
}

// tooLargeNow returns the failure reason of a new pin if the content of root k is already known
// to be larger than the pin permits, and otherwise "".
func (v *Pin) tooLargeNow(r Reader, k RootKey) (string, error) {
	if v.MaxBytes == 0 {
		return "", nil
	}
	root, err := get[Root](r, rootKey(k))
	if err != nil || root == nil || root.Status == Failed {
		return "", err
	}
	arrived, err := counter(r, arrivedKey(k))
	if err != nil {
		return "", err
	}
	if known := max(root.Size, arrived); v.exceeds(known) {
		return v.tooLarge(known), nil
	}
	return "", nil
}

// letGoTooLarge is called when the size of a root has become known. It makes those pins fail
// whose size limit is smaller. It checks as many pins with a size limit as the entry may change;
// settle checks the others. gone is true if nothing references the root any more and it was
// removed. Otherwise the caller stores the root.
func letGoTooLarge(tx Tx, root *Root, e *entry) (gone bool, err error) {
	if root.Refs == 0 {
		return false, nil
	}
	pins, err := boundedPins(tx, root, e)
	if err != nil {
		return false, err
	}
	e.settle -= len(pins)
	for _, p := range pins {
		if !p.exceeds(root.Size) {
			continue
		}
		if err := letGo(tx, p, root, p.tooLarge(root.Size)); err != nil {
			return false, err
		}
	}
	if root.needed() {
		return false, nil
	}
	return true, keepOrRemove(tx, root, e)
}
