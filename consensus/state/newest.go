package state

import (
	"cmp"
	"slices"
)

// newest collects the newest of many pins, versions and uploads.
type newest struct {
	limit int
	all   []Ending
}

// add adds one element. It stores at most twice the limit before it calls cut.
func (v *newest) add(e Ending) {
	v.all = append(v.all, e)
	if len(v.all) >= 2*v.limit {
		v.cut()
	}
}

// cut sorts the elements, newest first, and removes those above the limit.
func (v *newest) cut() {
	slices.SortFunc(v.all, func(a, b Ending) int {
		return cmp.Or(
			cmp.Compare(b.Created, a.Created), cmp.Compare(a.Pin, b.Pin), cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.Upload, b.Upload),
		)
	})
	v.all = v.all[:min(len(v.all), v.limit)]
}

// Newest returns the newest pins, versions and uploads of an account, newest first, at most
// limit. It omits delete markers, and failed pins without quota weight. It reads the rows of all
// versions of the account, which takes at least a second for a million versions.
func (v View) Newest(a AccountID, limit int) ([]Ending, error) {
	if limit <= 0 {
		return nil, nil
	}
	n := &newest{limit: limit}
	for _, s := range Statuses() {
		if err := v.newestPins(a, s, n); err != nil {
			return nil, err
		}
	}
	buckets, err := v.Buckets(a)
	if err != nil {
		return nil, err
	}
	for i := range buckets {
		if err := v.newestIn(&buckets[i], n); err != nil {
			return nil, err
		}
	}
	n.cut()
	return n.all, nil
}

// newestPins adds to n the newest pins with a status.
func (v View) newestPins(a AccountID, s Status, n *newest) error {
	prefix, found := pinKey(a, pinRow).byte(byte(s)), 0
	return v.r.Scan(prefix, prefix.end(), false, func(k, row []byte) (bool, error) {
		created, err := createdOf(k, prefix)
		if err != nil {
			return false, err
		}
		if s == Failed {
			p, err := decode[Pin](row)
			if err != nil || p.weight() == 0 {
				return err == nil, err
			}
		}
		found++
		n.add(Ending{Created: created, Pin: RequestID(k[len(prefix)+8:])})
		return found < n.limit, nil
	})
}

// newestIn adds to n the versions and uploads of a bucket.
func (v View) newestIn(b *Bucket, n *newest) error {
	in := func(key string, created Millis) Ending {
		return Ending{Created: created, Bucket: b.Name, Born: b.Born, Key: key}
	}
	for _, t := range []byte{tableObject, tableVersion} {
		prefix := b.in(t)
		err := v.r.Scan(prefix, prefix.end(), false, func(_, row []byte) (bool, error) {
			o, err := decodeListed(row)
			if err != nil || o.Marker {
				return err == nil, err
			}
			e := in(o.Key, o.Created)
			e.Version = o.ID
			n.add(e)
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	prefix := b.in(tableUpload)
	return v.r.Scan(prefix, prefix.end(), false, func(_, row []byte) (bool, error) {
		u, err := decode[Upload](row)
		if err != nil {
			return false, err
		}
		e := in(u.Key, u.Created)
		e.Upload = u.ID
		n.add(e)
		return true, nil
	})
}

// Has returns whether the pin, the version or the upload that e names exists.
func (v View) Has(a AccountID, e *Ending) (bool, error) {
	if e.Pin != "" {
		p, err := locate(v.r, a, e.Pin)
		return p != nil, err
	}
	b, err := findBucket(v.r, a, e.Bucket)
	if err != nil || b == nil || b.Born != e.Born {
		return false, err
	}
	if e.Upload != "" {
		u, err := findUpload(v.r, b, e.Key, e.Upload)
		return u != nil, err
	}
	current, err := findObject(v.r, b, e.Key)
	if err != nil {
		return false, err
	}
	o, err := b.version(v.r, current, e.Key, e.Version)
	return o != nil, err
}
