package state

import "fmt"

// Incoming is the size of content that is still to come and whose root nobody knows.
type Incoming struct {
	Size uint64 // bytes of content
	Most uint64 // of the blocks of its DAG, whatever it is; not below Size
}

// maxForeseen is how many roots of an account are looked at for content that it may have
// already.
const maxForeseen = 1000

// RoomForObject tells whether PutObject of such content under a key may be accepted. It
// returns ErrQuota only where Apply refuses it whatever the content is; what it lets
// through Apply judges. It is ErrNotFound as Quota is.
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
	return in.foresee(v.r, b.Account, q, s.drops())
}

// RoomForPart is RoomForObject of PutPart.
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
	return in.foresee(v.r, b.Account, q, drops)
}

// foresee refuses content that does not fit into what is left and what the links that
// go free, unless the account may have it already. What it stores is as large then, see
// linking.afford, and of what is on its way at least as much has come as is missing.
func (in Incoming) foresee(r Reader, a AccountID, q *Quota, drops []link) error {
	l := linking{account: a, drops: drops}
	freed, err := l.freed(r)
	if err != nil {
		return err
	}
	room := addBounded(freed, q.Allowance-min(q.Allowance, q.Used()))
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
			least := in.Size
			if !c.Stored {
				least = missing
			}
			seen++
			shared = c.Bytes >= least && c.Bytes <= in.Most || seen > maxForeseen
			return !shared, nil
		})
	}
	if err != nil || shared {
		return err
	}
	if soon, err := freeing(r, a); err != nil || soon {
		return err // there may be room when the body has come
	}
	return overQuota(q, in.Size)
}

// overQuota is the refusal of what an account has no room for: content of size bytes, or
// of a size that is not to be told, which is 0.
func overQuota(q *Quota, size uint64) error {
	what := "the content does not fit"
	if size > 0 {
		what = fmt.Sprintf("the content, %d bytes, does not fit", size)
	}
	return Errorf(CodeQuota, "%s: %d of the %d bytes of the account's free storage are used, and it has no credits", what, q.Used(), q.Allowance)
}

// tellable is how large the content of a root is, 0 where that is not known or not for
// everybody: what objects of private buckets alone name is their accounts' business.
func tellable(root *Root) uint64 {
	if root == nil || root.Status != Pinned || root.Private() {
		return 0
	}
	return root.Size
}
