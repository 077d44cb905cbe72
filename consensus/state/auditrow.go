package state

import (
	"encoding/hex"
	"fmt"

	"lukechampine.com/blake3"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of the texts of a row of the audit log.
const (
	maxAuditAddr   = 64   // bytes of a client's address
	maxAuditTarget = 512  // bytes; enough for an account id and a bucket name
	maxAuditDetail = 1024 // bytes; enough for the name of a key
	maxActionLen   = 32   // bytes
	auditHashBytes = 32
)

// ActorKind is how the actor of an audited change was authenticated. The numbers are on disk:
// never renumber them.
type ActorKind uint8

// All kinds of actors.
const (
	ActorCluster   ActorKind = 0 // the cluster itself, not at the request of a caller
	ActorOperator  ActorKind = 1 // the operator socket of a node
	ActorAnonymous ActorKind = 2 // a client without credentials
	ActorSession   ActorKind = 3
	ActorKey       ActorKind = 4 // an API key
)

// String returns the text of the kind in the log.
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

// Actor is the caller who made a change, and the address of the client.
type Actor struct {
	Kind    ActorKind
	Account AccountID // empty without an account
	Email   string    // e-mail address of the account at the time of the change
	Key     KeyID     // set for ActorKey
	Session SessionID // set for ActorSession
	Addr    string    // address of the client behind trusted proxies; empty for the operator socket
}

// Code encodes and decodes the actor.
func (v *Actor) Code(c *codec.Coder) {
	codec.Uint(c, &v.Kind)
	codec.String(c, &v.Account, MaxIDLen)
	codec.String(c, &v.Email, MaxEmailLen)
	codec.String(c, &v.Key, MaxIDLen)
	codec.String(c, &v.Session, MaxIDLen)
	codec.String(c, &v.Addr, maxAuditAddr)
}

// AuditHash is the BLAKE3 hash of a row of the audit log and all rows before.
type AuditHash [auditHashBytes]byte

// String returns the hash in lower-case hexadecimal.
func (h AuditHash) String() string { return hex.EncodeToString(h[:]) }

// AuditRow is one row of the audit log.
type AuditRow struct {
	Seq     uint64 // sequence; the first row has 1
	At      Millis // time by the clock of the node that proposed the change
	Actor   Actor
	Action  Action
	Target  string // id or name of the changed object
	Detail  string // further text for people; may be empty
	Refused bool   // the row records a refused attempt
	Count   uint64 // number of attempts in the row; 1 for a change
}

// Code encodes and decodes the row. The hash covers these bytes: never change the form of an
// existing row.
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

// DecodeAuditRow decodes the canonical bytes of a row.
func DecodeAuditRow(b []byte) (*AuditRow, error) { return decode[AuditRow](b) }

// auditHash returns the hash of a row from its canonical bytes row and from prev, the hash of the
// row before.
func auditHash(prev AuditHash, row []byte) AuditHash {
	return blake3.Sum256(append(prev[:], row...))
}

// clip shortens text to at most most bytes without splitting a UTF-8 character.
func clip[S ~string](text S, most int) S {
	if len(text) <= most {
		return text
	}
	for most > 0 && text[most]&0xc0 == 0x80 {
		most--
	}
	return text[:most]
}

// clipped returns the actor with its texts shortened to the limits of an audit row.
func (v Actor) clipped() Actor {
	v.Account, v.Email = clip(v.Account, MaxIDLen), clip(v.Email, MaxEmailLen)
	v.Key, v.Session, v.Addr = clip(v.Key, MaxIDLen), clip(v.Session, MaxIDLen), clip(v.Addr, maxAuditAddr)
	return v
}
