package state

import "fmt"

// FreeMeta is the number of bytes of texts (names, metadata, tags) in one record that are free.
// The bytes above it are the record's weight, which counts against the account's allowance,
// because the owner chooses the size of the texts and the number of records has no limit.
const FreeMeta = 1 << 10

// runBytes is the weight in bytes of one PartRun of an object, which is about the memory that it
// takes.
const runBytes = 8

// weighing returns the weight of a record whose texts have the given total number of bytes. It
// depends only on what the client has given and not on the stored form, which changes with the
// status of the record.
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

// weight returns the weight of the version in bytes: that of its key, headers, metadata and tags,
// plus that of its PartRuns, which also a copy has. FreeMeta is free for each of the two, so that
// an upload with parts of a few sizes becomes an object of the same weight. A delete marker has
// only a key and no weight, so that deleting is always possible.
func (v *Object) weight() uint64 {
	return weighing(len(v.Key)+textsOf(v.Headers)+textsOf(v.Meta)+tagsOf(v.Tags)) + weighing(runBytes*len(v.Parts))
}

// weight returns the weight of the upload in bytes, without its parts. The resulting version has
// the same weight if its parts have few different sizes.
func (v *Upload) weight() uint64 {
	return weighing(len(v.Key) + textsOf(v.Headers) + textsOf(v.Meta) + tagsOf(v.Tags))
}

// affordRecord returns ErrQuota if the account cannot afford that the weight of one of its
// records changes from was to is bytes. A record that does not become heavier is always allowed.
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

// growRecord changes the quota of an account for a record whose weight changes from was to is
// bytes. It returns ErrQuota if the account cannot afford that. See affordRecord and reweigh.
func growRecord(tx Tx, a AccountID, was, is uint64) error {
	if err := affordRecord(tx, a, was, is); err != nil {
		return err
	}
	return reweigh(tx, a, was, is)
}

// reweigh changes the quota of an account for a record whose weight changes from was to is bytes;
// 0 stands for a missing record. If the weight does not change, as for most records, it reads and
// writes nothing. Below feature level 2, accounts have no quota.
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
