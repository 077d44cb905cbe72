package state

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Cluster has the settings that were decided when the cluster was created.
type Cluster struct {
	ID      string
	Created Millis
	// Replication is the number of copies of a root. A root never has more copies than there
	// are members.
	Replication uint8
	// WriteCopies is the number of durable copies that a root needs for its pins to get the
	// status pinned.
	WriteCopies uint8
	// SealedSigningKey is the Ed25519 seed that signs API keys, encrypted with the cluster
	// secret, which is not part of the state.
	SealedSigningKey []byte
	// Operator is the operator account, with which local commands act.
	Operator AccountID
	// SealedSecret is the secret from which the keys of accounts are derived, encrypted with the
	// cluster secret. It is empty until a restore has changed the cluster secret: before that
	// both are one secret. It needs feature level 11.
	SealedSecret []byte
}

// MaxSealedSecret is the largest size of Cluster.SealedSecret, in bytes.
const MaxSealedSecret = 1 << 10

// Code encodes the record, or decodes it if c is a decoder. It writes version 2 only if a field of
// version 2 is set, because members below feature level 11 cannot read version 2.
func (v *Cluster) Code(c *codec.Coder) {
	version := uint64(2)
	if !c.Decoding() && len(v.SealedSecret) == 0 {
		version = 1
	}
	version = c.Version(version)
	codec.String(c, &v.ID, MaxIDLen)
	codec.Int(c, &v.Created)
	codec.Uint(c, &v.Replication)
	codec.Uint(c, &v.WriteCopies)
	codec.Bytes(c, &v.SealedSigningKey, MaxAddrLen)
	codec.String(c, &v.Operator, MaxIDLen)
	if version >= 2 {
		codec.Bytes(c, &v.SealedSecret, MaxSealedSecret)
	}
}

// need returns the number of copies that a root needs to count as pinned, in a cluster with the
// given number of members: WriteCopies, but at most the number of members.
func (v *Cluster) need(members uint64) int {
	return max(1, min(int(v.WriteCopies), int(min(members, MaxNodes))))
}

// copiesIn returns how many copies a root needs to count as pinned, and how many it should
// finally have. Only members that are not being drained count.
func copiesIn(r Reader) (need, full int, err error) {
	cl, err := cluster(r)
	if err != nil {
		return 0, 0, err
	}
	members, err := keepingMembers(r)
	return cl.need(members), min(int(cl.Replication), int(min(members, MaxNodes))), err
}

var clusterKey = metaKey("cluster")

func cluster(r Reader) (*Cluster, error) {
	v, err := get[Cluster](r, clusterKey)
	if err == nil && v == nil {
		return nil, Errorf(CodeUnavailable, "the cluster has no state yet")
	}
	return v, err
}

// InitCluster is the first command of every cluster. It creates the cluster's settings, its first
// member and the operator account.
type InitCluster struct {
	Cluster  Cluster
	Node     Node
	Operator Account
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *InitCluster) Code(c *codec.Coder) {
	v.Cluster.Code(c)
	v.Node.Code(c)
	v.Operator.Code(c)
}

func (v *InitCluster) apply(tx Tx, e *entry) (Result, error) {
	if old, err := get[Cluster](tx, clusterKey); err != nil {
		return Result{}, err
	} else if old != nil {
		if old.ID == v.Cluster.ID {
			return Result{}, nil
		}
		return Result{}, Errorf(CodeExists, "this is cluster %s already", old.ID)
	}
	cl := v.Cluster
	if cl.ID == "" || cl.Replication == 0 || cl.Replication > MaxCopies || cl.WriteCopies == 0 || cl.WriteCopies > cl.Replication ||
		v.Operator.ID != cl.Operator {
		return Result{}, Errorf(CodeInvalid, "cluster settings out of range")
	}
	if err := v.Node.check(); err != nil {
		return Result{}, err
	}
	if err := v.Operator.check(); err != nil {
		return Result{}, err
	}
	if err := put(tx, clusterKey, &cl); err != nil {
		return Result{}, err
	}
	// Every later member must understand the founder's feature level.
	if v.Node.FeatureLevel > NewestFeatureLevel {
		return Result{}, fmt.Errorf("state: founded at level %d, and %d is known here: %w", v.Node.FeatureLevel, NewestFeatureLevel, ErrTooOld)
	}
	if v.Node.FeatureLevel > 0 {
		if err := raise(tx, 0, v.Node.FeatureLevel, e); err != nil {
			return Result{}, err
		}
	}
	if err := putNode(tx, &v.Node, e); err != nil {
		return Result{}, err
	}
	return Result{}, open(tx, &v.Operator, Unlimited)
}
