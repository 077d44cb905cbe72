package state

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// decodeListed decodes those fields of an object that a list contains.
func decodeListed(value []byte) (o Object, err error) {
	c := codec.Decoder(value)
	if o.codeListed(c); c.More() { // it is all right, and the rest is left
		return o, nil
	}
	_, err = c.Finish()
	return o, fmt.Errorf("state: %T: %w", o, err)
}

// versions reads the rows of one table, of current or of noncurrent versions, for a page of
// versions.
type versions struct {
	rolling
	objects []Object
}

// Versions returns a page of a bucket's versions. It merges a page of the current versions and
// one of the noncurrent ones, each with the same limit, so the cost depends on the size of the
// page. AfterKey may be a common prefix that an earlier page returned, see Objects.
func (v View) Versions(b *Bucket, q VersionsQuery) (VersionsPage, error) {
	limit := min(q.Limit, MaxListLimit)
	if limit <= 0 {
		return VersionsPage{}, nil
	}
	tables := rolling{r: v.r, prefix: q.Prefix, delimiter: q.Delimiter, limit: limit}
	current, old := &versions{rolling: tables}, &versions{rolling: tables}
	current.base = b.in(tableObject)
	old.base, old.ordered = b.in(tableVersion), true
	from := [2]key{current.at(""), old.at("")}
	begun := "" // the key that the page goes on with
	switch {
	case q.AfterKey == "":
	case current.rolledUp(q.AfterKey) == q.AfterKey:
		from = [2]key{current.at(q.AfterKey).end(), old.at(q.AfterKey).end()}
	default:
		from = [2]key{append(current.at(q.AfterKey), 0), b.versionsOf(q.AfterKey).end()}
		if q.AfterID == "" {
			break
		}
		behind, found, err := v.behind(b, q.AfterKey, q.AfterID)
		if err != nil {
			return VersionsPage{}, err
		}
		if from[1] = behind; found {
			begun = q.AfterKey
		} else {
			from[0] = current.at(q.AfterKey)
		}
	}
	for i, r := range []*versions{current, old} {
		if r == old && b.Versioning == Unversioned {
			continue
		}
		err := r.walk(from[i], func(_, value []byte) error {
			o, err := decodeListed(value)
			r.objects = append(r.objects, o)
			return err
		})
		if err != nil {
			return VersionsPage{}, err
		}
	}
	return merged(current, old, limit, begun), nil
}

// behind returns the key from which to read the versions of an object key that are older than the
// version with an id. If there is no such version, found is false and the position is that of all
// noncurrent versions of the object key.
func (v View) behind(b *Bucket, k string, id VersionID) (from key, found bool, err error) {
	o, err := findObject(v.r, b, k)
	if err == nil {
		o, err = b.version(v.r, o, k, id)
	}
	if err != nil || o == nil {
		return b.versionsOf(k), false, err
	}
	return append(b.versionKey(k, o.Created), 0), true, nil
}

// merged merges a page of current and one of noncurrent versions. The current version of a key
// comes first. begun is the key of which an earlier page has shown the newest version already, or
// "".
func merged(current, old *versions, limit int, begun string) (page VersionsPage) {
	for entries := 0; ; entries++ {
		first := current
		name, up, ok := current.head()
		if other, upOther, more := old.head(); more && (!ok || other < name) {
			first, name, up, ok = old, other, upOther, true
		}
		switch {
		case !ok && !current.truncated && !old.truncated:
			page.NextKey, page.NextID = "", ""
			return page
		case !ok || entries == limit:
			page.Truncated = true
			return page
		case up:
			current.pass(name)
			old.pass(name)
			page.Prefixes = append(page.Prefixes, name)
			page.NextKey, page.NextID = name, ""
			continue
		}
		o := first.objects[0]
		first.objects = first.objects[1:]
		page.Versions = append(page.Versions, o)
		page.Latest = append(page.Latest, name != begun)
		page.NextKey, page.NextID, begun = name, o.ID, name
	}
}

// head returns the key or the common prefix (up is true) of the next entry. ok is false if there
// is none.
func (w *versions) head() (name string, up, ok bool) {
	switch {
	case len(w.objects) == 0 && len(w.prefixes) == 0:
		return "", false, false
	case len(w.prefixes) == 0 || len(w.objects) > 0 && w.objects[0].Key < w.prefixes[0]:
		return w.objects[0].Key, false, true
	}
	return w.prefixes[0], true, true
}

// pass skips the next entry if it is the given common prefix.
func (w *versions) pass(prefix string) {
	if name, up, ok := w.head(); ok && up && name == prefix {
		w.prefixes = w.prefixes[1:]
	}
}
