package state

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// The first byte of a key is its table. A comment gives the rest of the key -> the value, where
// "-" means an empty value. Keys of data that belongs to an account begin with the account, so
// that accounts could be divided among several Raft groups later. The byte 0x00 is not listed:
// the consensus package stores its applied index there.
const (
	tableAccount     = 'A' // account -> Account
	tableEmail       = 'E' // e-mail, lower case -> account
	tableKey         = 'J' // jti -> APIKey
	tableKeysOf      = 'K' // account, jti -> -
	tablePins        = 'P' // account, then one of the pin* parts below
	tableRoot        = 'R' // root -> Root
	tableAttached    = 'Q' // root, account, request -> -
	tableOrigin      = 'F' // root, account, created descending, request of a pin with origins -> -
	tableWanted      = 'W' // node, root -> phase of the copy
	tableSettling    = 'S' // root -> -
	tableShort       = 'U' // root pinned with fewer holders than allocations -> -
	tableSurplus     = 'Z' // root with more copies than it should have -> index of the put that is why
	tableNode        = 'N' // node -> Node
	tableDrain       = '!' // node -> Drain
	tableTicket      = 'T' // ticket -> Ticket
	tableMeta        = 'M' // name -> cluster record, counters
	tableOp          = 'O' // operation -> its first result
	tableOpOrder     = 'o' // sequence -> operation
	tableCheck       = 'C' // index of the entry that asked -> Check
	tableQuarantine  = 'D' // node -> Quarantine
	tableSession     = 's' // session -> Session
	tableSessionsOf  = 'e' // account, session -> -
	tableUse         = 'u' // kind, key or session -> when it was last used
	tableMadeBy      = 'g' // jti -> generation of the key that signs it, above 0
	tableOnce        = 'I' // account, then name -> once, time -> name, or their count
	tableQuota       = 'B' // account -> Quota
	tableCharge      = 'c' // account, root -> charge
	tableArrived     = 'a' // root that is not settled -> bytes of it that have arrived
	tablePosting     = 'L' // account, posting -> Posting
	tableLedger      = '9' // account, sequence of a posting descending -> posting
	tableOwed        = '8' // account -> fraction of a credit that it owes for storage, in chargeUnits
	tableRequests    = '%' // account -> number of its requests that are not charged yet
	tableDry         = '$' // account -> agreed time of the charge that found too few credits
	tableCounted     = '&' // node -> number of the last NoteUsage with which it counted requests
	tableClosing     = 'X' // account that is closed and not cleared yet -> -
	tableBucket      = 'b' // account, name -> Bucket
	tableBorn        = 'i' // account -> incarnation of its newest bucket
	tableObject      = 'k' // account, incarnation, key -> Object
	tableUpload      = 'm' // account, incarnation, key, upload -> Upload
	tablePart        = 'p' // account, incarnation, upload, number -> Part; number 0: the upload's key
	tableStored      = 'n' // account, incarnation, what -> how many or much of it the bucket has
	tableBegun       = 'v' // since, account, incarnation, upload -> begun
	tableVersion     = 'V' // account, incarnation, key, created descending -> Object that is not current, or a delete marker
	tableVersionTime = 'w' // account, incarnation, key, its id or "null" -> its created
	tableEmptying    = 'x' // account, incarnation of a deleted bucket that has uploads -> -
	tableTurning     = 'y' // account, name of a bucket whose setting has changed -> key to go on from
	tablePartSums    = 'z' // account, incarnation, key, version -> PartSums
	tableUnhashed    = 'j' // account, incarnation, key, version without a BLAKE3 hash -> -
	tableCors        = 'h' // account, incarnation -> Cors
	tableBucketTags  = 't' // account, incarnation -> BucketTags
	tableLink        = 'q' // root, account, version -> whether it counts as public
	tableFence       = 'f' // node -> epoch
	tableAdmin       = 'Y' // account that is an administrator -> -
	tableApp         = 'r' // name -> App
	tableEnded       = 'd' // account, incarnation, upload that has ended and has parts -> ended
	tableIdentity    = 'l' // identity -> Identity
	tableIdentityOf  = 'H' // account, identity -> -
	tableOneTime     = '1' // link -> OneTimeLink
	tableUsage       = '2' // account, day -> Usage
	tableAudit       = '3' // sequence -> hash and AuditRow
	tableShare       = '5' // account, incarnation of the bucket, id -> Share
	tableShareKey    = '6' // jti of a share's key -> key of the row of the share
	tablePinEnd      = '7' // end, account, request of a pin with an end -> -
	tableBounded     = '0' // root, account, request of an attached pin that bounds the size of its content -> -
	tablePaid        = '+' // one of the paid* parts of payment.go -> payments, and the owners of paid objects
	tableNoAdmin     = '4' // e-mail, lower case, whose account no setting makes an administrator -> -
	tableDisabled    = '`' // account that is disabled -> since when
	tableNames       = '_' // account, then one of the names* parts below -> packed names and pairs of its pins

	pinByID        = 'r' // request -> locator
	pinRow         = 'l' // status, created descending -> Pin
	pinByCID       = 'c' // cid, created descending -> request
	pinByName      = 'n' // name, created descending -> request
	pinByMeta      = 'm' // pair of meta, created descending -> status
	pinCounter     = '#' // status, level, bucket descending -> count
	pinMetaCounter = '%' // pair of meta, level, bucket descending -> count of pinned pins
	pinLast        = 't' // -> created of the newest pin ever

	namesTo    = 't' // -> created up to which names and pairs are packed
	namesChunk = 'c' // lower bound of created descending, chunkGone or chunkRow
	namesRun   = 'r' // lower bound of created descending, chunkGone or chunkRow
	namesPair  = 'p' // pair of meta, lower bound of created of a run descending -> pairBits
	chunkGone  = 0   // -> bits of the pins of the chunk or run that are gone
	chunkRow   = 1   // -> chunk or pinRun
)

// key is a key of the store. Methods append to it. A part of variable length is preceded by its
// length, so that a key of one owner is never a prefix of a key of another.
type key []byte

func table(t byte) key { return append(make(key, 0, 96), t) }

func (k key) byte(b byte) key { return append(k, b) }

func part[S ~string](k key, s S) key {
	return append(binary.BigEndian.AppendUint16(k, uint16(len(s))), s...)
}

func (k key) u64(v uint64) key { return binary.BigEndian.AppendUint64(k, v) }

func (k key) u16(v uint16) key { return binary.BigEndian.AppendUint16(k, v) }

// ordered appends a string in a form that keeps the order of strings even if more parts follow: a
// zero byte becomes 0x00 0xff, and 0x00 0x01 marks the end.
func (k key) ordered(s string) key { return append(k.orderedPrefix(s), 0x00, 0x01) }

// orderedPrefix appends the common prefix of all ordered strings that begin with s.
func (k key) orderedPrefix(s string) key {
	for i := range len(s) {
		k = append(k, s[i])
		if s[i] == 0x00 {
			k = append(k, 0xff)
		}
	}
	return k
}

// readOrdered decodes a string that ordered has appended, and returns the bytes after it.
func readOrdered(k []byte) (s string, rest []byte, err error) {
	out := make([]byte, 0, len(k))
	for i := 0; i < len(k); i++ {
		if k[i] != 0x00 {
			out = append(out, k[i])
			continue
		}
		if i++; i == len(k) {
			break
		}
		if k[i] == 0x01 {
			return string(out), k[i+1:], nil
		}
		out = append(out, 0x00)
	}
	return "", nil, fmt.Errorf("state: key %x has no end", k)
}

// descending appends a time in a form that sorts newer times first.
func (k key) descending(t Millis) key { return k.u64(^uint64(t)) }

// end returns the smallest key that is above all keys with the prefix k.
func (k key) end() key {
	e := append(key(nil), k...)
	for i := len(e) - 1; i >= 0; i-- {
		if e[i] != 0xff {
			e[i]++
			return e[:i+1]
		}
	}
	return nil
}

// Sparse returns true for keys that commands often look up or delete although they do not exist,
// so that the store should have a filter of the existing ones. Commands look up an operation by
// its id, a pin by its request, a root, an object by its key, and the mark of a disabled account.
// They delete the marks of a root that is settling, of the bytes of a root that have arrived, and of
// a root with too few copies.
// See Options.Sparse of storage/kv.
func Sparse(k []byte) bool {
	if len(k) == 0 {
		return false
	}
	switch k[0] {
	case tableOp, tableRoot, tableSettling, tableShort, tableDisabled, tableArrived, tableObject:
		return true
	case tablePins:
		at := partEnd(k)
		return at > 0 && at < len(k) && k[at] == pinByID
	}
	return false
}

// SparseAfter returns a key above k such that no key between them is sparse. It returns nil if
// the next key after k may be sparse. k itself must not be sparse.
func SparseAfter(k []byte) []byte {
	switch {
	case len(k) == 0 || k[0] < tableOp:
		return []byte{tableOp}
	case k[0] > tableObject:
		return []byte{0xff} // no table begins with this byte
	case k[0] > tableArrived:
		return []byte{tableObject}
	case k[0] > tableDisabled:
		return []byte{tableArrived}
	case k[0] > tableShort:
		return []byte{tableDisabled}
	case k[0] > tableSettling:
		return []byte{tableShort}
	case k[0] > tablePins:
		return []byte{tableRoot}
	}
	if at := partEnd(k); at > 0 && at < len(k) && k[at] < pinByID {
		return append(append([]byte(nil), k[:at]...), pinByID)
	}
	return nil
}

// Passing returns true for rows that live only for a short time: those of pins that are queued or
// pinning. A pin's row gets another key when its status changes, and the old row is deleted. See
// Options.Passing of storage/kv.
func Passing(k []byte) bool {
	if len(k) == 0 || k[0] != tablePins {
		return false
	}
	at := partEnd(k)
	return at > 0 && at+1 < len(k) && k[at] == pinRow && (Status(k[at+1]) == Queued || Status(k[at+1]) == Pinning)
}

// partEnd returns the index at which the first part after the table byte ends, or 0 if k has no
// complete part.
func partEnd(k []byte) int {
	if len(k) < 3 || len(k)-3 < int(binary.BigEndian.Uint16(k[1:])) {
		return 0
	}
	return 3 + int(binary.BigEndian.Uint16(k[1:]))
}

// readPart decodes a part that the function part has appended, and returns the bytes after it.
func readPart[S ~string](k []byte) (s S, rest []byte, err error) {
	if len(k) < 2 || len(k)-2 < int(binary.BigEndian.Uint16(k)) {
		return "", nil, fmt.Errorf("state: short key %x", k)
	}
	n := int(binary.BigEndian.Uint16(k))
	return S(k[2 : 2+n]), k[2+n:], nil
}

// record is the type constraint for a pointer to T that has the method Code.
type record[T any] interface {
	*T
	Code(*codec.Coder)
}

// get returns the record at the key k, or nil if there is none.
func get[T any, P record[T]](r Reader, k key) (*T, error) {
	b, ok, err := r.Get(k)
	if err != nil || !ok {
		return nil, err
	}
	return decode[T, P](b)
}

func decode[T any, P record[T]](b []byte) (*T, error) {
	v := new(T)
	c := codec.Decoder(b)
	P(v).Code(c)
	if _, err := c.Finish(); err != nil {
		return nil, fmt.Errorf("state: %T: %w", *v, err)
	}
	return v, nil
}

func encode[T any, P record[T]](v *T) ([]byte, error) {
	c := codec.Encoder(make([]byte, 0, 256))
	P(v).Code(c)
	b, err := c.Finish()
	if err != nil {
		return nil, fmt.Errorf("state: %T: %w", *v, err)
	}
	return b, nil
}

func put[T any, P record[T]](tx Tx, k key, v *T) error {
	b, err := encode[T, P](v)
	if err != nil {
		return err
	}
	if len(b) > maxRecordBytes {
		return fmt.Errorf("state: %T of %d bytes", *v, len(b))
	}
	return tx.Set(k, b)
}

func has(r Reader, k key) (bool, error) {
	_, ok, err := r.Get(k)
	return ok, err
}

// counter returns the value of a counter; a missing counter is 0.
func counter(r Reader, k key) (uint64, error) {
	b, ok, err := r.Get(k)
	if err != nil || !ok {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("state: counter %x of %d bytes", k, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// count adds delta to a counter, and deletes the row of the counter at zero. If the result would
// be negative, records and counters disagree; count then returns an error that stops the node.
func count(tx Tx, k key, delta int64) error {
	n, err := counter(tx, k)
	if err != nil {
		return err
	}
	sum := int64(n) + delta
	if sum < 0 {
		return fmt.Errorf("state: counter %x below zero", []byte(k))
	}
	if sum == 0 {
		return tx.Delete(k)
	}
	return tx.Set(k, binary.BigEndian.AppendUint64(nil, uint64(sum)))
}

func metaKey(name string) key { return append(table(tableMeta), name...) }
