package state

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Any IPFS peer that knows the CID may fetch content of a public bucket. A root counts its links
// from public buckets, and the row of each link records whether the link is counted. So each link
// is counted once, whether a change of its object or the command that applies a changed bucket
// setting (TurnBuckets) comes first.

// turningKey returns the key of the mark of a bucket whose setting was changed and is not yet
// applied to all objects.
func turningKey(a AccountID, name string) key { return part(part(table(tableTurning), a), name) }

// linkRow returns the value of the row of a link: whether the link counts as public.
func linkRow(public bool) []byte {
	if public {
		return []byte{1}
	}
	return nil
}

// isPublic returns whether a link counts as public, from the value of its row.
func isPublic(row []byte) bool { return len(row) > 0 }

// link adds one link to the root's counters.
func (v *Root) link(public bool) {
	v.Links++
	if public {
		v.Public++
	}
}

// named returns the tables of a bucket's versions in the order in which turn reads them. A
// noncurrent version that becomes current during the migration moves to the table that is read
// later; for a version that becomes noncurrent see succession.follow. Parts are not included: a
// part becomes public with its object.
func named() []byte { return []byte{tableVersion, tableObject} }

// SetBucketPublic makes a bucket public or private. New objects follow the setting at once, and
// so do as many existing objects as the entry may change. TurnBuckets changes the others.
type SetBucketPublic struct {
	Account AccountID
	Name    string
	Born    Incarnation
	Public  bool
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetBucketPublic) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Name, &v.Born)
	codec.Bool(c, &v.Public)
}

func (v *SetBucketPublic) apply(tx Tx, e *entry) (Result, error) {
	b, err := openBucket(tx, v.Account, v.Name, v.Born)
	if err != nil || b.Public == v.Public {
		return Result{}, err
	}
	b.Public = v.Public
	return Result{}, b.turn(tx, nil, e)
}

// BucketName identifies an existing bucket.
type BucketName struct {
	Account AccountID
	Name    string
}

// TurnBuckets continues to apply the changed public or private setting of buckets to their
// existing objects, at most MaxSettle objects in one command.
type TurnBuckets struct{ Items []BucketName }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *TurnBuckets) Code(c *codec.Coder) {
	codec.List(c, &v.Items, MaxReports, func(c *codec.Coder, b *BucketName) {
		codec.String(c, &b.Account, MaxIDLen)
		codec.String(c, &b.Name, maxBucketName)
	})
}

func (v *TurnBuckets) apply(tx Tx, e *entry) (Result, error) {
	for _, item := range v.Items {
		if e.settle == 0 {
			break
		}
		from, turning, err := tx.Get(turningKey(item.Account, item.Name))
		if err != nil {
			return Result{}, err
		}
		if !turning {
			continue
		}
		b, err := findBucket(tx, item.Account, item.Name)
		if err != nil {
			return Result{}, err
		}
		if b == nil {
			return Result{}, fmt.Errorf("state: bucket %q of %s is walked through and does not exist", item.Name, item.Account)
		}
		if err := b.turn(tx, slices.Clone(from), e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

// turn applies the bucket's setting to the links of its versions, from a key on and up to the
// entry's limit, and stores the bucket. It stores the key at which to continue as a mark.
func (v *Bucket) turn(tx Tx, from key, e *entry) error {
	links, next, err := v.links(tx, from, e.settle)
	if err != nil {
		return err
	}
	e.settle -= len(links)
	for _, l := range links {
		if l.root == "" {
			continue // a delete marker
		}
		if err := v.turnLink(tx, l, e); err != nil {
			return err
		}
	}
	mark := turningKey(v.Account, v.Name)
	if v.Turning = next != nil; v.Turning {
		e.fx.Settling = true
		err = tx.Set(mark, next)
	} else {
		err = tx.Delete(mark)
	}
	if err != nil {
		return err
	}
	return put(tx, bucketKey(v.Account, v.Name), v)
}

// links returns up to limit links of a bucket's versions from a key on, and the key of the next
// version, or nil at the end. For a delete marker the link is empty.
func (v *Bucket) links(r Reader, from key, limit int) (links []link, next key, err error) {
	for _, t := range named() {
		prefix := v.in(t)
		if bytes.Compare(from, prefix) < 0 {
			from = prefix
		}
		if end := prefix.end(); bytes.Compare(from, end) < 0 {
			err = r.Scan(from, end, false, func(k, value []byte) (bool, error) {
				if len(links) == limit {
					next = slices.Clone(k)
					return false, nil
				}
				o, err := decodeListed(value)
				links = append(links, link{o.Root, o.ID})
				return err == nil, err
			})
		}
		if err != nil || next != nil {
			return links, next, err
		}
	}
	return links, nil, nil
}

// turnLink counts a link as public or not, according to the bucket's setting.
func (v *Bucket) turnLink(tx Tx, l link, e *entry) error {
	row := linkKey(l.root, v.Account, l.id)
	value, linked, err := tx.Get(row)
	if err != nil || linked && isPublic(value) == v.Public {
		return err
	}
	root, err := get[Root](tx, rootKey(l.root))
	if err != nil {
		return err
	}
	if !linked || root == nil {
		return fmt.Errorf("state: version %s names root %s, which does not know it", l.id, l.root)
	}
	private := root.Private()
	if v.Public {
		root.Public++
	} else {
		root.Public--
	}
	if root.Private() != private {
		e.fx.touch(root)
	}
	if err := tx.Set(row, linkRow(v.Public)); err != nil {
		return err
	}
	return put(tx, rootKey(root.Key), root)
}

// Turning returns up to limit buckets whose public or private setting is not yet applied to all
// objects.
func (v View) Turning(limit int) ([]BucketName, error) {
	var names []BucketName
	prefix := table(tableTurning)
	err := v.r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		if len(names) == limit {
			return false, nil
		}
		a, rest, err := readPart[AccountID](k[len(prefix):])
		if err != nil {
			return false, err
		}
		name, _, err := readPart[string](rest)
		names = append(names, BucketName{a, name})
		return err == nil, err
	})
	return names, err
}
