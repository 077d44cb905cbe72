package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// MetaIndexLevel is the lowest feature level with an index of pins by the key-value pairs of
// their meta.
const MetaIndexLevel FeatureLevel = 10

// Limits of the index of pins by meta.
const (
	// maxIndexedPairs is the largest number of pairs of a pin that get an index entry each. A pin
	// with more pairs gets a single entry under manyPairs instead, so that the number of entries
	// of a pin is bounded.
	maxIndexedPairs = 16
	// One IndexPins reads at most indexPins pins. It ends earlier, after the pin with which the
	// pins read have indexBytes bytes or indexPairs pairs.
	indexPins  = 1024
	indexPairs = 2048
	indexBytes = 4 << 20
)

// pair identifies a key-value pair of meta in the index: the first bytes of a SHA-256 hash of the
// pair.
type pair [16]byte

// manyPairs is the special value under which pins with more than maxIndexedPairs pairs are
// indexed.
var manyPairs = pair(bytes.Repeat([]byte{0xff}, len(pair{})))

func pairOf[T ~string | ~[]byte](k, value T) (p pair) {
	text := binary.AppendUvarint(make([]byte, 0, 64), uint64(len(k)))
	sum := sha256.Sum256(append(append(text, k...), value...))
	copy(p[:], sum[:])
	return p
}

// pairs returns the pairs under which a pin is indexed, in an order that is the same on all
// nodes.
func (v *Pin) pairs() []pair {
	switch n := len(v.Meta); {
	case n == 0:
		return nil
	case n > maxIndexedPairs:
		return []pair{manyPairs}
	}
	all := make([]pair, 0, len(v.Meta))
	for k, value := range v.Meta {
		all = append(all, pairOf(k, value))
	}
	slices.SortFunc(all, func(a, b pair) int { return bytes.Compare(a[:], b[:]) })
	return all
}

func metaIndex(a AccountID, p pair) key { return append(pinKey(a, pinByMeta), p[:]...) }

// metaCounters returns the key prefix of the counters of pinned pins with a pair, at a level of
// counterShifts.
func metaCounters(a AccountID, p pair, level int) key {
	return append(pinKey(a, pinMetaCounter), p[:]...).byte(byte(level))
}

func metaCounter(a AccountID, p pair, level int, t Millis) key {
	return metaCounters(a, p, level).descending(t >> counterShifts[level])
}

var indexingKey = metaKey("pins/indexing")

// indexing records the progress of IndexPins.
type indexing struct {
	Complete bool
	To       string // locator key of the last pin that IndexPins has added; pins are added in the order of these keys
	Pins     uint64 // number of pins that IndexPins has read
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *indexing) Code(c *codec.Coder) {
	c.Version(1)
	codec.Bool(c, &v.Complete)
	codec.String(c, &v.To, maxLocatorKey)
	codec.Uint(c, &v.Pins)
}

// maxLocatorKey is more than the length of any locatorKey in bytes.
const maxLocatorKey = 2*MaxIDLen + 16

// foundMetaIndex creates the record of the index. In a cluster that has pins already, IndexPins
// then builds the index.
func foundMetaIndex(tx Tx) error {
	n, err := pinsOfAll(tx)
	if err != nil {
		return err
	}
	return put(tx, indexingKey, &indexing{Complete: n == 0})
}

// pinsOfAll returns the number of pins of all accounts.
func pinsOfAll(r Reader) (n uint64, err error) {
	pins, _, err := View{r: r}.Totals()
	for _, of := range pins {
		n += of
	}
	return n, err
}

// inMetaIndex returns whether the index includes, or must include, a pin with meta: the index is
// complete or IndexPins has passed the pin.
func inMetaIndex(r Reader, p *Pin) (bool, error) {
	at, err := get[indexing](r, indexingKey)
	if err != nil || at == nil {
		return false, err
	}
	return at.Complete || string(locatorKey(p.Account, p.ID)) <= at.To, nil
}

// metaIndexed returns whether the index is complete.
func metaIndexed(r Reader) (bool, error) {
	at, err := get[indexing](r, indexingKey)
	return at != nil && at.Complete, err
}

// addToMetaIndex adds a pin that is not in the index.
func addToMetaIndex(tx Tx, p *Pin) error { return changeMetaIndex(tx, p, 0, p.Status) }

// reindexPin changes the index entries of a pin when its status changes; from is 0 for a new pin,
// and to is 0 for a deleted one. It does nothing if IndexPins will reach the pin later.
func reindexPin(tx Tx, p *Pin, from, to Status) error {
	if len(p.Meta) == 0 || from == to {
		return nil
	}
	if in, err := inMetaIndex(tx, p); err != nil || !in {
		return err
	}
	return changeMetaIndex(tx, p, from, to)
}

func changeMetaIndex(tx Tx, p *Pin, from, to Status) error {
	for _, pair := range p.pairs() {
		k := metaIndex(p.Account, pair).descending(p.Created)
		var err error
		if to == 0 {
			err = tx.Delete(k)
		} else {
			err = tx.Set(k, []byte{byte(to)})
		}
		if err != nil {
			return err
		}
		switch Pinned {
		case to:
			err = countMeta(tx, p, pair, 1)
		case from:
			err = countMeta(tx, p, pair, -1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func countMeta(tx Tx, p *Pin, pair pair, delta int64) error {
	for level := range counterShifts {
		if err := count(tx, metaCounter(p.Account, pair, level, p.Created), delta); err != nil {
			return err
		}
	}
	return nil
}

// IndexPins adds the next pins to the index by meta, in a cluster that had pins before
// MetaIndexLevel. The leader proposes it until View.PinsToIndex returns nil. It changes nothing
// if the index is no longer at From. A pin that is created meanwhile is indexed at once if
// IndexPins has passed its place in the order, and later by IndexPins otherwise.
type IndexPins struct {
	From string // value that View.PinsToIndex has returned
	Most uint32 // largest number of pins to read, at most indexPins
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *IndexPins) Code(c *codec.Coder) {
	codec.String(c, &v.From, maxLocatorKey)
	codec.Uint(c, &v.Most)
}

func (v *IndexPins) apply(tx Tx, _ *entry) (Result, error) {
	if err := needsLevel(tx, MetaIndexLevel, "the index of pins by meta needs feature level %d"); err != nil {
		return Result{}, err
	}
	at, err := get[indexing](tx, indexingKey)
	if err != nil || at == nil || at.Complete || at.To != v.From {
		return Result{}, err
	}
	after, err := indexedTo(tx, at)
	if err != nil {
		return Result{}, err
	}
	found, end, err := pinsAfter(tx, after, min(int(v.Most), indexPins))
	if err != nil {
		return Result{}, err
	}
	pairs, size := 0, 0
	for i := range found {
		row, err := rowAt(tx, &found[i])
		if err != nil {
			return Result{}, err
		}
		p, err := decode[Pin](row)
		if err != nil {
			return Result{}, err
		}
		if err := addToMetaIndex(tx, p); err != nil {
			return Result{}, err
		}
		at.To, at.Pins = string(locatorKey(p.Account, p.ID)), at.Pins+1
		if pairs, size = pairs+len(p.Meta), size+len(row); pairs >= indexPairs || size >= indexBytes {
			end = end && i == len(found)-1
			break
		}
	}
	if end {
		*at = indexing{Complete: true}
	}
	return Result{}, put(tx, indexingKey, at)
}

// wholeIndexLevel is the lowest feature level at which IndexPins begins with the first pin. Below it,
// IndexPins reads an account id from the key of the first row of the whole store, although that row is
// not about a pin, and so omits the pins of accounts that precede this id in the order of keys.
const wholeIndexLevel FeatureLevel = 11

// indexedTo returns the key after which the next IndexPins reads pins.
func indexedTo(r Reader, at *indexing) (key, error) {
	level, err := levelOf(r)
	if at.To == "" && level >= wholeIndexLevel {
		return table(tablePins), err
	}
	return key(at.To), err
}

// pinsAfter returns the locators of up to most pins after the key of a locator, in key order. end
// means that there are no further pins.
func pinsAfter(r Reader, after key, most int) (pins []Pin, end bool, err error) {
	for len(pins) < most {
		account, ok, err := accountAt(r, after)
		if err != nil || !ok {
			return pins, err == nil, err
		}
		all := pinKey(account, pinByID)
		from := all
		if bytes.Compare(after, all) >= 0 {
			from = append(slices.Clone(after), 0)
		}
		if bytes.Compare(from, all.end()) < 0 {
			err = r.Scan(from, all.end(), false, func(k, value []byte) (bool, error) {
				id, _, err := readPart[RequestID](k[len(all):])
				if err != nil {
					return false, err
				}
				at, err := readLocator(account, id, value)
				if err != nil {
					return false, err
				}
				pins = append(pins, *at)
				return len(pins) < most, nil
			})
			if err != nil {
				return nil, false, err
			}
		}
		after = part(table(tablePins), account).end()
	}
	return pins, false, nil
}

// accountAt returns the account of the first pin at or after a key. ok is false if there is none.
func accountAt(r Reader, from key) (a AccountID, ok bool, err error) {
	err = r.Scan(from, table(tablePins).end(), false, func(k, _ []byte) (bool, error) {
		a, _, err = readPart[AccountID](k[1:])
		ok = err == nil
		return false, err
	})
	return a, ok, err
}

// PinsToIndex returns the next IndexPins to propose, the number of pins that earlier commands
// have read, and the number of all pins. next is nil if the index by meta is complete, or if the
// cluster is below MetaIndexLevel.
func (v View) PinsToIndex() (next *IndexPins, done, of uint64, err error) {
	at, err := get[indexing](v.r, indexingKey)
	if err != nil || at == nil || at.Complete {
		return nil, 0, 0, err
	}
	if of, err = pinsOfAll(v.r); err != nil {
		return nil, 0, 0, err
	}
	return &IndexPins{From: at.To, Most: indexPins}, at.Pins, of, nil
}
