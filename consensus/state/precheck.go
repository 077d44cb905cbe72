package state

import "fmt"

// Incoming is the size of content that a client is going to upload, and whose root is therefore
// unknown.
type Incoming struct {
	Size uint64 // bytes of content
	Most uint64 // upper bound of the bytes of the DAG's blocks; at least Size
}

// maxPrecheckRoots is the largest number of an account's roots that the quota pre-check reads to
// find out whether the account may have the content already.
const maxPrecheckRoots = 1000

// RoomForObject is the quota pre-check of PutObject, before the upload of the content. It returns
// ErrQuota only if Apply would reject every put of that size, and ErrNotFound for an unknown
// account. If it returns nil, Apply may still reject the put.
func (v View) RoomForObject(b *Bucket, k string, in Incoming) error {
	q, err := quotaOf(v.r, b.Account)
	if err != nil || !q.exceeds(addBounded(q.Used(), in.Size)) {
		return err
	}
	current, err := findObject(v.r, b, k)
	if err != nil {
		return err
	}
	s, err := b.succeed(v.r, &Object{Key: k}, current)
	if err != nil {
		return err
	}
	return in.precheck(v.r, b.Account, q, s.drops(), s.sheds())
}

// RoomForPart is the quota pre-check of PutPart, with the errors of RoomForObject.
func (v View) RoomForPart(b *Bucket, id UploadID, number uint16, in Incoming) error {
	q, err := quotaOf(v.r, b.Account)
	if err != nil || !q.exceeds(addBounded(q.Used(), in.Size)) {
		return err
	}
	old, err := get[Part](v.r, b.partKey(id, number))
	if err != nil {
		return err
	}
	var drops []link
	if old != nil {
		drops = []link{{old.Root, old.ID}}
	}
	return in.precheck(v.r, b.Account, q, drops, 0)
}

// precheck returns ErrQuota if the content does not fit into the free part of the quota plus what
// the change frees: the links in drops and goes bytes of records. It returns nil if the account
// may have the same content already; see linking.afford for the charge in that case.
func (in Incoming) precheck(r Reader, a AccountID, q *Quota, drops []link, goes uint64) error {
	l := linking{account: a, drops: drops}
	freed, err := l.freed(r)
	if err != nil {
		return err
	}
	room := addBounded(freed+goes, q.Allowance-min(q.Allowance, q.Used()))
	if in.Size <= room {
		return nil
	}
	missing, seen, shared := in.Size-room, 0, false
	if missing <= q.Stored+q.Coming {
		prefix := part(table(tableCharge), a)
		err = r.Scan(prefix, prefix.end(), false, func(_, value []byte) (bool, error) {
			c, err := decode[charge](value)
			if err != nil {
				return false, err
			}
			seen++
			if c.Stored {
				shared = c.Bytes >= in.Size && c.Bytes <= in.Most
			} else {
				shared = c.Bytes >= missing
			}
			shared = shared || seen > maxPrecheckRoots
			return !shared, nil
		})
	}
	if err != nil || shared {
		return err
	}
	if soon, err := freeing(r, a); err != nil || soon {
		return err // there may be enough quota when the body has arrived
	}
	return overQuota(q, unfit(in.Size, 0))
}

// overQuota returns the ErrQuota for a change that needs more bytes than the account has left.
func overQuota(q *Quota, what string) error {
	return Errorf(CodeQuota, "%s: %d of the %d bytes of the account's free storage are used, and it has no credits", what, q.Used(), q.Allowance)
}

// unfit returns the message that content of size bytes and a record with the given weight do not
// fit. A size of 0 means that the size must not be disclosed.
func unfit(size, weight uint64) string {
	what := "the content"
	if size > 0 {
		what += fmt.Sprintf(", %d bytes,", size)
	}
	if weight == 0 {
		return what + " does not fit"
	}
	return fmt.Sprintf("%s and its metadata, %d bytes above those that are free, do not fit", what, weight)
}

// tellable returns the size of a root's content if it may be disclosed to any account. It returns
// 0 if the size is not known, or if only objects of private buckets reference the root.
func tellable(root *Root) uint64 {
	if root == nil || root.Status != Pinned || root.Private() {
		return 0
	}
	return root.Size
}
