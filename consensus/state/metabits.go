package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Pairs of meta have a bitmap index in addition to the index with one entry per pin. A run is up
// to runPins pins of an account that are indexed by their pairs, in the order of their creation.
// When the names of an account are packed, its pins since the last packing become runs. A row of a
// run has the creation times of its pins. For each pair that many pins of a run have, another row
// has a bit for each pin of the run. So a list by several pairs compares bits, and reads creation
// times only for the pins that it returns. Pairs that few pins of a run have are only in the index
// with one entry per pin. No pin is ever added to a run, because new pins have later creation
// times. When a pin is deleted, its bits are cleared, and a bit in a row beside its run is set.
// Bits do not depend on the status of a pin.

// Limits of the bitmap index.
const (
	// runPins is the largest number of pins of a run.
	runPins = 512
	// minPairPins is the smallest number of pins of a run for which a pair gets a row. The index
	// entries of fewer pins take about as long to read as the row.
	minPairPins = 8

	maxRunTimes = runPins * binary.MaxVarintLen64
)

// bitmap has a bit for each pin of a run, the newest pin first.
type bitmap [runPins / 64]uint64

func (b *bitmap) has(at int) bool { return b[at/64]&(1<<(at%64)) != 0 }

func (b *bitmap) set(at int) { b[at/64] |= 1 << (at % 64) }

func (b *bitmap) clear(at int) { b[at/64] &^= 1 << (at % 64) }

// and clears the bits that other does not have.
func (b *bitmap) and(other *bitmap) {
	for i := range b {
		b[i] &= other[i]
	}
}

func (b *bitmap) count() (n int) {
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// bytes returns the bits without the zero bytes at the end.
func (b *bitmap) bytes() []byte {
	text := make([]byte, 0, runPins/8)
	for _, word := range b {
		text = binary.LittleEndian.AppendUint64(text, word)
	}
	return bytes.TrimRight(text, "\x00")
}

// readBitmap decodes bits that bytes has returned.
func readBitmap(text []byte) (b bitmap, err error) {
	if len(text) > runPins/8 {
		return b, fmt.Errorf("state: a bitmap of %d bytes", len(text))
	}
	var all [runPins / 8]byte
	copy(all[:], text)
	for i := range b {
		b[i] = binary.LittleEndian.Uint64(all[8*i:])
	}
	return b, nil
}

// runsOf returns the prefix of the rows of an account's runs, newest first.
func runsOf(a AccountID) key { return packedNames(a).byte(namesRun) }

// runGoneKey returns the key of the row with the bits of a run's deleted pins. runKey, the key of
// the run itself, follows it directly.
func runGoneKey(a AccountID, oldest Millis) key { return runsOf(a).descending(oldest).byte(chunkGone) }

func runKey(a AccountID, oldest Millis) key { return runsOf(a).descending(oldest).byte(chunkRow) }

// bitsOf returns the prefix of the rows of an account with the bits of a pair, newest run first.
func bitsOf(a AccountID, p pair) key { return append(packedNames(a).byte(namesPair), p[:]...) }

func bitsKey(a AccountID, p pair, oldest Millis) key { return bitsOf(a, p).descending(oldest) }

// pinRun is a row with the creation times of the pins of a run.
type pinRun struct {
	oldest, newest Millis // bounds of the creation times; oldest is from the key
	count          int
	times          []byte // varints: how much earlier than newest the newest pin was created, then how much earlier each next one
}

// Code encodes the record, or decodes it if c is a decoder. When it decodes, oldest must be set.
func (v *pinRun) Code(c *codec.Coder) {
	c.Version(1)
	n, span := uint16(v.count), v.newest-v.oldest
	codec.Uint(c, &n)
	codec.Int(c, &span)
	v.count, v.newest = int(n), v.oldest+span
	codec.Bytes(c, &v.times, maxRunTimes)
}

// readRun decodes the row of a run.
func readRun(oldest Millis, row []byte) (*pinRun, error) {
	v := &pinRun{oldest: oldest}
	c := codec.Decoder(row)
	v.Code(c)
	_, err := c.Finish()
	if err == nil && v.count > runPins {
		err = fmt.Errorf("%d pins", v.count)
	}
	if err != nil {
		return nil, fmt.Errorf("state: run of pins at %d: %w", oldest, err)
	}
	return v, nil
}

// created appends to made the creation times of the run's pins, newest first.
func (v *pinRun) created(made []Millis) ([]Millis, error) {
	created, rest := v.newest, v.times
	for i := range v.count {
		d, n := binary.Uvarint(rest)
		if n <= 0 {
			return made, fmt.Errorf("state: run of pins at %d has %d of %d times", v.oldest, i, v.count)
		}
		rest, created = rest[n:], created-Millis(d)
		made = append(made, created)
	}
	return made, nil
}

// placeIn returns the index of a creation time in times that are sorted newest first.
func placeIn(made []Millis, created Millis) (at int, ok bool) {
	return slices.BinarySearchFunc(made, created, func(a, b Millis) int { return cmp.Compare(b, a) })
}

// pairBits is a row with the bits of the pins of a run that have a pair.
type pairBits struct {
	oldest, newest Millis // bounds of the run, as in pinRun
	bits           bitmap
}

// appendPairBits appends the encoded row to buf.
func appendPairBits(buf []byte, v *pairBits) ([]byte, error) {
	c := codec.Encoder(buf)
	c.Version(1)
	span, text := v.newest-v.oldest, v.bits.bytes()
	codec.Int(c, &span)
	codec.Bytes(c, &text, runPins/8)
	row, err := c.Finish()
	if err != nil {
		return nil, fmt.Errorf("state: bits of a pair: %w", err)
	}
	return row, nil
}

// readPairBits decodes a row that appendPairBits has encoded.
func readPairBits(oldest Millis, row []byte) (v pairBits, err error) {
	c := codec.Decoder(row)
	c.Version(1)
	var span Millis
	codec.Int(c, &span)
	text := codec.Text(c, runPins/8)
	if _, err := c.Finish(); err != nil {
		return v, fmt.Errorf("state: bits of a pair at %d: %w", oldest, err)
	}
	v.oldest, v.newest = oldest, oldest+span
	v.bits, err = readBitmap(text)
	return v, err
}

// peekPairs returns the pairs under which a pin is indexed, in any order, without manyPairs. meta
// is a decoder at the position of the pin's meta.
func peekPairs(meta *codec.Coder) (all []pair, err error) {
	n := codec.Count(meta, MaxMetaPairs)
	if n > maxIndexedPairs {
		return nil, nil
	}
	for range n {
		k, value := codec.Text(meta, MaxMetaBytes), codec.Text(meta, MaxMetaBytes)
		all = append(all, pairOf(k, value))
	}
	if err := meta.Err(); err != nil {
		return nil, fmt.Errorf("state: meta of a pin: %w", err)
	}
	return all, nil
}

// packPairs makes runs of pins that were created after from and not after to. pins are all such
// pins of the account, oldest first.
func packPairs(tx Tx, a AccountID, from, to Millis, pins []packedPin) error {
	pins = slices.DeleteFunc(slices.Clone(pins), func(p packedPin) bool { return len(p.pairs) == 0 })
	for oldest := from + 1; len(pins) > 0; {
		n, newest := min(len(pins), runPins), to
		if n < len(pins) {
			newest = pins[n-1].created
		}
		slices.Reverse(pins[:n])
		if err := writeRun(tx, a, &pinRun{oldest: oldest, newest: newest}, pins[:n]); err != nil {
			return err
		}
		pins, oldest = pins[n:], newest+1
	}
	return nil
}

// writeRun writes the rows of a run whose pins are sorted newest first. It writes nothing if no
// pair gets a row.
func writeRun(tx Tx, a AccountID, run *pinRun, pins []packedPin) error {
	type has struct {
		pair pair
		at   int
	}
	var all []has
	last := run.newest
	for i, p := range pins {
		run.times = binary.AppendUvarint(run.times, uint64(last-p.created))
		last = p.created
		for _, pair := range p.pairs {
			all = append(all, has{pair, i})
		}
	}
	run.count = len(pins)
	slices.SortFunc(all, func(a, b has) int { return bytes.Compare(a.pair[:], b.pair[:]) })
	written := false
	for len(all) > 0 {
		row := pairBits{oldest: run.oldest, newest: run.newest}
		n := 0
		for ; n < len(all) && all[n].pair == all[0].pair; n++ {
			row.bits.set(all[n].at)
		}
		if n >= minPairPins {
			written = true
			if err := putBits(tx, a, all[0].pair, &row); err != nil {
				return err
			}
		}
		all = all[n:]
	}
	if !written {
		return nil
	}
	return put(tx, runKey(a, run.oldest), run)
}

// putBits writes the bits of a pair, or deletes the row if no bits are left.
func putBits(tx Tx, a AccountID, p pair, v *pairBits) error {
	if v.bits.count() == 0 {
		return tx.Delete(bitsKey(a, p, v.oldest))
	}
	row, err := appendPairBits(nil, v)
	if err != nil {
		return err
	}
	return tx.Set(bitsKey(a, p, v.oldest), row)
}

// unpackPairs clears the bits of a deleted pin, if the pin belongs to a run.
func unpackPairs(tx Tx, p *Pin) error {
	pairs := p.pairs()
	if len(pairs) == 0 || pairs[0] == manyPairs {
		return nil
	}
	to, err := packedTo(tx, p.Account)
	if err != nil || p.Created > to {
		return err
	}
	run, gone, err := runAt(tx, p.Account, p.Created)
	if err != nil || run == nil || run.newest < p.Created {
		return err
	}
	made, err := run.created(nil)
	if err != nil {
		return err
	}
	at, ok := placeIn(made, p.Created)
	if !ok || gone.has(at) {
		return fmt.Errorf("state: pin %s of %d is not in the run of %s at %d", p.ID, p.Created, p.Account, run.oldest)
	}
	for _, pair := range pairs {
		row, ok, err := tx.Get(bitsKey(p.Account, pair, run.oldest))
		if err != nil {
			return err
		}
		if !ok { // few pins of the run have the pair
			continue
		}
		v, err := readPairBits(run.oldest, row)
		if err != nil {
			return err
		}
		if !v.bits.has(at) {
			return fmt.Errorf("state: pin %s of %d is not in the bits of a pair of %s at %d", p.ID, p.Created, p.Account, run.oldest)
		}
		v.bits.clear(at)
		if err := putBits(tx, p.Account, pair, &v); err != nil {
			return err
		}
	}
	gone.set(at)
	if gone.count() < run.count {
		return tx.Set(runGoneKey(p.Account, run.oldest), gone.bytes())
	}
	if err := tx.Delete(runGoneKey(p.Account, run.oldest)); err != nil {
		return err
	}
	return tx.Delete(runKey(p.Account, run.oldest))
}

// runAt returns the newest run that begins at or before a time, and the bits of its deleted pins.
// It returns nil if there is none.
func runAt(r Reader, a AccountID, t Millis) (run *pinRun, gone bitmap, err error) {
	prefix := runsOf(a)
	err = r.Scan(slices.Clone(prefix).descending(t), prefix.end(), false, func(k, row []byte) (bool, error) {
		oldest, form, err := readChunkKey(k[len(prefix):])
		if err != nil {
			return false, err
		}
		if form == chunkGone {
			gone, err = readBitmap(row)
			return true, err
		}
		run, err = readRun(oldest, row)
		return false, err
	})
	return run, gone, err
}
