package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// FeatureLevel is a version gate: a number that stands for a set of commands and records. A
// release supports all levels up to its newest. The feature level of a cluster only rises, and it
// rises to a level when all members support it, including those that are down. Nodes propose
// commands of a level only once the cluster has that level.
//
// The levels introduced:
//
//   - 1: CheckState, ReportHash, GrantVote, RaiseLevel, ByKey; the fields FeatureLevel, Store and Votes of
//     members; the bound in bytes of remembered operations.
//   - 2: CreateSession, EndSession, NoteUses, BySession, RotateSigningKey, CreateOnce; quotas with OpenAccount,
//     SetPassword, CloseAccount, ClearAccounts, SetQuota, GrantCredits and ReportArrivals.
//   - 3: buckets, objects with their versions and hashes, uploads, CORS rules and fences with all their
//     commands; the fields Links, UnderReplicated and Repinned of roots.
//   - 4: ByKey and BySession for changes of the object gateway; At and Held of PlaceRoots; a short form of the
//     remembered result of a pin; copies on removed nodes do not count.
//   - 5: SetBucketTags, SetObjectSums; storage classes; wanted checksums; the checksums MD5, SHA512, XXHASH64,
//     XXHASH3 and XXHASH128; the deadline of a command that a member forwards to the leader; the fields of
//     Condition after Match.
//   - 6: OpenFirstAdmin, SetAdmin, AddApp, RemoveApp, SignUp, LinkIdentity, UnlinkIdentity, AddOneTimeLink,
//     ResetPassword, BeginSession, NoteUsage, CloseOwnAccount.
//   - 7: the audit log with Audited, NoteKeyShown, NoteRefusals and PruneAudit; RemoveOneTimeLink, DecideAdmin.
//   - 8: CreateShare, RevokeShare; ByKey, NoteUses, NoteKeyShown and RevokeKey for the key of a share.
//   - 9: PostCredits, ChargeStorage; the order and the balances of postings.
//   - 10: EndPins, SetDrain, EndContent; the ends and bounds of pins; payments and paid content; prices of
//     requests; the numbers of NoteUsage; IndexPins with the index of pins by meta.
//   - 11: PackNames with packed names of pins; SetDisabled with disabled accounts; the client's address and
//     agent in sessions; the last member that is not being drained cannot be removed; IndexPins reads the
//     pins of all accounts; SealedSecret of the cluster.
type FeatureLevel uint32

// ErrTooOld is returned for a command or record of a newer release. The node must stop, because
// other nodes have applied it.
var ErrTooOld = errors.New("this release is too old for the cluster, upgrade it")

// NewestFeatureLevel is the highest feature level that this release supports.
const NewestFeatureLevel FeatureLevel = 11

var levelKey = metaKey("level")

func levelOf(r Reader) (FeatureLevel, error) {
	n, err := counter(r, levelKey)
	return FeatureLevel(n), err
}

// needsLevel returns ErrUnavailable if the cluster is below a feature level. format is the text
// of the error, with %d for the level.
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

// RaiseLevel raises the feature level of the cluster. The leader proposes it when all members
// support the level. If the level is not above the present one, nothing changes.
//
// Errors: ErrConflict if a member's record has a lower level other than 0; ErrTooOld for a level
// that this release does not support.
type RaiseLevel struct{ FeatureLevel FeatureLevel }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
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

// raise sets the feature level, and converts records whose form changes at one of the levels
// above from.
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
