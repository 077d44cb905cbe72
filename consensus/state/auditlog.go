package state

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of the audit log.
const (
	// AuditLevel is the lowest feature level with an audit log.
	AuditLevel FeatureLevel = 7
	// MaxAuditRows is the largest number of rows of the log. A row has about 300 bytes.
	MaxAuditRows = 100_000
	// AuditFor is how long the log keeps a row: a year and a month. So an audit that is done
	// yearly, even a few weeks late, finds the whole year.
	AuditFor Millis = 400 * dayMillis
	// MaxRefusals is the largest number of summed refusals that one command records.
	MaxRefusals = 64
	// signInsPerHour and joinsPerHour are how many rows about refused sign-ins, and about refused
	// joins, the log gets per clock hour. The kinds have separate limits, so that many refusals
	// of one kind do not hide those of the other.
	signInsPerHour = 48
	joinsPerHour   = 12
	hourMillis     = Millis(60 * 60 * 1000)
)

// auditHead is the record that describes the extent of the audit log.
type auditHead struct {
	First, Next uint64    // sequences of the oldest row and of the next row
	Anchor      AuditHash // hash of the last pruned row; zero if no row was pruned
	Head        AuditHash // hash of the newest row
	Last        Millis    // time of the newest row
	// Hour is the clock hour of the counters, in hours since 1970. SignIns and Joins are the
	// numbers of rows about refusals in that hour. Rest is the number of refused attempts without
	// a row.
	Hour, SignIns, Joins, Rest uint64
}

// Code encodes and decodes the record.
func (v *auditHead) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.First)
	codec.Uint(c, &v.Next)
	codec.Fixed(c, v.Anchor[:])
	codec.Fixed(c, v.Head[:])
	codec.Int(c, &v.Last)
	codec.Uint(c, &v.Hour)
	codec.Uint(c, &v.SignIns)
	codec.Uint(c, &v.Joins)
	codec.Uint(c, &v.Rest)
}

var auditKey = metaKey("audit")

func auditRowKey(seq uint64) key { return table(tableAudit).u64(seq) }

func readAuditHead(r Reader) (*auditHead, error) {
	h, err := get[auditHead](r, auditKey)
	if err == nil && h == nil {
		h = &auditHead{First: 1, Next: 1}
	}
	return h, err
}

// append writes a row and updates the fields of the head. If the log then has more than
// MaxAuditRows rows, it removes the oldest one. The caller stores the head.
func (v *auditHead) append(tx Tx, row *AuditRow) error {
	row.Seq, row.Actor = v.Next, row.Actor.clipped()
	row.Target, row.Detail = clip(row.Target, maxAuditTarget), clip(row.Detail, maxAuditDetail)
	if row.At == 0 {
		row.At = v.Last
	}
	b, err := EncodeAuditRow(row)
	if err != nil {
		return err
	}
	v.Head = auditHash(v.Head, b)
	if err := tx.Set(auditRowKey(row.Seq), append(v.Head[:], b...)); err != nil {
		return err
	}
	v.Next, v.Last = v.Next+1, row.At
	if v.Next-v.First > MaxAuditRows {
		return v.prune(tx)
	}
	return nil
}

// prune removes the oldest row and updates the fields of the head.
func (v *auditHead) prune(tx Tx) error {
	b, ok, err := tx.Get(auditRowKey(v.First))
	if err != nil {
		return err
	}
	if !ok || len(b) < auditHashBytes {
		return fmt.Errorf("state: audit row %d of %d bytes", v.First, len(b))
	}
	v.Anchor = AuditHash(b[:auditHashBytes])
	if err := tx.Delete(auditRowKey(v.First)); err != nil {
		return err
	}
	v.First++
	return nil
}

func decodeAuditRow(value []byte) (*AuditRow, AuditHash, error) {
	if len(value) < auditHashBytes {
		return nil, AuditHash{}, fmt.Errorf("state: audit row of %d bytes", len(value))
	}
	row, err := DecodeAuditRow(value[auditHashBytes:])
	return row, AuditHash(value[:auditHashBytes]), err
}

// PruneAudit removes rows that are older than Before, at most MaxSettle rows in one command. The
// proposer derives Before from a time that most members' clocks have reached. The command needs
// feature level 7.
type PruneAudit struct{ Before Millis }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *PruneAudit) Code(c *codec.Coder) { codec.Int(c, &v.Before) }

func (v *PruneAudit) apply(tx Tx, _ *entry) (Result, error) {
	h, err := readAuditHead(tx)
	if err != nil {
		return Result{}, err
	}
	first := h.First
	for h.First < h.Next && h.First < first+MaxSettle {
		value, _, err := tx.Get(auditRowKey(h.First))
		if err != nil {
			return Result{}, err
		}
		row, _, err := decodeAuditRow(value)
		if err != nil {
			return Result{}, err
		}
		if row.At >= v.Before {
			break
		}
		if err := h.prune(tx); err != nil {
			return Result{}, err
		}
	}
	if h.First == first {
		return Result{}, nil
	}
	return Result{}, put(tx, auditKey, h)
}

// Refusal counts the attempts of one kind, from one network and on one account, that a node
// refused within one minute.
type Refusal struct {
	Action  Action    // ActionSessionCreate or ActionMemberJoin
	At      Millis    // time of the last attempt
	Addr    string    // address or network of the client
	Account AccountID // account whose password was wrong; empty without an account
	Detail  string    // text for people; the e-mail address of the account, if there is one
	Count   uint64
}

// NoteRefusals records refused attempts in the audit log. Only the first refusals of a clock hour
// get rows of their own; the others are counted, and the first refusal in a later hour also
// writes one row with that count. So clients without credentials can neither flood the log nor
// push out its rows. The command needs feature level 7.
//
// Errors: ErrInvalid for an action other than ActionSessionCreate and ActionMemberJoin.
type NoteRefusals struct{ Items []Refusal }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *NoteRefusals) Code(c *codec.Coder) {
	codec.List(c, &v.Items, MaxRefusals, func(c *codec.Coder, i *Refusal) {
		codec.String(c, &i.Action, maxActionLen)
		codec.Int(c, &i.At)
		codec.String(c, &i.Addr, maxAuditAddr)
		codec.String(c, &i.Account, MaxIDLen)
		codec.String(c, &i.Detail, maxAuditDetail)
		codec.Uint(c, &i.Count)
	})
}

func (v *NoteRefusals) apply(tx Tx, _ *entry) (Result, error) {
	for _, i := range v.Items {
		if i.Action != ActionSessionCreate && i.Action != ActionMemberJoin || i.Count == 0 || i.At < 0 {
			return Result{}, Errorf(CodeInvalid, "no refusal that is recorded")
		}
	}
	if len(v.Items) == 0 {
		return Result{}, nil
	}
	h, err := readAuditHead(tx)
	if err != nil {
		return Result{}, err
	}
	for _, i := range v.Items {
		if err := h.refused(tx, i); err != nil {
			return Result{}, err
		}
	}
	return Result{}, put(tx, auditKey, h)
}

// refused appends the row of a refusal, or only counts its attempts if the clock hour already has
// its number of such rows.
func (v *auditHead) refused(tx Tx, i Refusal) error {
	if hour := uint64(i.At / hourMillis); hour != v.Hour {
		if v.Rest > 0 {
			row := AuditRow{
				At: i.At, Actor: Actor{Kind: ActorAnonymous}, Action: ActionRefusalsRest, Detail: "tries that have no row of their own", Refused: true, Count: v.Rest,
			}
			if err := v.append(tx, &row); err != nil {
				return err
			}
		}
		v.Hour, v.SignIns, v.Joins, v.Rest = hour, 0, 0, 0
	}
	used, most := &v.SignIns, uint64(signInsPerHour)
	if i.Action == ActionMemberJoin {
		used, most = &v.Joins, joinsPerHour
	}
	if *used >= most {
		v.Rest += i.Count
		return nil
	}
	*used++
	row := AuditRow{
		At: i.At, Actor: Actor{Kind: ActorAnonymous, Addr: i.Addr}, Action: i.Action, Target: string(i.Account), Detail: i.Detail, Refused: true, Count: i.Count,
	}
	if i.Account != "" {
		email, err := emailOf(tx, i.Account)
		if err != nil {
			return err
		}
		row.Detail = email
	}
	return v.append(tx, &row)
}

// AuditEntry is a row of the audit log and its hash.
type AuditEntry struct {
	AuditRow
	Hash AuditHash
}

// AuditHead describes which rows the audit log has.
type AuditHead struct {
	First, Next uint64    // sequences of the oldest row and of the next row; equal if the log is empty
	Anchor      AuditHash // hash of the last pruned row; zero if no row was pruned
	Head        AuditHash // hash of the newest row
}

// AuditHead returns which rows the audit log has.
func (v View) AuditHead() (AuditHead, error) {
	h, err := readAuditHead(v.r)
	if err != nil {
		return AuditHead{}, err
	}
	return AuditHead{First: h.First, Next: h.Next, Anchor: h.Anchor, Head: h.Head}, nil
}

// AuditBefore calls fn for each row with a sequence below seq, newest first, until fn returns
// false.
func (v View) AuditBefore(seq uint64, fn func(AuditEntry) (more bool, err error)) error {
	return v.r.Scan(table(tableAudit), auditRowKey(seq), true, func(_, value []byte) (bool, error) {
		row, hash, err := decodeAuditRow(value)
		if err != nil {
			return false, err
		}
		return fn(AuditEntry{AuditRow: *row, Hash: hash})
	})
}

// AuditChain is the progress of VerifyAudit: which rows it has checked and whether it has found
// an error.
type AuditChain struct {
	Next   uint64    // sequence of the next row to check
	Hash   AuditHash // hash of the row before Next
	Broken string    // error in the row Next; empty if none was found
}

// VerifyAudit continues a check of the hash chain: it checks up to limit further rows and returns
// the progress. It stops at the first row whose hash does not follow from the row before. To
// check the whole log, start with the First and the Anchor of the AuditHead as Next and Hash.
func (v View) VerifyAudit(from AuditChain, limit int) (AuditChain, error) {
	head, err := v.AuditHead()
	if err != nil || from.Broken != "" {
		return from, err
	}
	rows := 0
	broken := func(format string, args ...any) (bool, error) {
		from.Broken = fmt.Sprintf(format, args...)
		return false, nil
	}
	all := table(tableAudit)
	lower := auditRowKey(from.Next)
	if from.Next == head.First {
		lower = all // find rows before the first one too
	}
	err = v.r.Scan(lower, all.end(), false, func(k, value []byte) (bool, error) {
		if rows == limit {
			return false, nil
		}
		rows++
		if len(k) != len(all)+8 || binary.BigEndian.Uint64(k[len(all):]) != from.Next || from.Next >= head.Next {
			return broken("another row is in its place")
		}
		row, hash, err := decodeAuditRow(value)
		switch {
		case err != nil:
			return broken("its bytes are no row")
		case row.Seq != from.Next:
			return broken("it says that it is row %d", row.Seq)
		case auditHash(from.Hash, value[auditHashBytes:]) != hash:
			return broken("its hash does not follow from the row before")
		}
		again, err := EncodeAuditRow(row)
		if err != nil || !bytes.Equal(again, value[auditHashBytes:]) {
			return broken("its bytes are not in the canonical form")
		}
		from.Next, from.Hash = from.Next+1, hash
		return true, nil
	})
	if err != nil || from.Broken != "" || rows == limit {
		return from, err
	}
	switch {
	case from.Next != head.Next:
		from.Broken = "it is missing"
	case head.First != head.Next && from.Hash != head.Head:
		from.Broken = "the hash of the head is another"
	}
	return from, nil
}
