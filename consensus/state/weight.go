package state

import "fmt"

// FreeMeta is the number of bytes of the texts of one record that are free of charge. The bytes
// beyond are the record's weight and count against the account's allowance, because the owner
// chooses their size and the number of records has no bound.
const FreeMeta = 1 << 10

// runBytes is the weight of a run of parts of one size in bytes, which is about the memory that
// it takes.
const runBytes = 8

// weighing returns what texts weigh together, in bytes. It is made of what a record is given
// and keeps, and not of the bytes that it takes: those change with its status.
func weighing(texts int) uint64 { return uint64(max(texts-FreeMeta, 0)) }

func textsIn(texts []string) (n int) {
	for _, t := range texts {
		n += len(t)
	}
	return n
}

func textsOf(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

func tagsOf(tags []Tag) (n int) {
	for i := range tags {
		n += len(tags[i].Key) + len(tags[i].Value)
	}
	return n
}

// weight returns the weight of the pin in bytes: of its name, origins and meta.
func (v *Pin) weight() uint64 {
	return weighing(len(v.Name) + textsOf(v.Meta) + textsIn(v.Origins))
}

// weight returns what the version weighs, in bytes: key, headers, metadata and tags, and the
// sizes of its parts, which copies have too. Those have a free part of their own, so that
// an upload of parts of a few sizes becomes an object that weighs as much. A delete marker,
// which has a key alone, weighs nothing: there is always room to delete.
func (v *Object) weight() uint64 {
	return weighing(len(v.Key)+textsOf(v.Headers)+textsOf(v.Meta)+tagsOf(v.Tags)) + weighing(runBytes*len(v.Parts))
}

// weight returns the weight of the upload in bytes. It is that of the version that the upload
// becomes.
func (v *Upload) weight() uint64 {
	return weighing(len(v.Key) + textsOf(v.Headers) + textsOf(v.Meta) + tagsOf(v.Tags))
}

// affordRecord returns an error if the account cannot afford that one of its records weighs
// is bytes instead of was. A record that does not become heavier is always allowed.
func affordRecord(r Reader, a AccountID, was, is uint64) error {
	if is <= was {
		return nil
	}
	q, err := get[Quota](r, quotaKey(a))
	if err != nil || q == nil || !q.exceeds(q.Used()+is-was) {
		return err
	}
	return noRoom(r, a, q, fmt.Sprintf("metadata, %d bytes above those that are free, does not fit", is))
}

// growRecord does the same as reweigh for a record whose account may not be able to afford it.
func growRecord(tx Tx, a AccountID, was, is uint64) error {
	if err := affordRecord(tx, a, was, is); err != nil {
		return err
	}
	return reweigh(tx, a, was, is)
}

// reweigh changes the charge of an account for a record that weighs is bytes instead of
// was; 0 for a missing record. If nothing changes, as for most records, it reads and writes
// nothing. Below feature level 2 accounts have no quota.
func reweigh(tx Tx, a AccountID, was, is uint64) error {
	if is == was {
		return nil
	}
	q, err := get[Quota](tx, quotaKey(a))
	if err != nil || q == nil {
		return err
	}
	if q.Records < was {
		return fmt.Errorf("state: the records of %s weigh %d bytes, and one of them %d", a, q.Records, was)
	}
	q.Records += is - was
	return put(tx, quotaKey(a), q)
}

// pinsWeigh returns the weight of all pins of an account.
func pinsWeigh(r Reader, a AccountID) (bytes uint64, err error) {
	prefix := pinKey(a, pinRow)
	err = r.Scan(prefix, prefix.end(), false, func(_, value []byte) (bool, error) {
		p, err := decode[Pin](value)
		if err == nil {
			bytes += p.weight()
		}
		return err == nil, err
	})
	return bytes, err
}
