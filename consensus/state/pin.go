package state

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/ipfs/go-cid"
)

// Status is the status of a pin, with the names of the Pinning Service API 1.0.0.
type Status uint8

// The four statuses. The numbers are stored: never renumber.
const (
	Queued  Status = 1
	Pinning Status = 2
	Pinned  Status = 3
	Failed  Status = 4
)

// Statuses lists the statuses in the order of a pin's life.
func Statuses() []Status { return []Status{Queued, Pinning, Pinned, Failed} }

func (s Status) String() string {
	switch s {
	case Queued:
		return "queued"
	case Pinning:
		return "pinning"
	case Pinned:
		return "pinned"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Given says which optional fields a client submitted, so that the answer has exactly
// these.
type Given uint8

// The optional fields of a pin.
const (
	GivenName Given = 1 << iota
	GivenOrigins
	GivenMeta
)

// Pin is the request of an account to keep a root.
type Pin struct {
	ID      RequestID
	Account AccountID
	Created Millis // unique within the account
	Status  Status
	CID     string // CID as the client submitted it
	Given   Given
	Name    string
	Origins []string
	Meta    map[string]string
	Detail  string // reason why the pin has failed
	// Until is the end of the pin: EndPins removes it then. 0: it has no end.
	Until Millis
	// MaxBytes is the largest size of the DAG in bytes. The pin of a larger one fails. 0: no bound.
	MaxBytes uint64
}

// Code encodes or decodes the record. Version 2 is written only if the pin has an end or a bound:
// below PinsEndLevel, members may know only version 1.
func (v *Pin) Code(c *codec.Coder) {
	version := uint64(1)
	if c.Decoding() || v.ends() {
		version = 2
	}
	version = c.Version(version)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Account, MaxIDLen)
	codec.Int(c, &v.Created)
	codec.Uint(c, &v.Status)
	codec.String(c, &v.CID, MaxCIDLen)
	codec.Uint(c, &v.Given)
	codec.String(c, &v.Name, maxNameBytes)
	codec.Strings(c, &v.Origins, MaxOrigins, MaxAddrLen)
	codec.Map(c, &v.Meta, MaxMetaPairs, MaxMetaBytes)
	codec.String(c, &v.Detail, MaxReasonLen)
	if version >= 2 {
		codec.Int(c, &v.Until)
		codec.Uint(c, &v.MaxBytes)
	}
}

// peekPin returns the name of a stored pin and the position of its meta without decoding
// the pin, because a filter rejects most rows, and a row can have 64 KiB. The name is a
// part of row.
func peekPin(row []byte) (name []byte, meta codec.Coder, err error) {
	c := *codec.Decoder(row)
	c.Version(2)
	codec.Text(&c, MaxIDLen) // as Code has them
	codec.Text(&c, MaxIDLen)
	var created Millis
	codec.Int(&c, &created)
	var status Status
	codec.Uint(&c, &status)
	codec.Text(&c, MaxCIDLen)
	var given Given
	codec.Uint(&c, &given)
	name = codec.Text(&c, maxNameBytes)
	for range codec.Count(&c, MaxOrigins) {
		codec.Text(&c, MaxAddrLen)
	}
	if err := c.Err(); err != nil {
		return nil, c, fmt.Errorf("state: row of a pin: %w", err)
	}
	return name, c, nil
}

// check returns the parsed CID of a pin, or an error if a field of the pin exceeds a bound.
func (v *Pin) check() (cid.Cid, error) {
	if v.ID == "" || len(v.ID) > MaxIDLen || v.Created <= 0 || v.Created > maxCreated {
		return cid.Undef, Errorf(CodeInvalid, "a pin needs an id and a time")
	}
	if len(v.CID) > MaxCIDLen {
		return cid.Undef, Errorf(CodeInvalid, "cid is longer than %d bytes", MaxCIDLen)
	}
	c, err := cid.Decode(v.CID)
	if err != nil {
		return cid.Undef, Errorf(CodeInvalid, "cid %q is not valid", v.CID)
	}
	if !utf8.ValidString(v.Name) || utf8.RuneCountInString(v.Name) > MaxNameRunes {
		return cid.Undef, Errorf(CodeInvalid, "name is longer than %d characters", MaxNameRunes)
	}
	if len(v.Origins) > MaxOrigins {
		return cid.Undef, Errorf(CodeInvalid, "more than %d origins", MaxOrigins)
	}
	for _, o := range v.Origins {
		if len(o) > MaxAddrLen {
			return cid.Undef, Errorf(CodeInvalid, "an origin is longer than %d bytes", MaxAddrLen)
		}
	}
	if len(v.Meta) > MaxMetaPairs {
		return cid.Undef, Errorf(CodeInvalid, "meta has more than %d pairs", MaxMetaPairs)
	}
	size := 0
	for k, value := range v.Meta {
		size += len(k) + len(value)
	}
	if size > MaxMetaBytes {
		return cid.Undef, Errorf(CodeInvalid, "meta is larger than %d bytes", MaxMetaBytes)
	}
	return c, nil
}

// maxCreated is the end of the year 9999. A later time would leave no later times for the next
// pins of the account.
const maxCreated = Millis(253_402_300_799_999)

// root returns the key of the root to which a stored pin refers.
func (v *Pin) root() (RootKey, error) {
	c, err := cid.Decode(v.CID)
	if err != nil {
		return "", fmt.Errorf("state: stored cid %q: %w", v.CID, err)
	}
	return RootOf(c), nil
}

func pinKey(a AccountID, part1 byte) key { return part(table(tablePins), a).byte(part1) }

func locatorKey(a AccountID, id RequestID) key { return part(pinKey(a, pinByID), id) }

func rowKey(p *Pin) key {
	return append(pinKey(p.Account, pinRow).byte(byte(p.Status)).descending(p.Created), p.ID...)
}

func cidIndex(a AccountID, c cid.Cid) key { return part(pinKey(a, pinByCID), c.KeyString()) }

func nameIndex(a AccountID, name string) key { return part(pinKey(a, pinByName), name) }

// counterShifts are the widths of a counter's buckets, in powers of two of a
// millisecond: 4 seconds, 70 minutes, and all of time. Creation times are
// unique in an account, so a count between two times reads at most 2^12 rows
// at each edge, 2^10 buckets of the first width, and the buckets of the second.
var counterShifts = [...]uint{12, 22, 63}

func counterKey(a AccountID, s Status, level int, t Millis) key {
	return pinKey(a, pinCounter).byte(byte(s)).byte(byte(level)).descending(t >> counterShifts[level])
}

// createdOf returns when the pin of a row or of an entry of an index was created. prefix is what all keys of the
// kind have before that time.
func createdOf(k, prefix key) (Millis, error) {
	if len(k) < len(prefix)+8 {
		return 0, fmt.Errorf("state: key %x of a pin", k)
	}
	return Millis(^binary.BigEndian.Uint64(k[len(prefix):])), nil
}

func totalKey(s Status) key { return metaKey("pins/" + s.String()) }

func countPin(tx Tx, p *Pin, delta int64) error {
	for level := range counterShifts {
		if err := count(tx, counterKey(p.Account, p.Status, level, p.Created), delta); err != nil {
			return err
		}
	}
	return count(tx, totalKey(p.Status), delta)
}

// insertPin writes a new pin with its indexes and counters, and charges its weight.
func insertPin(tx Tx, p *Pin, c cid.Cid) error {
	if err := reweigh(tx, p.Account, 0, p.weight()); err != nil {
		return err
	}
	if err := tx.Set(cidIndex(p.Account, c).descending(p.Created), []byte(p.ID)); err != nil {
		return err
	}
	if p.Name != "" {
		if err := tx.Set(nameIndex(p.Account, p.Name).descending(p.Created), []byte(p.ID)); err != nil {
			return err
		}
	}
	if p.Until > 0 {
		if err := tx.Set(endKey(p), nil); err != nil {
			return err
		}
	}
	if err := reindexPin(tx, p, 0, p.Status); err != nil {
		return err
	}
	if err := writeRow(tx, p); err != nil {
		return err
	}
	return packOnCreation(tx, p)
}

// writeRow writes a pin under its status, and counts it there.
func writeRow(tx Tx, p *Pin) error {
	locator := binary.BigEndian.AppendUint64([]byte{byte(p.Status)}, uint64(p.Created))
	if err := tx.Set(locatorKey(p.Account, p.ID), locator); err != nil {
		return err
	}
	if err := put(tx, rowKey(p), p); err != nil {
		return err
	}
	return countPin(tx, p, 1)
}

// movePin moves a pin to another status.
func movePin(tx Tx, p *Pin, to Status, detail string) error {
	if err := tx.Delete(rowKey(p)); err != nil {
		return err
	}
	if err := countPin(tx, p, -1); err != nil {
		return err
	}
	was := p.Status
	p.Status, p.Detail = to, detail
	if err := reindexPin(tx, p, was, to); err != nil {
		return err
	}
	return writeRow(tx, p)
}

// removePin deletes a pin with its indexes and counters.
func removePin(tx Tx, p *Pin) error {
	c, err := cid.Decode(p.CID)
	if err != nil {
		return fmt.Errorf("state: stored cid %q: %w", p.CID, err)
	}
	keys := []key{rowKey(p), locatorKey(p.Account, p.ID), cidIndex(p.Account, c).descending(p.Created)}
	if p.Name != "" {
		keys = append(keys, nameIndex(p.Account, p.Name).descending(p.Created))
	}
	if p.Until > 0 {
		keys = append(keys, endKey(p))
	}
	for _, k := range keys {
		if err := tx.Delete(k); err != nil {
			return err
		}
	}
	if err := reindexPin(tx, p, p.Status, 0); err != nil {
		return err
	}
	if err := unpackName(tx, p); err != nil {
		return err
	}
	if err := reweigh(tx, p.Account, p.weight(), 0); err != nil {
		return err
	}
	return countPin(tx, p, -1)
}

// findPin reads a pin of an account. It returns nil if there is none.
func findPin(r Reader, a AccountID, id RequestID) (*Pin, error) {
	at, err := locate(r, a, id)
	if err != nil || at == nil {
		return nil, err
	}
	row, err := rowAt(r, at)
	if err != nil {
		return nil, err
	}
	return decode[Pin](row)
}

// locate returns the locator of a pin of an account, or nil if there is none.
func locate(r Reader, a AccountID, id RequestID) (*Pin, error) {
	if len(id) > MaxIDLen {
		return nil, nil
	}
	b, ok, err := r.Get(locatorKey(a, id))
	if err != nil || !ok {
		return nil, err
	}
	return readLocator(a, id, b)
}

// readLocator reads the locator of a pin that writeRow wrote.
func readLocator(a AccountID, id RequestID, b []byte) (*Pin, error) {
	if len(b) != 9 {
		return nil, fmt.Errorf("state: locator of pin %s has %d bytes", id, len(b))
	}
	return &Pin{ID: id, Account: a, Status: Status(b[0]), Created: Millis(binary.BigEndian.Uint64(b[1:]))}, nil
}

// rowAt reads the row of a pin that locate found.
func rowAt(r Reader, at *Pin) ([]byte, error) {
	row, ok, err := r.Get(rowKey(at))
	if err == nil && !ok {
		err = fmt.Errorf("state: pin %s has a locator and no row", at.ID)
	}
	return row, err
}

// nextCreated returns the creation time for a pin proposed at t: later than every earlier
// one of the account, whatever the clocks of the proposers say.
func nextCreated(tx Tx, a AccountID, t Millis) (Millis, error) {
	k := pinKey(a, pinLast)
	last, err := counter(tx, k)
	if err != nil {
		return 0, err
	}
	t = max(t, Millis(last)+1)
	return t, tx.Set(k, binary.BigEndian.AppendUint64(nil, uint64(t)))
}

// CreatePin adds a pin. Nodes are the nodes for a new root. A root that exists stays where it
// is.
type CreatePin struct {
	Pin   Pin // the proposer creates ID and Created; Status is ignored
	Nodes []NodeID
}

// Code implements Command.
func (v *CreatePin) Code(c *codec.Coder) {
	v.Pin.Code(c)
	codec.Strings(c, &v.Nodes, MaxCopies, MaxIDLen)
}

func (v *CreatePin) apply(tx Tx, e *entry) (Result, error) {
	if done, err := findPin(tx, v.Pin.Account, v.Pin.ID); err != nil || done != nil {
		return accepted(done), err
	}
	p := v.Pin
	c, nodes, err := checkPin(tx, &p, nil, v.Nodes)
	if err != nil {
		return Result{}, err
	}
	if err := addPin(tx, &p, c, nodes, e); err != nil {
		return Result{}, err
	}
	return accepted(&p), nil
}

// accepted returns the result for the proposer of a pin: the pin as it was accepted, with the
// status queued, even if the pin has another status now.
func accepted(p *Pin) Result {
	if p == nil {
		return Result{}
	}
	q := *p
	q.Status, q.Detail = Queued, ""
	return Result{Pin: &q}
}

// checkPin finds all errors of a new pin before anything is written. The new pin may replace an
// old one. It returns those of the nodes for a new root that are still members.
func checkPin(tx Tx, p, old *Pin, nodes []NodeID) (cid.Cid, []NodeID, error) {
	c, err := p.check()
	if err != nil {
		return c, nil, err
	}
	if err := p.checkEnd(tx); err != nil {
		return c, nil, err
	}
	if known, err := has(tx, accountKey(p.Account)); err != nil {
		return c, nil, err
	} else if !known {
		return c, nil, Errorf(CodeUnauthorized, "the account is gone")
	}
	members, err := onlyMembers(tx, nodes)
	if err != nil {
		return c, nil, err
	}
	k := RootOf(c)
	root, err := get[Root](tx, rootKey(k))
	if err != nil {
		return c, nil, err
	}
	if root == nil && len(members) == 0 {
		return c, nil, Errorf(CodeConflict, "the nodes chosen for the content have left the cluster")
	}
	return c, members, afford(tx, p, root, k, old)
}

// addPin writes a checked pin and attaches it to its root. A pin whose content is known to be larger
// than it permits fails on creation, and holds nothing.
func addPin(tx Tx, p *Pin, c cid.Cid, nodes []NodeID, e *entry) error {
	var err error
	if p.Created, err = nextCreated(tx, p.Account, p.Created); err != nil {
		return err
	}
	why, err := p.tooLargeNow(tx, RootOf(c))
	if err != nil {
		return err
	}
	if why != "" {
		p.Status, p.Detail = Failed, why
		return insertPin(tx, p, c)
	}
	root, err := attach(tx, p, RootOf(c), nodes, e)
	if err != nil {
		return err
	}
	p.Status, p.Detail = root.pins(), ""
	if p.Status == Failed {
		p.Detail = OwnReason(root.Detail, p.Origins)
	}
	return insertPin(tx, p, c)
}

// DeletePin removes a pin of an account.
type DeletePin struct {
	Account AccountID
	ID      RequestID
}

// Code implements Command.
func (v *DeletePin) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.ID, MaxIDLen)
}

func (v *DeletePin) apply(tx Tx, e *entry) (Result, error) {
	p, err := findPin(tx, v.Account, v.ID)
	if err != nil {
		return Result{}, err
	}
	if p == nil {
		return Result{}, Errorf(CodeNotFound, "no pin %s", v.ID)
	}
	return Result{}, dropPin(tx, p, nil, e)
}

// dropPin removes a pin. If its root would be removed with it, the root is kept until the root
// of the replacing pin is settled. The replacing pin may be nil.
func dropPin(tx Tx, p, by *Pin, e *entry) error {
	if err := removePin(tx, p); err != nil {
		return err
	}
	k, err := p.root()
	if err != nil {
		return err
	}
	return detach(tx, p, k, by, e)
}

// ReplacePin replaces a pin in one log entry, so that the user sees one change: at no index do
// both pins exist, or neither.
type ReplacePin struct {
	Old   RequestID
	Pin   Pin // as in CreatePin; the same account owns the old pin
	Nodes []NodeID
}

// Code implements Command.
func (v *ReplacePin) Code(c *codec.Coder) {
	codec.String(c, &v.Old, MaxIDLen)
	v.Pin.Code(c)
	codec.Strings(c, &v.Nodes, MaxCopies, MaxIDLen)
}

func (v *ReplacePin) apply(tx Tx, e *entry) (Result, error) {
	if done, err := findPin(tx, v.Pin.Account, v.Pin.ID); err != nil || done != nil {
		return accepted(done), err
	}
	old, err := findPin(tx, v.Pin.Account, v.Old)
	if err != nil {
		return Result{}, err
	}
	if old == nil {
		return Result{}, Errorf(CodeNotFound, "no pin %s", v.Old)
	}
	p := v.Pin
	c, nodes, err := checkPin(tx, &p, old, v.Nodes)
	if err != nil {
		return Result{}, err
	}
	spared, err := spare(tx, old, &p, RootOf(c))
	if err != nil {
		return Result{}, err
	}
	if err := addPin(tx, &p, c, nodes, e); err != nil {
		return Result{}, err
	}
	// Attached before the old one is detached: shared blocks stay referenced.
	if err := dropPin(tx, old, &p, e); err != nil {
		return Result{}, err
	}
	return accepted(&p), reserve(tx, &p, RootOf(c), spared)
}

// Pin returns a pin of an account. It returns ErrNotFound for a missing pin and for a pin of
// another account.
func (v View) Pin(a AccountID, id RequestID) (Pin, error) {
	p, err := findPin(v.r, a, id)
	if err != nil {
		return Pin{}, err
	}
	if p == nil {
		return Pin{}, Errorf(CodeNotFound, "no pin %s", id)
	}
	return *p, nil
}
