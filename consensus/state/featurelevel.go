package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// FeatureLevel is a version gate: it names the commands and records that a release understands.
// The feature level of a cluster only rises. Nodes propose the commands of a level once the
// cluster has it, that is when all members understand it, including those that are down.
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
// SetAdmin, AddApp, RemoveApp, SignUp, LinkIdentity, UnlinkIdentity, AddOneTimeLink,
// ResetPassword, BeginSession, NoteUsage and CloseOwnAccount. Level 7 brought the audit log with
// Audited, NoteKeyShown, NoteRefusals and PruneAudit, and RemoveOneTimeLink and DecideAdmin.
// Level 8 brought CreateShare and RevokeShare, and ByKey, NoteUses, NoteKeyShown and RevokeKey for the
// key of a share. Level 9 brought PostCredits, ChargeStorage, and the order and the balances of postings.
// Level 10 brought EndPins, SetDrain, the ends and bounds of pins, payments and paid content, EndContent,
// prices of requests, the numbers of NoteUsage, and IndexPins with the index of pins by meta. Level 11
// brought packed names of pins with PackNames, that the last member that is not being drained cannot be
// removed, SetDisabled with accounts that are disabled, and sessions that say from where they began.
type FeatureLevel uint32

// ErrTooOld is returned for a command or record of a newer release. The node must stop, because
// other nodes have applied it.
var ErrTooOld = errors.New("this release is too old for the cluster, upgrade it")

// NewestFeatureLevel is the newest feature level that this release understands.
const NewestFeatureLevel FeatureLevel = 11

var levelKey = metaKey("level")

func levelOf(r Reader) (FeatureLevel, error) {
	n, err := counter(r, levelKey)
	return FeatureLevel(n), err
}

// needsLevel returns an ErrUnavailable if the cluster is below a feature level. format is its text,
// with %d for the level.
func needsLevel(r Reader, level FeatureLevel, format string) error {
	now, err := levelOf(r)
	if err == nil && now < level {
		err = Errorf(CodeUnavailable, format, level)
	}
	return err
}

// FeatureLevel returns the feature level of the cluster. It is 0 if an older release founded the
// cluster and the leader has not raised it yet.
func (v View) FeatureLevel() (FeatureLevel, error) { return levelOf(v.r) }

// RaiseLevel raises the feature level of the cluster. The leader proposes it when all
// members understand the level. Apply refuses it if a member's record names a lower one.
type RaiseLevel struct{ FeatureLevel FeatureLevel }

// Code implements Command.
func (v *RaiseLevel) Code(c *codec.Coder) { codec.Uint(c, &v.FeatureLevel) }

func (v *RaiseLevel) apply(tx Tx, e *entry) (Result, error) {
	now, err := levelOf(tx)
	if err != nil || v.FeatureLevel <= now {
		return Result{}, err
	}
	if v.FeatureLevel > NewestFeatureLevel {
		return Result{}, fmt.Errorf("state: level %d, and %d is known here: %w", v.FeatureLevel, NewestFeatureLevel, ErrTooOld)
	}
	nodes, err := scanAll[Node](tx, table(tableNode))
	if err != nil {
		return Result{}, err
	}
	for _, n := range nodes {
		if n.FeatureLevel != 0 && n.FeatureLevel < v.FeatureLevel {
			return Result{}, Errorf(CodeConflict, "node %s understands level %d only", n.ID, n.FeatureLevel)
		}
	}
	return Result{}, raise(tx, now, v.FeatureLevel, e)
}

// raise sets the feature level and converts the state to the form that it has from that level
// on.
func raise(tx Tx, from, to FeatureLevel, e *entry) error {
	e.fx.FeatureLevel = true
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
	if from < LedgerLevel && to >= LedgerLevel {
		if err := orderPostings(tx); err != nil {
			return err
		}
	}
	if from < MetaIndexLevel && to >= MetaIndexLevel {
		if err := foundMetaIndex(tx); err != nil {
			return err
		}
	}
	if from < PackedNamesLevel && to >= PackedNamesLevel {
		if err := foundPackedNames(tx); err != nil {
			return err
		}
	}
	return tx.Set(levelKey, binary.BigEndian.AppendUint64(nil, uint64(to)))
}
