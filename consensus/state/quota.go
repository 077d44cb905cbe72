package state

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// DefaultAllowance is the default number of bytes that an account may store without credits: 500
// MiB, the free storage of the specification (acceptance row 103).
const DefaultAllowance = 500 << 20

// Unlimited is the allowance of accounts without a limit.
const Unlimited = math.MaxUint64

// Quota records how much an account may store and how much it stores. Content counts once per
// account, even if several of its pins, objects and parts reference it, and counts in full for
// each account that references it. Large records count in addition, see weight.
type Quota struct {
	Allowance uint64 // bytes that the account may store without credits
	Credits   uint64 // above 0 there is no limit on stored bytes
	Stored    uint64 // bytes of pinned content
	Coming    uint64 // received bytes of content that is not pinned yet
	Postings  uint64 // number of postings in the ledger
	Records   uint64 // weight of its pins, versions and open uploads in bytes
	Retained  uint64 // bytes of replaced content that is still stored; not part of Used
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Quota) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.Allowance)
	codec.Uint(c, &v.Credits)
	codec.Uint(c, &v.Stored)
	codec.Uint(c, &v.Coming)
	codec.Uint(c, &v.Postings)
	codec.Uint(c, &v.Records)
	codec.Uint(c, &v.Retained)
}

// Used returns the number of bytes that count against the allowance.
func (v *Quota) Used() uint64 { return v.Stored + v.Coming + v.Records }

// exceeds returns whether the account may not use so many bytes.
func (v *Quota) exceeds(used uint64) bool { return v.Credits == 0 && used > v.Allowance }

// charge is the number of bytes that one root counts against the quota of one account.
type charge struct {
	Bytes  uint64
	Stored bool // true for pinned content, false for content that is being fetched
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *charge) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.Bytes)
	codec.Bool(c, &v.Stored)
}

// on adds the charge to the sums in q, or subtracts it if add is false.
func (v *charge) on(q *Quota, add bool) error {
	sum := &q.Coming
	if v.Stored {
		sum = &q.Stored
	}
	switch {
	case add && *sum <= math.MaxUint64-v.Bytes:
		*sum += v.Bytes
	case !add && *sum >= v.Bytes:
		*sum -= v.Bytes
	default:
		return fmt.Errorf("state: what an account uses, %d bytes, and a charge of %d differ", *sum, v.Bytes)
	}
	return nil
}

func quotaKey(a AccountID) key { return part(table(tableQuota), a) }

func chargeKey(a AccountID, k RootKey) key { return part(part(table(tableCharge), a), k) }

func arrivedKey(k RootKey) key { return part(table(tableArrived), k) }

// setCharge replaces the charge of a root for an account, and changes the sums in q accordingly.
// A zero charge removes the record.
func setCharge(tx Tx, a AccountID, q *Quota, k RootKey, to charge) error {
	row := chargeKey(a, k)
	old, err := get[charge](tx, row)
	if err != nil {
		return err
	}
	if old != nil {
		if err := old.on(q, false); err != nil {
			return err
		}
	} else if to == (charge{}) {
		return nil
	}
	if err := to.on(q, true); err != nil {
		return err
	}
	if err := put(tx, quotaKey(a), q); err != nil {
		return err
	}
	if to == (charge{}) {
		return tx.Delete(row)
	}
	return put(tx, row, &to)
}

// price returns what a root should be charged: the size of a pinned root, the arrived bytes of a
// root that is being fetched, and nothing for a failed or missing root. The second result is true
// if the size is known.
func price(r Reader, root *Root) (charge, bool, error) {
	if root == nil || root.Status == Failed {
		return charge{}, false, nil
	}
	if root.Status == Pinned {
		return charge{Bytes: root.Size, Stored: true}, true, nil
	}
	arrived, err := counter(r, arrivedKey(root.Key))
	return charge{Bytes: arrived}, false, err
}

// afford returns ErrQuota if an account cannot afford the new pin p of root k, which replaces the
// pin old (nil: none). It checks content and record together, and allows any change that does not
// increase the total. Below feature level 2, accounts have no quota.
func afford(r Reader, p *Pin, root *Root, k RootKey, old *Pin) error {
	q, err := get[Quota](r, quotaKey(p.Account))
	if err != nil || q == nil {
		return err
	}
	used, freed, same := q.Used(), uint64(0), false
	if old != nil {
		if same, err = old.waitsFor(k); err != nil {
			return err
		}
		if freed, err = freedBy(r, old, k); err != nil {
			return err
		}
		freed += old.weight()
		used -= min(used, freed)
	}
	var has *charge
	if root != nil { // nobody is charged for a root that does not exist
		if has, err = get[charge](r, chargeKey(p.Account, k)); err != nil {
			return err
		}
	}
	costs, known, err := price(r, root)
	if err != nil {
		return err
	}
	if has != nil {
		costs.Bytes -= min(costs.Bytes, has.Bytes)
	} else if !known && !same {
		costs.Bytes = max(1, costs.Bytes) // content is something
	}
	costs.Bytes += p.weight()
	if costs.Bytes > freed && q.exceeds(used+costs.Bytes) {
		return noRoom(r, p.Account, q, unfit(tellable(root), p.weight()))
	}
	return nil
}

// reserve charges the account of a pin, which waits for root k, the bytes that spare has
// returned. So the bytes that a replacement has freed cannot be used for something else in the
// meantime. Once the size of the root is known, the size is charged instead.
func reserve(tx Tx, p *Pin, k RootKey, bytes uint64) error {
	if bytes == 0 || p.Status == Pinned || p.Status == Failed {
		return nil
	}
	q, err := get[Quota](tx, quotaKey(p.Account))
	if err != nil || q == nil {
		return err
	}
	has, err := get[charge](tx, chargeKey(p.Account, k))
	if err != nil || has != nil && (has.Stored || has.Bytes >= bytes) {
		return err
	}
	return setCharge(tx, p.Account, q, k, charge{Bytes: bytes})
}

// spare returns the charge for root k that an account may have when p, a pin of root k, replaces
// the pin old, although the account is above its allowance: its present charge plus the bytes
// that the replacement frees. If the account is not above its allowance, spare returns 0, because
// then the free bytes are available to any request.
func spare(r Reader, old, p *Pin, k RootKey) (uint64, error) {
	q, err := get[Quota](r, quotaKey(old.Account))
	if err != nil || q == nil || !q.exceeds(q.Used()) {
		return 0, err
	}
	if same, err := old.waitsFor(k); err != nil || same {
		return 0, err
	}
	freed, err := freedBy(r, old, k)
	if err != nil {
		return 0, err
	}
	freed += old.weight()
	if freed <= p.weight() {
		return 0, nil
	}
	left := freed - p.weight()
	has, err := get[charge](r, chargeKey(old.Account, k))
	if err == nil && has != nil {
		left += has.Bytes
	}
	return left, err
}

// waitsFor returns whether the pin is of root k and has not failed.
func (v *Pin) waitsFor(k RootKey) (bool, error) {
	own, err := v.root()
	return own == k && v.Status != Failed, err
}

// freedBy returns the number of charged bytes that an account frees when the pin old is replaced
// by one of root k. A failed pin has no charge.
func freedBy(r Reader, old *Pin, k RootKey) (uint64, error) {
	oldRoot, err := old.root()
	if err != nil || oldRoot == k || old.Status == Failed {
		return 0, err
	}
	c, err := get[charge](r, chargeKey(old.Account, oldRoot))
	if err != nil || c == nil {
		return 0, err
	}
	held, err := get[Root](r, rootKey(oldRoot))
	if err != nil || held == nil {
		return 0, err
	}
	n, err := holdsAt(r, old.Account, held, 2)
	if err != nil || n > 1 {
		return 0, err
	}
	return c.Bytes, nil
}

// holdsAt returns how many pins, objects and parts of an account reference a root, but at most
// limit.
func holdsAt(r Reader, a AccountID, root *Root, limit int) (n int, err error) {
	for _, of := range []struct {
		rows key
		all  uint64
	}{{attachedTo(root.Key), root.Refs}, {linksOf(root.Key), root.Links}} {
		if of.all == 0 || n >= limit {
			continue
		}
		prefix := part(of.rows, a)
		err = r.Scan(prefix, prefix.end(), false, func(_, _ []byte) (bool, error) {
			n++
			return n < limit, nil
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// bill charges an account for a root after one of its pins was attached. Content that is being
// fetched may be charged more than has arrived (see reserve), but never less.
func bill(tx Tx, a AccountID, root *Root) error {
	q, err := get[Quota](tx, quotaKey(a))
	if err != nil || q == nil {
		return err
	}
	to, _, err := price(tx, root)
	if err != nil || to == (charge{}) {
		return err
	}
	if !to.Stored {
		if has, err := get[charge](tx, chargeKey(a, root.Key)); err != nil || has != nil && has.Bytes >= to.Bytes {
			return err
		}
	}
	return setCharge(tx, a, q, root.Key, to)
}

// unbill removes the charge of an account for a root if none of its pins, objects and parts
// references the root any more. The counters of the root are already updated. gone is the deleted
// row of the last reference, and rows is the prefix of such rows. The search for other rows
// starts after gone: if rows are deleted one after the other in order, each search would
// otherwise pass over all deleted ones.
func unbill(tx Tx, a AccountID, root *Root, rows, gone key) error {
	q, err := get[Quota](tx, quotaKey(a))
	if err != nil || q == nil {
		return err
	}
	if root.Refs+root.Links > 0 {
		held := false
		err := tx.Scan(gone, part(rows, a).end(), false, func(_, _ []byte) (bool, error) {
			held = true
			return false, nil
		})
		if err != nil || held {
			return err
		}
	}
	if n, err := holdsAt(tx, a, root, 1); err != nil || n > 0 {
		return err
	}
	return setCharge(tx, a, q, root.Key, charge{})
}

// unbillPin calls unbill after the pin p was detached from the root.
func unbillPin(tx Tx, p *Pin, root *Root) error {
	return unbill(tx, p.Account, root, attachedTo(root.Key), attachedKey(p, root.Key))
}

// affordCharge charges an account to for a root whose content has arrived or is being fetched. ok
// is false if the account cannot afford that; then nothing is charged. A charge for stored
// content, or a larger charge for arriving content, remains.
func affordCharge(tx Tx, a AccountID, k RootKey, to charge) (ok bool, err error) {
	q, err := get[Quota](tx, quotaKey(a))
	if err != nil || q == nil {
		return err == nil, err
	}
	old, err := get[charge](tx, chargeKey(a, k))
	if err != nil {
		return false, err
	}
	used, before := q.Used(), uint64(0)
	if old != nil {
		if before = old.Bytes; old.Stored || !to.Stored && before >= to.Bytes {
			return true, nil
		}
		used -= min(used, before)
	}
	if q.exceeds(used+to.Bytes) && to.Bytes > before {
		return false, nil
	}
	return true, setCharge(tx, a, q, k, to)
}

// tooMuch returns the failure reason of a pin whose content its account cannot afford.
func tooMuch(bytes uint64) string {
	return fmt.Sprintf("the content, %d bytes or more, does not fit into what is left of the account's free storage, and the account has no credits", bytes)
}

// Arrival is a node's report of how many bytes of a root it has received. Born is that of the
// root's record.
type Arrival struct {
	Root  RootKey
	Born  uint64
	Bytes uint64
}

// Code encodes or decodes the arrival as a part of a command.
func (v *Arrival) Code(c *codec.Coder) {
	codec.String(c, &v.Root, MaxCIDLen)
	codec.Uint(c, &v.Born)
	codec.Uint(c, &v.Bytes)
}

// ReportArrivals charges accounts for content of unknown size while it arrives. Pins of accounts
// that cannot afford it fail. One command checks at most MaxSettle pins; accounts of other pins
// are charged when the root becomes pinned.
type ReportArrivals struct{ Items []Arrival }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ReportArrivals) Code(c *codec.Coder) {
	codec.List(c, &v.Items, MaxReports, func(c *codec.Coder, v *Arrival) { v.Code(c) })
}

func (v *ReportArrivals) apply(tx Tx, e *entry) (Result, error) {
	for _, item := range v.Items {
		if e.settle == 0 {
			break // the node repeats it with the next report
		}
		if err := arrived(tx, item, e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

func arrived(tx Tx, item Arrival, e *entry) error {
	root, err := get[Root](tx, rootKey(item.Root))
	if err != nil || root == nil || root.Born != item.Born || root.Status == Pinned || root.Status == Failed {
		return err
	}
	before, err := counter(tx, arrivedKey(root.Key))
	if err != nil || item.Bytes <= before {
		return err
	}
	if err := tx.Set(arrivedKey(root.Key), binary.BigEndian.AppendUint64(nil, item.Bytes)); err != nil {
		return err
	}
	prefix := attachedTo(root.Key)
	pins, _, err := attachedPins(tx, prefix, prefix, e.settle)
	if err != nil {
		return err
	}
	e.settle -= len(pins)
	refs := root.Refs
	for _, p := range pins {
		why := p.tooLarge(item.Bytes)
		if !p.exceeds(item.Bytes) {
			ok, err := affordCharge(tx, p.Account, root.Key, charge{Bytes: item.Bytes})
			if err != nil {
				return err
			}
			if ok {
				continue
			}
			why = tooMuch(item.Bytes)
		}
		if err := letGo(tx, p, root, why); err != nil {
			return err
		}
	}
	if root.Refs == refs {
		return nil
	}
	return keepOrRemove(tx, root, e)
}

// letGo makes one pin of a root fail with the reason why, while other pins of the root continue.
// The caller stores the root.
func letGo(tx Tx, p *Pin, root *Root, why string) error {
	if err := movePin(tx, p, Failed, why); err != nil {
		return err
	}
	if err := p.release(tx, root.Key); err != nil {
		return err
	}
	root.Refs--
	return unbillPin(tx, p, root)
}

// SetQuota changes the allowance of an account. Content above a smaller allowance remains, unless
// a charge finds that the account is dry, see EndContent.
type SetQuota struct {
	Account   AccountID
	Allowance uint64 // bytes; Unlimited: no limit
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetQuota) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.Uint(c, &v.Allowance)
}

func (v *SetQuota) apply(tx Tx, _ *entry) (Result, error) {
	q, err := quotaOf(tx, v.Account)
	if err != nil {
		return Result{}, err
	}
	if err := forPeople(v.Account); err != nil {
		return Result{}, err
	}
	q.Allowance = v.Allowance
	if err := notDry(tx, v.Account, q); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, quotaKey(v.Account), q)
}

func quotaOf(r Reader, a AccountID) (*Quota, error) {
	q, err := get[Quota](r, quotaKey(a))
	if err == nil && q == nil {
		return nil, Errorf(CodeNotFound, "no such account")
	}
	return q, err
}

// Quota returns the quota of an account. It returns ErrNotFound if there is no such account or
// the cluster is below feature level 2.
func (v View) Quota(a AccountID) (Quota, error) {
	q, err := quotaOf(v.r, a)
	if err != nil {
		return Quota{}, err
	}
	return *q, nil
}

// foundQuotas creates the quota of every account when the cluster reaches feature level 2, and
// charges it for its pins and their content.
func foundQuotas(tx Tx) error {
	cl, err := cluster(tx)
	if err != nil {
		return err
	}
	accounts, err := scanAll[Account](tx, table(tableAccount))
	if err != nil {
		return err
	}
	for _, a := range accounts {
		q := Quota{Allowance: DefaultAllowance}
		if a.ID == cl.Operator {
			q.Allowance = Unlimited
		}
		if q.Records, err = pinsWeigh(tx, a.ID); err != nil {
			return err
		}
		if err := put(tx, quotaKey(a.ID), &q); err != nil {
			return err
		}
	}
	type holding struct {
		account AccountID
		root    RootKey
	}
	var last holding
	var held []holding
	prefix := table(tableAttached)
	err = tx.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		root, rest, err := readPart[RootKey](k[len(prefix):])
		if err != nil {
			return false, err
		}
		account, _, err := readPart[AccountID](rest)
		if h := (holding{account, root}); err == nil && h != last {
			last = h
			held = append(held, h)
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	var root *Root
	for _, h := range held {
		if root == nil || root.Key != h.root {
			if root, err = get[Root](tx, rootKey(h.root)); err != nil {
				return err
			}
			if root == nil {
				return fmt.Errorf("state: root %s has pins and no record", h.root)
			}
		}
		if moving, err := has(tx, settlingKey(h.root)); err != nil {
			return err
		} else if moving { // charged when its pins are moved, so they all are again
			if err := tx.Set(settlingKey(h.root), nil); err != nil {
				return err
			}
		} else if err := bill(tx, h.account, root); err != nil {
			return err
		}
	}
	return nil
}
