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

// Given records which optional fields a client has sent, so that an answer contains exactly
// these.
type Given uint8

// The optional fields of a pin.
const (
	GivenName Given = 1 << iota
	GivenOrigins
	GivenMeta
)

// Pin is the request of an account to store a root.
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
	// Until is the time at which EndPins removes the pin. 0 means never.
	Until Millis
	// MaxBytes is the largest size in bytes that the DAG may have; if it is larger, the pin
	// fails. 0 means no limit.
	MaxBytes uint64
}

// Code encodes or decodes the record. It writes version 2 only if the pin has an end or a size
// limit, because members below PinsEndLevel may know only version 1.
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

// peekPin returns the name of an encoded pin, and a decoder at the position of its meta. It does
// not decode the rest of the pin, because a filter rejects most rows and a row can have 64 KiB.
// The name refers to the bytes of row.
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

// maxCreated is the largest allowed creation time, the end of the year 9999. The limit ensures
// that the next pins of an account, which need later times, can be created.
const maxCreated = Millis(253_402_300_799_999)

// root returns the key of the root that a stored pin references.
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

// counterShifts are the lengths of the time intervals for which pins are counted, as powers of
// two of a millisecond: 4 seconds, 70 minutes, and all of time. Creation times are unique in an
// account, so a count between two times reads at most 2^12 rows at each edge, 2^10 counters of
// the first length, and the counters of the second.
var counterShifts = [...]uint{12, 22, 63}

func counterKey(a AccountID, s Status, level int, t Millis) key {
	return pinKey(a, pinCounter).byte(byte(s)).byte(byte(level)).descending(t >> counterShifts[level])
}

// createdOf returns the creation time in the key of a pin's row or index entry. prefix is the
// part of the key before the time.
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

// insertPin writes a new pin with its index entries and counters, and adds its weight to the
// account's quota.
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

// writeRow writes the row and the locator of a pin under its status, and counts the pin there.
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

// movePin changes the status and the detail of a pin, and moves its row.
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

// removePin deletes a pin with its index entries and counters.
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
	if err := unpackPairs(tx, p); err != nil {
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

// locate returns the locator of a pin, or nil if there is none. The locator is a Pin with only
// the fields from which the key of its row is computed.
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

// readLocator decodes a locator that writeRow has written.
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

// nextCreated returns the creation time of a new pin that was proposed for the time t: t, or a
// later time if the account has a pin with that time or a later one. So creation times rise, even
// if the clocks of proposers differ.
func nextCreated(tx Tx, a AccountID, t Millis) (Millis, error) {
	k := pinKey(a, pinLast)
	last, err := counter(tx, k)
	if err != nil {
		return 0, err
	}
	t = max(t, Millis(last)+1)
	return t, tx.Set(k, binary.BigEndian.AppendUint64(nil, uint64(t)))
}

// CreatePin adds a pin. If its root is new, the root is allocated to Nodes. An existing root
// keeps its allocation.
type CreatePin struct {
	Pin   Pin // the proposer sets ID and Created; Status is ignored
	Nodes []NodeID
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
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

// accepted returns the result of a command that has created the pin p: the pin with the status
// queued, whatever its status is now. For nil it returns an empty result.
func accepted(p *Pin) Result {
	if p == nil {
		return Result{}
	}
	q := *p
	q.Status, q.Detail = Queued, ""
	return Result{Pin: &q}
}

// checkPin makes all checks of a new pin p and writes nothing. old is the pin that it replaces,
// or nil. It returns the parsed CID, and the nodes for a new root that are still members.
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

// addPin writes a checked pin and attaches it to its root. If the content is already known to be
// larger than the pin permits, the pin is created with the status failed and references nothing.
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

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
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

// dropPin removes a pin. by is the pin that replaces it, or nil. If nothing else references the
// root of p, the root is nevertheless kept until the root of by is replicated or has failed.
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

// ReplacePin replaces a pin in one log entry, so that a client never sees both pins or neither.
type ReplacePin struct {
	Old   RequestID
	Pin   Pin // as in CreatePin; the old pin must belong to the same account
	Nodes []NodeID
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
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

// Pin returns a pin of an account by its id. It returns ErrNotFound if the account has no such
// pin.
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
