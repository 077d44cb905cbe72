package state

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ipfs/go-cid"
)

// newestPin is the newest creation time of the pins of an account.
type newestPin struct {
	account AccountID
	created Millis
}

// end checks the row with the time of an account's newest pin ever, after all its pins are read.
func (v *newestPin) end(c *fsck) error {
	if v.created == 0 {
		return nil
	}
	c.k = pinKey(v.account, pinLast)
	row, _, err := c.r.Get(c.k)
	if err != nil {
		return err
	}
	var last Millis
	if len(row) == 8 {
		last = Millis(binary.BigEndian.Uint64(row))
	}
	if last < v.created {
		c.differs(fmt.Sprint(int64(last)), fmt.Sprintf("%d or more, when its newest pin was created", v.created))
	}
	*v = newestPin{}
	return nil
}

// accountAndRest returns the account with which the key of the row begins, and what follows. ok is false
// if it begins otherwise or nothing follows, which is then told.
func (c *fsck) accountAndRest() (account AccountID, rest []byte, ok bool) {
	rest = []byte(c.k[1:])
	var err error
	account = takePart[AccountID](&rest, &err)
	if err == nil && len(rest) == 0 {
		err = fmt.Errorf("short key")
	}
	return account, rest, c.parsed(err)
}

// pins checks a row of the table of pins.
func (c *fsck) pins() error {
	account, rest, ok := c.accountAndRest()
	if !ok {
		return nil
	}
	switch rest[0] {
	case pinRow:
		return c.pin()
	case pinByID, pinByCID, pinByName, pinByMeta:
		c.stored()
	case pinCounter, pinMetaCounter:
		c.counter()
	case pinLast:
		c.number()
		return c.owner(account)
	default:
		c.differs("a row", "nothing: there is no such part of the table")
	}
	return nil
}

// pin checks the record of a pin, and computes its index rows and what it counts for.
func (c *fsck) pin() error {
	p := read(c, rowKey)
	if p == nil {
		return nil
	}
	id, err := cid.Decode(p.CID)
	if err != nil {
		c.differs("CID "+p.CID, "a CID")
		return nil
	}
	if err := c.ageOf(p); err != nil {
		return err
	}
	facts, err := c.of(p.Account)
	if err != nil {
		return err
	}
	if err := c.owner(p.Account); err != nil {
		return err
	}
	c.computed(locatorKey(p.Account, p.ID), binary.BigEndian.AppendUint64([]byte{byte(p.Status)}, uint64(p.Created)))
	c.computed(cidIndex(p.Account, id).descending(p.Created), []byte(p.ID))
	if p.Name != "" {
		c.computed(nameIndex(p.Account, p.Name).descending(p.Created), []byte(p.ID))
		if p.Created <= facts.packed {
			c.computed(packedNameAt(p.Account, p.Created), []byte(p.Name))
		}
	}
	if p.Until > 0 {
		c.computed(endKey(p), nil)
	}
	for level := range counterShifts {
		c.counts(counterKey(p.Account, p.Status, level, p.Created), aCounter, 1)
	}
	c.counts(totalKey(p.Status), aCounter, 1)
	if facts.quota {
		c.counts(quotaKey(p.Account), bytesOfRecords, p.weight())
	}
	c.pairsOf(p)
	return c.rootOfPin(p, RootOf(id))
}

// ageOf notes the creation time of a pin.
func (c *fsck) ageOf(p *Pin) error {
	if p.Account != c.newest.account {
		row := c.k
		if err := c.newest.end(c); err != nil {
			return err
		}
		c.k = row
	}
	c.newest = newestPin{p.Account, max(c.newest.created, p.Created)}
	return nil
}

// pairsOf computes the rows of the index by meta.
func (c *fsck) pairsOf(p *Pin) {
	if c.indexing == nil || !c.indexing.Complete && string(locatorKey(p.Account, p.ID)) > c.indexing.To {
		return
	}
	for _, pair := range p.pairs() {
		c.computed(metaIndex(p.Account, pair).descending(p.Created), []byte{byte(p.Status)})
		if p.Status != Pinned {
			continue
		}
		for level := range counterShifts {
			c.counts(metaCounter(p.Account, pair, level, p.Created), aCounter, 1)
		}
	}
}

// rootOfPin compares a pin with its root, and computes the rows by which it is attached. A pin that
// has failed is attached only while the pins of its root are being changed.
func (c *fsck) rootOfPin(p *Pin, k RootKey) error {
	root, err := c.rootOf(k)
	if err != nil {
		return err
	}
	if p.Status == Failed {
		if !root.settling {
			return nil
		}
		if attached, err := has(c.r, attachedKey(p, k)); err != nil || !attached {
			return err
		}
	}
	c.computed(attachedKey(p, k), nil)
	if len(p.Origins) > 0 {
		c.computed(originKey(p, k), nil)
	}
	if p.MaxBytes > 0 {
		c.computed(boundedKey(p, k), nil)
	}
	switch r := root.record; {
	case r == nil:
		c.differs("status "+p.Status.String(), "status failed: there is no root "+k.String())
	case root.settling:
	case p.Status != r.Status && !r.UnderReplicated:
		c.differs("status "+p.Status.String(), "status "+r.Status.String()+", as root "+k.String())
	case r.Status == Pinned && p.MaxBytes > 0 && r.Size > p.MaxBytes:
		c.differs("status "+p.Status.String(), fmt.Sprintf("status failed: root %s has %d bytes, and the pin permits %d", k, r.Size, p.MaxBytes))
	}
	return nil
}

// packedNameAt is the key under which Fsck compares the names of pins with the packed names: no row
// has it.
func packedNameAt(a AccountID, created Millis) key { return chunksOf(a).descending(created) }

// lastChunk is the chunk or the run of packed pins that was read last.
type lastChunk struct {
	prefix string
	oldest Millis
}

// packedPins checks a row of the packed names and pairs.
func (c *fsck) packedPins() error {
	account, rest, ok := c.accountAndRest()
	if !ok {
		return nil
	}
	if err := c.owner(account); err != nil {
		return err
	}
	switch rest[0] {
	case namesTo:
		c.number()
		return nil
	case namesPair:
		c.stored()
		return nil
	case namesChunk, namesRun:
	default:
		c.differs("a row", "nothing: there is no such part of the table")
		return nil
	}
	oldest, form, err := readChunkKey(rest[1:])
	if !c.parsed(err) {
		return nil
	}
	if form == chunkGone {
		return c.needs(append(kept(c.k[:len(c.k)-1]), chunkRow), "such row of packed pins")
	}
	facts, err := c.of(account)
	if err != nil {
		return err
	}
	before := facts.packed + 1
	prefix := string(c.k[:len(c.k)-9])
	if c.packed.prefix == prefix {
		before = c.packed.oldest
	}
	c.packed = lastChunk{prefix, oldest}
	gone, _, err := c.r.Get(append(kept(c.k[:len(c.k)-1]), chunkGone))
	if err != nil {
		return err
	}
	if rest[0] == namesChunk {
		c.chunk(account, oldest, before, gone)
		return nil
	}
	return c.run(account, oldest, before, gone)
}

// chunk checks a row of packed names. The pins that were created from oldest on and before another
// time belong to it.
func (c *fsck) chunk(a AccountID, oldest, before Millis, gone []byte) {
	v, err := readChunk(oldest, c.v)
	var made []Millis
	if err == nil {
		made, err = v.created(nil)
	}
	if err != nil {
		c.differs(fmt.Sprintf("%d bytes", len(c.v)), "packed names ("+err.Error()+")")
		return
	}
	names := v.list()
	n := countGone(gone)
	if len(names) != v.count || v.count == 0 || v.count > chunkNames || v.names[0] != nameEnd ||
		v.ascii != isASCII(bytes.ReplaceAll(v.names, []byte{nameEnd}, nil)) ||
		len(gone) > 0 && (n == 0 || n*goneShare >= v.count || len(gone) != (v.count+7)/8) {
		c.differs(fmt.Sprintf("%d names, of which %d are gone, and the number %d", len(names), n, v.count), "names that agree with their number and their marks")
		return
	}
	for i, at := range made {
		if at < oldest || at >= before || i > 0 && at >= made[i-1] {
			c.differs(fmt.Sprintf("a pin of %d", at), fmt.Sprintf("pins from %d and before %d, the newest first", oldest, before))
			return
		}
		if !isGone(gone, i) {
			c.tally.row(packedNameAt(a, at), names[i], true)
		}
	}
}

// run checks a row of pins that are indexed by bits, and computes the rows with their bits.
func (c *fsck) run(a AccountID, oldest, before Millis, goneRow []byte) error {
	run, err := readRun(oldest, c.v)
	var made []Millis
	if err == nil {
		made, err = run.created(nil)
	}
	var gone bitmap
	if err == nil {
		gone, err = readBitmap(goneRow)
	}
	if err != nil {
		c.differs(fmt.Sprintf("%d bytes", len(c.v)), "a run of pins ("+err.Error()+")")
		return nil
	}
	if oldest <= 0 || run.newest >= before || len(made) == 0 || gone.count() >= len(made) || len(goneRow) > 0 && gone.count() == 0 {
		c.differs(fmt.Sprintf("pins to %d, %d of %d gone", run.newest, gone.count(), len(made)), fmt.Sprintf("pins before %d, of which some are left", before))
		return nil
	}
	for i, at := range made {
		if at < oldest || at > run.newest || i > 0 && at >= made[i-1] {
			c.differs(fmt.Sprintf("a pin of %d", at), fmt.Sprintf("pins from %d to %d, the newest first", oldest, run.newest))
			return nil
		}
	}
	return c.bits(a, run, made, &gone)
}

// bits reads the pins of a run and computes the rows with their bits.
func (c *fsck) bits(a AccountID, run *pinRun, made []Millis, gone *bitmap) error {
	left := len(made) - gone.count()
	rows := map[pair]*pairBits{}
	for _, s := range Statuses() {
		prefix := pinKey(a, pinRow).byte(byte(s))
		lower, upper := kept(prefix).descending(run.newest), kept(prefix).descending(run.oldest-1)
		err := c.r.Scan(lower, upper, false, func(k, row []byte) (bool, error) {
			created, err := createdOf(k, prefix)
			if err != nil {
				return true, nil // reported with its own row
			}
			_, meta, err := peekPin(row)
			if err != nil {
				return true, nil
			}
			pairs, err := peekPairs(&meta)
			if err != nil || len(pairs) == 0 {
				return true, nil
			}
			at, ok := placeIn(made, created)
			if !ok || gone.has(at) {
				c.differs("no pin of "+fmt.Sprint(int64(created)), "that pin, because it has pairs")
				return true, nil
			}
			left--
			for _, p := range pairs {
				if rows[p] == nil {
					rows[p] = &pairBits{oldest: run.oldest, newest: run.newest}
				}
				rows[p].bits.set(at)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	if left != 0 {
		c.differs(fmt.Sprintf("%d more pins", left), "no others than those that exist and have pairs")
	}
	for p, v := range rows {
		k := bitsKey(a, p, run.oldest)
		if v.bits.count() < minPairPins { // a row is there only if there were more pins once
			if there, err := has(c.r, k); err != nil || !there {
				if err != nil {
					return err
				}
				continue
			}
		}
		row, err := appendPairBits(nil, v)
		if err != nil {
			return err
		}
		c.computed(k, row)
	}
	return nil
}
