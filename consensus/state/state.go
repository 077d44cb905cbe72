// Package state is the replicated state machine: records, commands, and a pure function
// that applies a command to the records. Each node keeps the records in an ordered
// key-value store and reads them through views.
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

// Identifiers. All are minted by proposers, never by Apply.
type (
	// AccountID is the internal id of an account; it never changes.
	AccountID string
	// RequestID identifies a pin of one account. It is a UUID.
	RequestID string
	// NodeID is the libp2p peer id of a node in its text form.
	NodeID string
	// KeyID identifies an API key. It is the jti of the token.
	KeyID string
	// OpID names one change, so that applying it twice equals once. The zero
	// OpID marks commands that are idempotent by their content.
	OpID [16]byte
)

// Millis is a time in milliseconds since 1970, UTC. Zero means none.
type Millis int64

// MillisOf returns t in milliseconds, rounded down.
func MillisOf(t time.Time) Millis { return Millis(t.UnixMilli()) }

// OneClock returns the bounds of the time for a node that knows only its own clock: both bounds are the
// time of that clock, and ok is always true.
func OneClock(now func() time.Time) func() (early, late Millis, ok bool) {
	return func() (early, late Millis, ok bool) {
		at := MillisOf(now())
		return at, at, true
	}
}

// sampleDelay is by how much a right clock may be later than the late bound of the time: the times of
// other members are old by the time for which they were on their way.
const sampleDelay Millis = 1000

// BeginsAt returns the time at which a duration begins if it begins now. That is own, the time of the
// node's clock, if it is within the bounds that agreed returns, or if agreed knows no bounds. A clock that
// is behind the bounds gives the early bound, and a clock ahead of them the late bound. The early bound
// lags behind all clocks, so a duration that began there would end too early.
func BeginsAt(own Millis, agreed func() (early, late Millis, ok bool)) Millis {
	if early, late, ok := agreed(); ok {
		return BeginsWithin(own, early, late)
	}
	return own
}

// BeginsWithin does the same as BeginsAt if the bounds are known.
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

// Bounds of the state. Nodes refuse commands above them before the proposal, and Apply refuses
// them again.
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
	MaxTickets     = 10_000   // join tickets that are neither spent nor expired
	MaxReports     = 512      // reports in one command
	MaxOps         = 1 << 16  // operations whose first result is remembered
	MaxRetained    = 64       // replaced roots that one root keeps until it is settled
	MaxSettle      = 1024     // pins that one command changes to the status of their root
	MaxFreed       = 256      // parts of ended uploads that one command frees
	maxRecordBytes = 4 << 20  // bytes of any record
	maxNameBytes   = 255 * 4  // bytes of a name, because characters take up to four
)
