package state

import "fmt"

// Incoming is the size of content before its upload, while its root is unknown.
type Incoming struct {
	Size uint64 // bytes of content
	Most uint64 // upper bound of the bytes of the DAG's blocks; at least Size
}

// maxPrecheckRoots bounds the roots of an account that the quota pre-check reads, to find
// content that the account may have already.
const maxPrecheckRoots = 1000

// RoomForObject returns the quota pre-check of PutObject. It returns ErrQuota only if Apply refuses
// the put for any content of that size; Apply checks all others again. It returns
// ErrNotFound for an unknown account.
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

// RoomForPart returns the quota pre-check of PutPart, with the errors of RoomForObject.
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

// precheck returns ErrQuota if the content does not fit into the free part of the quota, plus
// the freed links and goes bytes of freed records. It lets content through that the account
// may have already; see linking.afford for its charge. Content on its way is charged with at
// least the missing bytes, see reserve.
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

// overQuota returns the error for a change for which the account has no room.
func overQuota(q *Quota, what string) error {
	return Errorf(CodeQuota, "%s: %d of the %d bytes of the account's free storage are used, and it has no credits", what, q.Used(), q.Allowance)
}

// unfit returns the message for content of size bytes, or of an undisclosed size if size is 0,
// and a record of weight bytes that do not fit.
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

// tellable returns the size of a root's content. It returns 0 if the size is not known, or if
// only objects of private buckets refer to the root, because then only their accounts may know
// the size.
func tellable(root *Root) uint64 {
	if root == nil || root.Status != Pinned || root.Private() {
		return 0
	}
	return root.Size
}
