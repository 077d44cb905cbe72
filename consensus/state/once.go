package state

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of the remembered requests with an idempotency key.
const (
	// MaxOnce is the largest number of remembered requests of an account. Beyond it, the oldest
	// are forgotten.
	MaxOnce = 10_000
	// OnceFor is how long a request is remembered, by times on which most members agree.
	OnceFor Millis = 24 * 60 * 60 * 1000
	// maxOnceForget is the largest number of old requests that one command forgets.
	maxOnceForget = 8
)

// CreateOnce creates a pin at most once for an idempotency key, even if the request is repeated
// through other nodes. A repeat with the same key and pin returns the first answer; a request
// with the same key and another pin returns ErrExists. Rejected requests are not remembered, so
// the client can try again.
type CreateOnce struct {
	Key    Hash    // hash of the client's idempotency key
	Change Command // *CreatePin, or a *ByKey or *BySession with one
	// By is a time that most members' clocks have passed: Apply forgets requests that are
	// remembered since before By - OnceFor. At is a time that most clocks have not reached: the
	// new request counts as remembered since At. Because the two times differ, a single wrong
	// clock makes no node forget a request too early. A By of 0 means unknown; then no request is
	// too old.
	By, At Millis
	// Lasts is the duration of the pin, if the client gave a duration instead of an end. A repeat
	// must then have the same duration, and its computed end may differ. 0 means that a repeat
	// must have the same end.
	Lasts Millis
}

// Forms, which are the numbers of the types of Change. The numbers are stored: never renumber.
const (
	onceBare      = 1
	onceByKey     = 2
	onceBySession = 3
)

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CreateOnce) Code(c *codec.Coder) {
	codec.Fixed(c, v.Key[:])
	var form uint8
	switch v.Change.(type) {
	case *CreatePin:
		form = onceBare
	case *ByKey:
		form = onceByKey
	case *BySession:
		form = onceBySession
	}
	codec.Uint(c, &form)
	if c.Decoding() {
		switch form {
		case onceBare:
			v.Change = new(CreatePin)
		case onceByKey:
			v.Change = new(ByKey)
		case onceBySession:
			v.Change = new(BySession)
		}
	}
	if v.Change == nil || form == 0 {
		c.Fail("no change that can be made once")
		return
	}
	v.Change.Code(c)
	if c.More() {
		codec.Int(c, &v.By)
		codec.Int(c, &v.At)
	}
	if v.Lasts > 0 || c.Decoding() && c.More() {
		if codec.Int(c, &v.Lasts); v.Lasts <= 0 {
			c.Fail("a pin that lasts no time")
		}
	}
	if _, err := v.create(); err != nil {
		c.Fail(err.Error())
	}
}

// create returns the CreatePin in the command, or an error if Change is of another type.
func (v *CreateOnce) create() (*CreatePin, error) {
	change := v.Change
	switch by := change.(type) {
	case *ByKey:
		change = by.Change
	case *BySession:
		change = by.Change
	}
	if pin, ok := change.(*CreatePin); ok {
		return pin, nil
	}
	return nil, fmt.Errorf("state: %T is not created once", change)
}

// once is the record of a remembered request.
type once struct {
	Pin     RequestID // id of the created pin
	Created Millis    // creation time of the pin
	Asked   Hash      // hash of the request
	At      Millis    // time since which the request is remembered
	Until   Millis    // end of the pin; 0: none
}

// over returns whether the request is too old at the time by, so that it counts as forgotten.
func (v *once) over(by Millis) bool { return by-OnceFor >= v.At }

// Code encodes or decodes the record. Version 2 is written only if the pin has an end.
func (v *once) Code(c *codec.Coder) {
	version := uint64(1)
	if c.Decoding() || v.Until != 0 {
		version = 2
	}
	version = c.Version(version)
	codec.String(c, &v.Pin, MaxIDLen)
	codec.Int(c, &v.Created)
	codec.Fixed(c, v.Asked[:])
	if c.More() {
		codec.Int(c, &v.At)
	}
	if version >= 2 {
		codec.Int(c, &v.Until)
	}
}

func onceByName(a AccountID, name Hash) key {
	return append(part(table(tableOnce), a).byte('k'), name[:]...)
}

func onceByTime(a AccountID) key { return part(table(tableOnce), a).byte('t') }

func onceCount(a AccountID) key { return part(table(tableOnce), a).byte('#') }

// askedFor returns the hash by which a repeat is recognized: of all fields of the pin that the
// client has given. If lasts is above 0, the duration is hashed instead of the end, as a negative
// number, because ends are positive.
func askedFor(p *Pin, lasts Millis) (Hash, error) {
	asked := Pin{Account: p.Account, CID: p.CID, Given: p.Given, Name: p.Name, Origins: p.Origins, Meta: p.Meta, Until: p.Until, MaxBytes: p.MaxBytes}
	if lasts > 0 {
		asked.Until = -lasts
	}
	c := codec.Encoder(nil)
	asked.Code(c)
	b, err := c.Finish()
	return sha256.Sum256(b), err
}

func (v *CreateOnce) apply(tx Tx, e *entry) (Result, error) {
	create, err := v.create()
	if err != nil {
		return Result{}, err
	}
	switch by := v.Change.(type) {
	case *ByKey:
		err = by.judge(tx)
	case *BySession:
		err = by.judge(tx)
	}
	if err != nil {
		return Result{}, err
	}
	pin := &create.Pin
	asked, first, again, err := v.find(tx, pin)
	if err != nil {
		return Result{}, err
	}
	if again != nil {
		return accepted(again), nil
	}
	result, err := create.apply(tx, e)
	if err != nil {
		return Result{}, err
	}
	if first != nil {
		if err := forgetOnce(tx, pin.Account, v.Key, first.Created); err != nil {
			return Result{}, err
		}
	}
	return result, v.remember(tx, asked, result.Pin)
}

// find returns the hash of the request, the stored record with the same idempotency key, and, if
// that record is not too old, the pin of the first answer as again. Errors: ErrExists if the
// first request was for another pin.
func (v *CreateOnce) find(r Reader, pin *Pin) (asked Hash, first *once, again *Pin, err error) {
	if asked, err = askedFor(pin, v.Lasts); err != nil {
		return asked, nil, nil, err
	}
	first, err = get[once](r, onceByName(pin.Account, v.Key))
	if err != nil || first == nil || first.over(v.By) {
		return asked, first, nil, err
	}
	if first.Asked != asked {
		return asked, first, nil, Errorf(CodeExists, "a request of this name asked for another pin")
	}
	was := *pin
	was.ID, was.Created, was.Until = first.Pin, first.Created, first.Until
	return asked, first, &was, nil
}

// FirstAnswer returns the pin that answered the first request with the idempotency key of cmd,
// even if the pin was deleted since. Errors: ErrNotFound if no such request is remembered;
// ErrExists if it was for another pin.
func (v View) FirstAnswer(cmd *CreateOnce) (Pin, error) {
	create, err := cmd.create()
	if err != nil {
		return Pin{}, err
	}
	_, _, again, err := cmd.find(v.r, &create.Pin)
	if err == nil && again == nil {
		err = Errorf(CodeNotFound, "no request of this name is remembered")
	}
	if err != nil {
		return Pin{}, err
	}
	return *accepted(again).Pin, nil
}

// remember stores a request, and removes up to maxOnceForget of the oldest ones that are too old
// or above MaxOnce.
func (v *CreateOnce) remember(tx Tx, asked Hash, pin *Pin) error {
	a := pin.Account
	n, err := counter(tx, onceCount(a))
	if err != nil {
		return err
	}
	type old struct {
		name    Hash
		created Millis
	}
	var drop []old
	prefix := onceByTime(a)
	err = tx.Scan(prefix, prefix.end(), false, func(k, value []byte) (bool, error) {
		rest := k[len(prefix):]
		if len(rest) != 8 || len(value) != len(Hash{}) {
			return false, fmt.Errorf("state: remembered request %x of %d bytes", k, len(value))
		}
		created := Millis(binary.BigEndian.Uint64(rest))
		if n-uint64(len(drop)) < MaxOnce {
			o, err := get[once](tx, onceByName(a, Hash(value)))
			if err != nil {
				return false, err
			}
			if o == nil {
				return false, fmt.Errorf("state: remembered request %x is not on record", value)
			}
			if !o.over(v.By) {
				return false, nil
			}
		}
		drop = append(drop, old{Hash(value), created})
		return len(drop) < maxOnceForget, nil
	})
	if err != nil {
		return err
	}
	for _, o := range drop {
		if err := forgetOnce(tx, a, o.name, o.created); err != nil {
			return err
		}
	}
	at := v.At
	if at == 0 {
		at = pin.Created
	}
	if err := put(tx, onceByName(a, v.Key), &once{Pin: pin.ID, Created: pin.Created, Asked: asked, At: at, Until: pin.Until}); err != nil {
		return err
	}
	if err := tx.Set(onceByTime(a).u64(uint64(pin.Created)), v.Key[:]); err != nil {
		return err
	}
	return count(tx, onceCount(a), 1)
}

func forgetOnce(tx Tx, a AccountID, name Hash, created Millis) error {
	if err := tx.Delete(onceByName(a, name)); err != nil {
		return err
	}
	if err := tx.Delete(onceByTime(a).u64(uint64(created))); err != nil {
		return err
	}
	return count(tx, onceCount(a), -1)
}
