package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

func (c *fsck) accountRow() error {
	a := read(c, func(a *Account) key { return accountKey(a.ID) })
	if a == nil {
		return nil
	}
	if a.ID != PaidAccount {
		c.computed(emailKey(a.Email), []byte(a.ID))
	}
	if c.level >= 2 {
		c.computed(append(quotaKey(a.ID), quotaThere), nil)
	}
	closing, err := has(c.r, closingKey(a.ID))
	if err == nil && closing {
		c.differs("an account", "nothing: it is closed")
	}
	return err
}

func (c *fsck) closing() error {
	c.empty()
	return nil // accountRow reports an account that is open too
}

func (c *fsck) apiKey() error {
	k := read(c, func(k *APIKey) key { return apiKeyKey(k.ID) })
	if k == nil {
		return nil
	}
	c.computed(part(keysOf(k.Account), k.ID), nil)
	return c.open(k.Account)
}

// madeBy checks which signing key has signed an API key or a share.
func (c *fsck) madeBy() error {
	id, _, err := readPart[KeyID](c.k[1:])
	n, ok := c.number()
	if !c.parsed(err) || !ok {
		return nil
	}
	c.counts(generationKey(n), aCounter, 1)
	signing, err := readSigningKeys(c.r)
	if err == nil && !slices.ContainsFunc(signing.Items, func(k SigningKey) bool { return k.Generation == n }) {
		c.differs(fmt.Sprintf("generation %d", n), "one of which the cluster has the signing key")
	}
	return c.keyExists(id)
}

// keyExists reports the current row if there is neither an API key nor a share with the id.
func (c *fsck) keyExists(id KeyID) error {
	if there, err := has(c.r, apiKeyKey(id)); err != nil || there {
		return err
	}
	return c.needs(shareByKey(id), "key "+string(id))
}

func (c *fsck) session() error {
	s := read(c, func(s *Session) key { return sessionKey(s.ID) })
	if s == nil {
		return nil
	}
	c.computed(part(sessionsOf(s.Account), s.ID), nil)
	return c.open(s.Account)
}

func (c *fsck) use() error {
	c.number()
	if len(c.k) < 2 {
		c.differs("a row", "nothing: short key")
		return nil
	}
	id, _, err := readPart[string](c.k[2:])
	if !c.parsed(err) {
		return nil
	}
	if c.k[1] == useOfSession {
		return c.needs(sessionKey(SessionID(id)), "session "+id)
	}
	return c.keyExists(KeyID(id))
}

// once checks a row of the remembered requests of an account. Those of an account that is being
// removed are removed in the order of their keys, so they do not agree.
func (c *fsck) once() error {
	rest := []byte(c.k[1:])
	var err error
	a := takePart[AccountID](&rest, &err)
	if err == nil && len(rest) == 0 {
		err = fmt.Errorf("state: short key")
	}
	if !c.parsed(err) {
		return nil
	}
	if err := c.owner(a); err != nil || c.account.closing {
		return err
	}
	switch rest[0] {
	case 'k':
		v := read(c, here[once](c))
		if v == nil {
			return nil
		}
		c.counts(onceCount(a), aCounter, 1)
		return c.onceOrder(a, v, rest[1:])
	case 't':
		c.stored()
	case '#':
		c.counter()
	default:
		c.differs("a row", "nothing: there is no such part of the table")
	}
	return nil
}

// onceOrder computes the row of the order of an account's remembered requests. Two requests that were
// answered with the same pin share the row of the later one.
func (c *fsck) onceOrder(a AccountID, v *once, name []byte) error {
	row := onceByTime(a).u64(uint64(v.Created))
	other, ok, err := c.r.Get(row)
	if err != nil {
		return err
	}
	if ok && len(other) == len(Hash{}) && !bytes.Equal(other, name) {
		later, err := get[once](c.r, onceByName(a, Hash(other)))
		if err == nil && later != nil && later.Pin == v.Pin && later.Created == v.Created {
			return nil
		}
	}
	c.computed(row, name)
	return nil
}

// posting checks a posting, and computes what it counts for.
func (c *fsck) posting() error {
	p := read(c, func(p *Posting) key { return postingKey(p.Account, p.ID) })
	if p == nil {
		return nil
	}
	if err := c.owner(p.Account); err != nil || c.account.closing {
		return err
	}
	if c.level >= LedgerLevel {
		c.computed(ledgerKey(p.Account, p.Seq), []byte(p.ID))
	}
	c.counts(quotaKey(p.Account), numberOfPostings, 1)
	credits := p.Credits
	if p.Takes {
		credits = -credits
	}
	c.counts(quotaKey(p.Account), creditsOf, credits)
	return nil
}

// lastPosting is the posting that was read last in the order of a ledger, newest first.
type lastPosting struct {
	account AccountID
	seq     uint64
	before  uint64 // balance before it
}

// ledgerRow checks a row of the order of a ledger, and the balance of its posting.
func (c *fsck) ledgerRow() error {
	rest := []byte(c.k[1:])
	var err error
	a := takePart[AccountID](&rest, &err)
	seq := ^takeU64(&rest, &err)
	if !c.parsed(err) {
		return nil
	}
	if err := c.owner(a); err != nil || c.account.closing {
		return err
	}
	c.stored()
	row, ok, err := c.r.Get(postingKey(a, string(c.v)))
	if err != nil || !ok {
		return err // the row of the order differs
	}
	p, err := decode[Posting](row)
	if err != nil {
		return nil // its own row is reported
	}
	last := c.ledger
	if last.account == a && (last.seq != seq+1 || last.before != p.Balance) {
		c.differs(fmt.Sprintf("posting %d with the balance %d", seq, p.Balance), fmt.Sprintf("posting %d with the balance %d", last.seq-1, last.before))
	}
	before := p.Balance - p.Credits
	if p.Takes {
		before = p.Balance + p.Credits
	}
	if seq == 1 && before != 0 {
		c.differs(fmt.Sprintf("the balance %d", p.Balance), fmt.Sprintf("the balance %d", p.Balance-before))
	}
	c.ledger = lastPosting{a, seq, before}
	return nil
}

// numberOfAccount checks a row with a number of an account.
func (c *fsck) numberOfAccount() error {
	c.number()
	a, _, err := readPart[AccountID](c.k[1:])
	if !c.parsed(err) {
		return nil
	}
	return c.owner(a)
}

func (c *fsck) administrator() error {
	c.empty()
	return c.ofOpenAccount()
}

// ofOpenAccount reports the current row if the account in its key does not exist.
func (c *fsck) ofOpenAccount() error {
	a, _, err := readPart[AccountID](c.k[1:])
	if !c.parsed(err) {
		return nil
	}
	return c.open(a)
}

func (c *fsck) disabled() error {
	c.number()
	return c.ofOpenAccount()
}

func (c *fsck) noAdmin() error {
	c.empty()
	email, _, err := readPart[string](c.k[1:])
	if c.parsed(err) && email != strings.ToLower(email) {
		c.differs("an address", "one in lower case")
	}
	return nil
}

func (c *fsck) identity() error {
	v := read(c, func(v *Identity) key { return identityKey(v.ID()) })
	if v == nil {
		return nil
	}
	c.computed(part(identitiesOf(v.Account), v.ID()), nil)
	return c.open(v.Account)
}

func (c *fsck) oneTime() error {
	v := read(c, func(v *OneTimeLink) key { return oneTimeKey(v.ID) })
	if v == nil || v.Account == "" {
		return nil
	}
	return c.open(v.Account)
}

func (c *fsck) usage() error {
	a, _, err := readPart[AccountID](c.k[1:])
	if !c.parsed(err) || read(c, func(v *Usage) key { return usageKey(a, v.Day) }) == nil {
		return nil
	}
	return c.open(a)
}

func (c *fsck) app() error {
	read(c, func(v *App) key { return appKey(v.Name) })
	return nil
}

// paid checks a row of the table of payments and paid objects.
func (c *fsck) paid() error {
	if len(c.k) < 2 {
		c.differs("a row", "nothing: short key")
		return nil
	}
	switch c.k[1] {
	case paidRow:
		return c.payment()
	case paidSum:
		return c.paidSum()
	case paidOwner:
		return c.paidObject()
	case paidByTime, paidReserved, paidFailed, paidClaim, paidEnds, paidEnded:
		c.stored()
	default:
		c.differs("a row", "nothing: there is no such part of the table")
	}
	return nil
}

// Names of the numbers in a total of payments. The amount is compared by its lowest 64 bits.
const (
	paymentsOf = "payments"
	amountOf   = "amount"
)

// payment checks the record of a payment, and computes its index rows and its part of the totals.
func (c *fsck) payment() error {
	p := read(c, func(p *Payment) key { return p.ID.key() })
	if p == nil {
		return nil
	}
	amount, ok := new(big.Int).SetString(p.Amount, 10)
	if !ok {
		c.differs("the amount "+p.Amount, "a number")
		return nil
	}
	c.computed(p.timeKey(), nil)
	if p.State == PaymentReserved {
		c.computed(p.reservedKey(), nil)
		if p.Object != "" {
			c.computed(p.claimKey(), nil)
		}
	}
	if p.forgotten() != 0 {
		c.computed(p.failedKey(), nil)
	}
	c.counts(p.sumKey(), paymentsOf, 1)
	c.counts(p.sumKey(), amountOf, lowest64(amount))
	return nil
}

func lowest64(n *big.Int) uint64 {
	return new(big.Int).And(n, new(big.Int).SetUint64(1<<64-1)).Uint64()
}

func (c *fsck) paidSum() error {
	v := read(c, here[paidTotal](c))
	if v == nil {
		return nil
	}
	amount, ok := new(big.Int).SetString(v.Amount, 10)
	if !ok || v.Count == 0 {
		c.differs(fmt.Sprintf("%d payments of %s", v.Count, v.Amount), "a total of payments")
		return nil
	}
	c.tally.number(c.k, paymentsOf, v.Count, true)
	c.tally.number(c.k, amountOf, lowest64(amount), true)
	return nil
}

// paidObject checks who owns a paid object.
func (c *fsck) paidObject() error {
	v := read(c, func(v *PaidObject) key { return ownerKey(v.Object) })
	if v == nil {
		return nil
	}
	c.computed(v.endKey(), nil)
	content, err := paidContent(c.r, v)
	if err != nil {
		return nil //nolint:nilerr // the row of the content is reported, and noting has errors of the reader
	}
	if (content == nil) != v.Ended {
		c.differs(fmt.Sprintf("ended: %t", v.Ended), fmt.Sprintf("ended: %t", content == nil))
	}
	return nil
}

func (c *fsck) op() error {
	if len(c.k) != 1+len(OpID{}) {
		c.differs("a row", "nothing: the key is no operation")
		return nil
	}
	if _, err := decodeOutcome(c.v); err != nil && !isOutcome(err) {
		c.differs(valueText(c.v), "a result ("+err.Error()+")")
	}
	c.tally.row(append(table(tableOpOrder), c.k[1:]...), nil, true)
	if c.ops.bounded {
		c.counts(opNext, bytesOfOps, uint64(len(c.v)))
	}
	return nil
}

// Names of the numbers in the record about the remembered operations.
const (
	numberOfOps = "operations"
	bytesOfOps  = "bytes of results"
)

// opOrder checks a row of the order of the remembered operations.
func (c *fsck) opOrder() error {
	if len(c.k) != 9 || len(c.v) != len(OpID{}) {
		c.differs(valueText(c.v), "an operation")
		return nil
	}
	c.computed(append(table(tableOpOrder), c.v...), nil)
	c.counts(opNext, numberOfOps, 1)
	if n := binary.BigEndian.Uint64(c.k[1:]); n < c.ops.first || n >= c.ops.next {
		c.differs("an operation", fmt.Sprintf("nothing: those from %d and before %d are remembered", c.ops.first, c.ops.next))
	}
	return nil
}
