package state

import (
	"encoding/hex"
	"fmt"

	"lukechampine.com/blake3"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Bounds of rows of the audit log.
const (
	maxAuditAddr   = 64   // bytes of a client's address
	maxAuditTarget = 512  // bytes; an account id and a bucket's name fit
	maxAuditDetail = 1024 // bytes; the name of a key fits
	maxActionLen   = 32   // bytes
	auditHashBytes = 32
)

// ActorKind is how the actor of an audited change was recognized. The numbers are stored: never
// renumber.
type ActorKind uint8

// Every kind of actor.
const (
	ActorCluster   ActorKind = 0 // a member by itself
	ActorOperator  ActorKind = 1 // the operator socket of a node
	ActorAnonymous ActorKind = 2 // a client without credentials
	ActorSession   ActorKind = 3
	ActorKey       ActorKind = 4 // an API key
)

// String is the kind as the log shows it.
func (k ActorKind) String() string {
	switch k {
	case ActorCluster:
		return "cluster"
	case ActorOperator:
		return "operator"
	case ActorAnonymous:
		return "anonymous"
	case ActorSession:
		return "session"
	case ActorKey:
		return "key"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Actor describes who asked for a change, and from where.
type Actor struct {
	Kind    ActorKind
	Account AccountID // empty: none
	Email   string    // of the account at that time
	Key     KeyID     // for ActorKey
	Session SessionID // for ActorSession
	Addr    string    // of the client as the node saw it behind trusted proxies; empty: the operator socket
}

// Code implements the record's form.
func (v *Actor) Code(c *codec.Coder) {
	codec.Uint(c, &v.Kind)
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.Email, MaxEmailLen)
	codec.String(c, &v.Key, MaxIDLen)
	codec.String(c, &v.Session, MaxIDLen)
	codec.String(c, &v.Addr, maxAuditAddr)
}

// AuditHash is the BLAKE3 hash of a row of the audit log and of all rows before it.
type AuditHash [auditHashBytes]byte

// String is the hash in lower-case hexadecimal.
func (h AuditHash) String() string { return hex.EncodeToString(h[:]) }

// AuditRow is one row of the audit log.
type AuditRow struct {
	Seq     uint64 // 1 is the first
	At      Millis // by the clock of the node that proposed the change
	Actor   Actor
	Action  Action
	Target  string // id or name of what was changed
	Detail  string // for people; empty: nothing to add
	Refused bool   // the node refused what was tried
	Count   uint64 // tries that the row sums up; 1 for a change
}

// Code implements the record's form, which is hashed: it never changes for a row that is there.
func (v *AuditRow) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.Seq)
	codec.Int(c, &v.At)
	v.Actor.Code(c)
	codec.String(c, &v.Action, maxActionLen)
	codec.String(c, &v.Target, maxAuditTarget)
	codec.String(c, &v.Detail, maxAuditDetail)
	codec.Bool(c, &v.Refused)
	codec.Uint(c, &v.Count)
}

// EncodeAuditRow returns the canonical bytes of a row, which its hash covers.
func EncodeAuditRow(v *AuditRow) ([]byte, error) {
	c := codec.Encoder(make([]byte, 0, 256))
	v.Code(c)
	b, err := c.Finish()
	if err != nil {
		return nil, fmt.Errorf("state: audit row: %w", err)
	}
	return b, nil
}

// DecodeAuditRow reads the canonical bytes of a row.
func DecodeAuditRow(b []byte) (*AuditRow, error) { return decode[AuditRow](b) }

// auditHash returns the hash of the canonical bytes of a row after the row with the hash prev.
func auditHash(prev AuditHash, row []byte) AuditHash {
	return blake3.Sum256(append(prev[:], row...))
}

// clip shortens text to most bytes without cutting a character in two.
func clip[S ~string](text S, most int) S {
	if len(text) <= most {
		return text
	}
	for most > 0 && text[most]&0xc0 == 0x80 {
		most--
	}
	return text[:most]
}

// clipped returns the actor with texts that fit into a row.
func (v Actor) clipped() Actor {
	v.Account, v.Email = clip(v.Account, MaxIDLen), clip(v.Email, MaxEmailLen)
	v.Key, v.Session, v.Addr = clip(v.Key, MaxIDLen), clip(v.Session, MaxIDLen), clip(v.Addr, maxAuditAddr)
	return v
}
