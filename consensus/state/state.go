// Package state is the replicated state machine: records, commands, and a deterministic function
// that applies a command to the records. Each node stores the records in an ordered key-value
// store and reads them through views.
//
// Imports: std, go-cid, blake3, consensus/codec.
// Never:   raft, libp2p, storage, cluster, api, config, clocks, randomness,
// goroutines, logging.
package state

import "time"

// Reader reads the store as it is at one moment. Keys are ordered by their bytes.
type Reader interface {
	// Get returns the value of key, which the caller may keep.
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan calls fn for the keys in [lower, upper) in order, or backwards;
	// a nil upper is the end. Both slices are valid only during the call.
	Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (more bool, err error)) error
}

// Tx is a Reader that sees its own writes. The caller commits it.
type Tx interface {
	Reader
	Set(key, value []byte) error
	Delete(key []byte) error
}

// Identifiers. Proposers create them; Apply never does, because it must be deterministic.
type (
	// AccountID is the internal id of an account; it never changes.
	AccountID string
	// RequestID identifies a pin of one account. It is a UUID.
	RequestID string
	// NodeID is the libp2p peer id of a node in its text form.
	NodeID string
	// KeyID identifies an API key. It is the jti of the token.
	KeyID string
	// OpID identifies one proposed change, so that a repeated command takes effect once. The zero
	// OpID marks commands whose repetition has no effect anyway.
	OpID [16]byte
)

// Millis is a time in milliseconds since 1970, UTC. Zero means none.
type Millis int64

// MillisOf returns t in milliseconds, rounded down.
func MillisOf(t time.Time) Millis { return Millis(t.UnixMilli()) }

// OneClock returns a function for a node that knows no other clocks. It returns the node's own
// time as both bounds of the cluster's time; ok is always true.
func OneClock(now func() time.Time) func() (early, late Millis, ok bool) {
	return func() (early, late Millis, ok bool) {
		at := MillisOf(now())
		return at, at, true
	}
}

// sampleDelay is the tolerance by which a correct clock may be later than the late bound, which
// is computed from times that other members have sent some moments before.
const sampleDelay Millis = 1000

// BeginsAt returns the time from which to count a duration that begins now. agreed returns the
// bounds between which most members' clocks are. BeginsAt returns own, the time of the node's
// clock, if it is within the bounds or if ok is false. For an earlier own it returns the early
// bound, and for a later own the late bound, so that a wrong clock has a limited effect. The
// early bound alone would not do, because it is behind all correct clocks, and the duration would
// end too early.
func BeginsAt(own Millis, agreed func() (early, late Millis, ok bool)) Millis {
	if early, late, ok := agreed(); ok {
		return BeginsWithin(own, early, late)
	}
	return own
}

// BeginsWithin is BeginsAt with known bounds.
func BeginsWithin(own, early, late Millis) Millis {
	switch {
	case own >= early && own <= late+sampleDelay:
		return own
	case own < early:
		return early
	}
	return max(early, late)
}

// Time returns m as a time in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

// Limits of the state. Nodes reject a command above them before they propose it, and Apply
// rejects it again.
const (
	MaxIDLen       = 128      // bytes of any identifier
	MaxEmailLen    = 254      // bytes, RFC 5321
	MaxNameRunes   = 255      // characters of a pin's name
	MaxOrigins     = 20       // origins of a pin
	MaxAddrLen     = 1024     // bytes of a multiaddr
	MaxAddrs       = 32       // addresses of a node
	MaxMetaPairs   = 1000     // pairs of a pin's meta
	MaxMetaBytes   = 64 << 10 // bytes of a pin's meta, keys and values
	MaxCIDLen      = 256      // bytes of a CID, as text or binary
	MaxReasonLen   = 1024     // bytes of a failure's reason
	MaxCopies      = 32       // nodes to which one root may be allocated
	MaxNodes       = 256      // members of a cluster
	MaxKeysPerUser = 1000     // API keys of an account
	MaxSessions    = 100      // sessions of an account
	MaxUses        = 512      // uses in one command
	MaxTickets     = 10_000   // join tickets that were neither used nor removed
	MaxReports     = 512      // reports in one command
	MaxOps         = 1 << 16  // operations whose first result is remembered
	MaxRetained    = 64       // replaced roots that are kept until their replacement is replicated or has failed
	MaxSettle      = 1024     // pins, or other records, that one command changes in addition to its own
	MaxFreed       = 256      // parts of ended uploads that one command removes
	maxRecordBytes = 4 << 20  // bytes of any record
	maxNameBytes   = 255 * 4  // bytes of a name, because characters take up to four
)
