package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// PackedNamesLevel is the lowest feature level with packed names.
const PackedNamesLevel FeatureLevel = 11

// The names of an account's pins are packed, many in one row, in the order of the pins' creation.
// So a list by a part of a name reads few large rows instead of one row per pin. A chunk is a row
// with the names of the pins that were created in a range of time; the chunks of an account cover
// all times up to packedTo. No name is ever added to a chunk, because new pins have later
// creation times. When a pin is deleted, a bit in a row beside the chunk is set; the chunk is
// rewritten when a quarter of its names are deleted.

// Limits of packed names.
const (
	// packEvery decides when names are packed: a new pin whose creation time in milliseconds is a
	// multiple of packEvery packs the names of all pins up to itself. For an account that creates
	// one pin per millisecond, that is every packEvery pins.
	packEvery = 512
	// A chunk has at most chunkNames names. It also ends after the name with which it reaches
	// chunkBytes.
	chunkNames = 512
	chunkBytes = 16 << 10
	// One packing reads at most packRows pins of each status. It also ends after the pins with
	// which it reaches packBytes. That is enough for the pins since the last packing, and for
	// some that an older release has left unpacked.
	packRows  = 2048
	packBytes = 8 << 20
	// goneShare decides when a chunk is rewritten: when one in goneShare of its names is deleted.
	goneShare = 4
	// smallAccount is the cost, in pins, that PackNames counts for each account in addition to
	// the pins that it reads.
	smallAccount = 8

	maxTimesBytes = chunkNames * binary.MaxVarintLen64
	maxNamesBytes = chunkBytes + maxNameBytes + chunkNames + 1
)

// nameEnd is the byte before the first name of a chunk and after each name. It never occurs in
// UTF-8.
const nameEnd = 0xff

func packedNames(a AccountID) key { return part(table(tableNames), a) }

func packedToKey(a AccountID) key { return packedNames(a).byte(namesTo) }

// chunksOf returns the prefix of the rows of an account's chunks, newest first.
func chunksOf(a AccountID) key { return packedNames(a).byte(namesChunk) }

// goneKey returns the key of the row with the bits of a chunk's deleted names. chunkKey, the key
// of the chunk itself, follows it directly.
func goneKey(a AccountID, oldest Millis) key { return chunksOf(a).descending(oldest).byte(chunkGone) }

func chunkKey(a AccountID, oldest Millis) key { return chunksOf(a).descending(oldest).byte(chunkRow) }

// readChunkKey decodes the part of a row's key that follows the prefix of chunksOf. form is
// chunkGone or chunkRow.
func readChunkKey(k []byte) (oldest Millis, form byte, err error) {
	if len(k) != 8+1 || k[8] != chunkGone && k[8] != chunkRow {
		return 0, 0, fmt.Errorf("state: key %x of packed names", k)
	}
	return Millis(^binary.BigEndian.Uint64(k)), k[8], nil
}

// packedTo returns the creation time up to which the names of an account's pins are packed, or 0
// if none are.
func packedTo(r Reader, a AccountID) (Millis, error) {
	to, err := counter(r, packedToKey(a))
	return Millis(to), err
}

// chunk is a row of packed names, newest pin first.
type chunk struct {
	oldest Millis // from the key; lower bound of the creation times of the chunk's pins
	count  int
	ascii  bool   // all characters are ASCII
	times  []byte // varints: how much later than oldest the newest pin was created, then how much earlier each next one
	names  []byte // nameEnd, then each name and a nameEnd
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *chunk) Code(c *codec.Coder) {
	c.Version(1)
	n := uint16(v.count)
	codec.Uint(c, &n)
	v.count = int(n)
	codec.Bool(c, &v.ascii)
	codec.Bytes(c, &v.times, maxTimesBytes)
	codec.Bytes(c, &v.names, maxNamesBytes)
}

// readChunk decodes a chunk. The result refers to the bytes of row.
func readChunk(oldest Millis, row []byte) (chunk, error) {
	c := codec.Decoder(row)
	c.Version(1)
	var n uint16
	codec.Uint(c, &n)
	v := chunk{oldest: oldest, count: int(n)}
	codec.Bool(c, &v.ascii)
	v.times = codec.Text(c, maxTimesBytes)
	v.names = codec.Text(c, maxNamesBytes)
	if _, err := c.Finish(); err != nil {
		return v, fmt.Errorf("state: packed names: %w", err)
	}
	return v, nil
}

// each calls fn with the index and the creation time of each of the chunk's pins, newest first,
// until fn returns false.
func (v *chunk) each(fn func(at int, created Millis) (more bool)) error {
	created := v.oldest
	rest := v.times
	for i := range v.count {
		d, n := binary.Uvarint(rest)
		if n <= 0 {
			return fmt.Errorf("state: packed names of %d have %d of %d times", v.oldest, i, v.count)
		}
		if rest = rest[n:]; i == 0 {
			created += Millis(d)
		} else {
			created -= Millis(d)
		}
		if !fn(i, created) {
			break
		}
	}
	return nil
}

// created appends to made the creation times of the chunk's pins, newest first.
func (v *chunk) created(made []Millis) ([]Millis, error) {
	err := v.each(func(_ int, created Millis) bool {
		made = append(made, created)
		return true
	})
	return made, err
}

// find returns the index of the name whose pin was created at the given time, or -1.
func (v *chunk) find(created Millis) (at int, err error) {
	at = -1
	err = v.each(func(i int, is Millis) bool {
		if is == created {
			at = i
		}
		return is > created
	})
	return at, err
}

// newest returns the creation time of the newest pin of the chunk.
func (v *chunk) newest() Millis {
	d, _ := binary.Uvarint(v.times)
	return v.oldest + Millis(d)
}

// pinName is the name and the creation time of a pin.
type pinName struct {
	created Millis
	name    []byte
}

// packedPin is a pin that is being packed.
type packedPin struct {
	pinName
	pairs []pair // pairs under which the pin is indexed, without manyPairs
}

// add appends a name, whose pin must be older than that of the previous name. last is the
// creation time of the previous pin.
func (v *chunk) add(n pinName, last Millis) {
	if v.count == 0 {
		*v = chunk{oldest: v.oldest, ascii: true, names: append(make([]byte, 0, maxNamesBytes), nameEnd)}
		v.times = binary.AppendUvarint(nil, uint64(n.created-v.oldest))
	} else {
		v.times = binary.AppendUvarint(v.times, uint64(last-n.created))
	}
	v.count++
	v.ascii = v.ascii && isASCII(n.name)
	v.names = append(append(v.names, n.name...), nameEnd)
}

// newChunk returns a chunk with the given names, which are sorted newest first.
func newChunk(oldest Millis, all []pinName) *chunk {
	v := &chunk{oldest: oldest}
	last := Millis(0)
	for _, n := range all {
		v.add(n, last)
		last = n.created
	}
	return v
}

// packOnCreation packs the names of an account if the creation time of its new pin is a multiple
// of packEvery.
func packOnCreation(tx Tx, p *Pin) error {
	if p.Created%packEvery != 0 {
		return nil
	}
	level, err := levelOf(tx)
	if err != nil || level < PackedNamesLevel {
		return err
	}
	_, _, err = packNames(tx, p.Account, &packing{rows: packRows, bytes: packBytes})
	return err
}

// packing is how many rows and bytes of each status a packing may still read.
type packing struct{ rows, bytes int }

// packNames packs the names and the pairs of the oldest pins of an account that are not packed, and
// subtracts from may what it has read. It returns the number of pins that it has processed, and all, which
// is true if all pins are packed now.
func packNames(tx Tx, a AccountID, may *packing) (passed int, all bool, err error) {
	from, err := packedTo(tx, a)
	if err != nil {
		return 0, false, err
	}
	pins, to, all, err := unpacked(tx, a, from, may)
	if err != nil || len(pins) == 0 {
		return 0, all, err
	}
	slices.SortFunc(pins, func(a, b packedPin) int { return cmp.Compare(a.created, b.created) })
	if err := packPairs(tx, a, from, to, pins); err != nil {
		return 0, false, err
	}
	names := make([]pinName, 0, len(pins))
	for _, p := range pins {
		if len(p.name) > 0 {
			names = append(names, p.pinName)
		}
	}
	oldest := from + 1 // a chunk begins where the one before ends
	for len(names) > 0 {
		n, size := 0, 0
		for n < min(len(names), chunkNames) && size < chunkBytes {
			size += len(names[n].name)
			n++
		}
		next := names[n-1].created + 1
		slices.Reverse(names[:n])
		if err := put(tx, chunkKey(a, oldest), newChunk(oldest, names[:n])); err != nil {
			return 0, false, err
		}
		names, oldest = names[n:], next
	}
	return len(pins), all, tx.Set(packedToKey(a), binary.BigEndian.AppendUint64(nil, uint64(to)))
}

// unpacked returns the pins of an account that were created after from and not after to,
// unsorted. all is true if there are no later pins.
func unpacked(r Reader, a AccountID, from Millis, may *packing) (pins []packedPin, to Millis, all bool, err error) {
	until := maxMillis
	newest, rows, size := from, 0, 0
	for _, s := range Statuses() {
		n, read := 0, 0
		prefix := pinKey(a, pinRow).byte(byte(s))
		err := r.Scan(prefix, slices.Clone(prefix).descending(from), true, func(k, row []byte) (bool, error) {
			created, err := createdOf(k, prefix)
			if err != nil {
				return false, err
			}
			name, meta, err := peekPin(row)
			if err != nil {
				return false, err
			}
			pairs, err := peekPairs(&meta)
			if err != nil {
				return false, err
			}
			newest = max(newest, created)
			pins = append(pins, packedPin{pinName{created, slices.Clone(name)}, pairs})
			n, read = n+1, read+len(row)
			if n < may.rows && read < may.bytes {
				return true, nil
			}
			until = min(until, created)
			return false, nil
		})
		if err != nil {
			return nil, 0, false, err
		}
		rows, size = max(rows, n), max(size, read)
	}
	may.rows, may.bytes = may.rows-rows, may.bytes-size
	if until == maxMillis {
		return pins, newest, true, nil
	}
	return slices.DeleteFunc(pins, func(p packedPin) bool { return p.created > until }), until, false, nil
}

// unpackName marks the name of a deleted pin as deleted in its chunk, if the name is packed.
func unpackName(tx Tx, p *Pin) error {
	if p.Name == "" {
		return nil
	}
	to, err := packedTo(tx, p.Account)
	if err != nil || p.Created > to {
		return err
	}
	is, err := placeOf(tx, p.Account, p.Created)
	if err != nil {
		return err
	}
	if is.at < 0 || isGone(is.gone, is.at) {
		return fmt.Errorf("state: pin %s of %d is not in the packed names of %s", p.ID, p.Created, p.Account)
	}
	if is.gone == nil {
		is.gone = make([]byte, (is.count+7)/8)
	}
	is.gone[is.at/8] |= 1 << (is.at % 8)
	if n := countGone(is.gone); n*goneShare < is.count {
		return tx.Set(goneKey(p.Account, is.oldest), is.gone)
	}
	return renewChunk(tx, p.Account, is)
}

// renewChunk rewrites a chunk without its deleted names, or deletes the chunk if no names are
// left.
func renewChunk(tx Tx, a AccountID, is place) error {
	row, ok, err := tx.Get(chunkKey(a, is.oldest))
	if err == nil && !ok {
		err = fmt.Errorf("state: no packed names of %s at %d", a, is.oldest)
	}
	if err != nil {
		return err
	}
	v, err := readChunk(is.oldest, row)
	if err != nil {
		return err
	}
	made, err := v.created(nil)
	if err != nil {
		return err
	}
	names := v.list()
	if len(names) != len(made) {
		return fmt.Errorf("state: packed names of %s at %d are %d of %d pins", a, is.oldest, len(names), len(made))
	}
	left := make([]pinName, 0, len(made))
	for i, name := range names {
		if !isGone(is.gone, i) {
			left = append(left, pinName{made[i], name})
		}
	}
	if err := tx.Delete(goneKey(a, is.oldest)); err != nil {
		return err
	}
	if len(left) == 0 {
		return tx.Delete(chunkKey(a, is.oldest))
	}
	return put(tx, chunkKey(a, is.oldest), newChunk(is.oldest, left))
}

// list returns the names of the chunk as slices of its bytes.
func (v *chunk) list() (all [][]byte) {
	from := 1
	for i := 1; i < len(v.names); i++ {
		if v.names[i] == nameEnd {
			all, from = append(all, v.names[from:i]), i+1
		}
	}
	return all
}

// place is the position of a pin's name in a chunk.
type place struct {
	oldest Millis // start of the chunk's range of creation times
	count  int    // number of names of the chunk
	at     int    // index of the name; -1 if the chunk does not have it
	gone   []byte // bits of the deleted names; nil if there are none
}

// placeOf returns the position of the name of the pin that was created at a time.
func placeOf(r Reader, a AccountID, created Millis) (is place, err error) {
	is.at = -1
	prefix := chunksOf(a)
	err = r.Scan(slices.Clone(prefix).descending(created), prefix.end(), false, func(k, row []byte) (bool, error) {
		oldest, form, err := readChunkKey(k[len(prefix):])
		if err != nil {
			return false, err
		}
		if form == chunkGone {
			is.gone = slices.Clone(row)
			return true, nil
		}
		v, err := readChunk(oldest, row)
		if err != nil {
			return false, err
		}
		is.oldest, is.count = oldest, v.count
		is.at, err = v.find(created)
		return false, err
	})
	return is, err
}

// isGone returns whether the name with the index at is marked as deleted.
func isGone(gone []byte, at int) bool { return at/8 < len(gone) && gone[at/8]&(1<<(at%8)) != 0 }

func countGone(gone []byte) (n int) {
	for _, b := range gone {
		n += bits.OnesCount8(b)
	}
	return n
}

var packingKey = metaKey("pins/packing")

// packingNames records the progress of PackNames.
type packingNames struct {
	Complete bool
	At       string // key from which to search the next account in the table of pins; if an account is only partly packed, a key before its first row
	Pins     uint64 // number of pins that PackNames has processed
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *packingNames) Code(c *codec.Coder) {
	c.Version(1)
	codec.Bool(c, &v.Complete)
	codec.String(c, &v.At, maxPackingAt)
	codec.Uint(c, &v.Pins)
}

// maxPackingAt is more than the length of packingNames.At in bytes.
const maxPackingAt = MaxIDLen + 16

// foundPackedNames creates the record of the packing. In a cluster that has pins already,
// PackNames then packs their names.
func foundPackedNames(tx Tx) error {
	n, err := pinsOfAll(tx)
	if err != nil {
		return err
	}
	return put(tx, packingKey, &packingNames{Complete: n == 0})
}

// PackNames packs names of pins in a cluster that had pins before PackedNamesLevel. The leader
// proposes it until View.NamesToPack returns nil. It changes nothing if the packing is no longer
// at From. It skips accounts with at most packEvery pins, whose names are packed when further
// pins are created.
type PackNames struct {
	From string // value that View.NamesToPack has returned
	Most uint32 // approximate largest number of pins to read, at most packRows
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *PackNames) Code(c *codec.Coder) {
	codec.String(c, &v.From, maxPackingAt)
	codec.Uint(c, &v.Most)
}

func (v *PackNames) apply(tx Tx, _ *entry) (Result, error) {
	if err := needsLevel(tx, PackedNamesLevel, "packed names need feature level %d"); err != nil {
		return Result{}, err
	}
	at, err := get[packingNames](tx, packingKey)
	if err != nil || at == nil || at.Complete || at.At != v.From {
		return Result{}, err
	}
	if at.At == "" {
		at.At = string(table(tablePins))
	}
	may := &packing{rows: min(int(v.Most), packRows), bytes: packBytes}
	for may.rows > 0 && may.bytes > 0 {
		a, ok, err := accountAt(tx, key(at.At))
		if err != nil {
			return Result{}, err
		}
		if !ok {
			*at = packingNames{Complete: true}
			break
		}
		if err := packAccount(tx, a, at, may); err != nil {
			return Result{}, err
		}
	}
	return Result{}, put(tx, packingKey, at)
}

// packAccount packs names of an account that has more than packEvery pins, within the limits in
// may, and records the progress in at.
func packAccount(tx Tx, a AccountID, at *packingNames, may *packing) error {
	n, err := pinsOf(tx, a)
	if err != nil {
		return err
	}
	may.rows -= smallAccount
	passed, all := int(n), true
	if n > packEvery {
		if passed, all, err = packNames(tx, a, may); err != nil {
			return err
		}
	}
	at.Pins += uint64(passed)
	if all {
		at.At = string(part(table(tablePins), a).end())
		return nil
	}
	to, err := packedTo(tx, a)
	at.At = string(part(table(tablePins), a).u64(uint64(to))) // before all rows of the account
	return err
}

// pinsOf returns the number of an account's pins.
func pinsOf(r Reader, a AccountID) (sum uint64, err error) {
	for _, s := range Statuses() {
		n, err := counter(r, counterKey(a, s, len(counterShifts)-1, 0))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// NamesToPack returns the next PackNames to propose, the number of pins that earlier commands
// have processed, and the number of all pins. next is nil if the names of all older pins are
// packed, or if the cluster is below PackedNamesLevel.
func (v View) NamesToPack() (next *PackNames, done, of uint64, err error) {
	at, err := get[packingNames](v.r, packingKey)
	if err != nil || at == nil || at.Complete {
		return nil, 0, 0, err
	}
	if of, err = pinsOfAll(v.r); err != nil {
		return nil, 0, 0, err
	}
	return &PackNames{From: at.At, Most: packRows / 2}, at.Pins, of, nil
}
