package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Level says which commands and records a release understands; levels only
// rise. What a level brought is proposed once the cluster has that level, which
// is when every member understands it, also those that are down now.
//
// Level 1 brought CheckState, ReportHash, GrantVote, RaiseLevel, ByKey, the level,
// store and vote of members' records, and the bound in bytes of remembered
// operations. Level 2 brought CreateSession, EndSession, NoteUses, BySession,
// RotateSigningKey, CreateOnce, and quotas with OpenAccount, SetPassword,
// CloseAccount, ClearAccounts, SetQuota, GrantCredits and ReportArrivals. Level 3
// brought buckets, objects with their versions and hashes, uploads, CORS rules and
// fences with all their commands, the links of roots, pins that are late, and when a pin
// came to a root that was there. Level 4 brought ByKey and BySession for the object gateway,
// the state by which PlaceRoots were chosen, what is remembered of a pin's operation in
// short, and that copies on nodes that were removed do not count. Level 5 brought
// SetBucketTags and SetObjectSums, storage classes, checksums that are wanted, the
// checksums MD5, SHA512, XXHASH64, XXHASH3 and XXHASH128, that members give the leader a
// deadline with what they forward, and conditions on ETags that an object does not have, on its
// size and time, and those that hold where there is no object. Level 6 brought OpenFirstAdmin,
// SetAdmin, AddApp and RemoveApp.
type Level uint32

// ErrTooOld says that a newer release wrote what this one cannot understand, so
// that the node cannot go on. It is no outcome: other nodes applied it.
var ErrTooOld = errors.New("this release is too old for the cluster, upgrade it")

// NewestLevel is what this release understands.
const NewestLevel Level = 6

var levelKey = metaKey("level")

func levelOf(r Reader) (Level, error) {
	n, err := counter(r, levelKey)
	return Level(n), err
}

// Level is the level of the cluster: 0 for one that an older release founded
// and that has not been raised yet.
func (v View) Level() (Level, error) { return levelOf(v.r) }

// RaiseLevel lets everything up to a level be proposed from now on. The leader
// has made sure that all members understand it; members that have said less in
// their record refute that.
type RaiseLevel struct{ Level Level }

// Code implements Command.
func (v *RaiseLevel) Code(c *codec.Coder) { codec.Uint(c, &v.Level) }

func (v *RaiseLevel) apply(tx Tx, e *entry) (Result, error) {
	now, err := levelOf(tx)
	if err != nil || v.Level <= now {
		return Result{}, err
	}
	if v.Level > NewestLevel {
		return Result{}, fmt.Errorf("state: level %d, and %d is known here: %w", v.Level, NewestLevel, ErrTooOld)
	}
	nodes, err := scanAll[Node](tx, table(tableNode))
	if err != nil {
		return Result{}, err
	}
	for _, n := range nodes {
		if n.Level != 0 && n.Level < v.Level {
			return Result{}, Errorf(CodeConflict, "node %s understands level %d only", n.ID, n.Level)
		}
	}
	return Result{}, raise(tx, now, v.Level, e)
}

// raise sets the level, and brings the state to the form that it has from there.
func raise(tx Tx, from, to Level, e *entry) error {
	e.fx.Level = true
	if from < 1 && to >= 1 {
		if err := boundOps(tx); err != nil {
			return err
		}
	}
	if from < 2 && to >= 2 {
		if err := foundQuotas(tx); err != nil {
			return err
		}
	}
	return tx.Set(levelKey, binary.BigEndian.AppendUint64(nil, uint64(to)))
}
