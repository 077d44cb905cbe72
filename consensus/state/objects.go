package state

import "bytes"

// rolling reads the rows of a list in key order. It combines the keys that have the same prefix
// up to a delimiter into one common prefix, as in S3.
type rolling struct {
	r         Reader
	base      key // prefix of all rows of the table
	ordered   bool
	prefix    string
	delimiter string
	limit     int

	prefixes  []string
	last      string // the last entry of the page
	rolled    bool   // the last entry is a common prefix
	truncated bool
}

// passRolled is the number of rows of one common prefix that are read before the rest of them is
// skipped by a seek. A seek costs as much as reading a few rows.
const passRolled = 1

// rolledUp returns the common prefix that represents a key, or "" if the key is listed itself.
func (w *rolling) rolledUp(k string) string {
	if w.delimiter == "" || len(k) < len(w.prefix) || k[:len(w.prefix)] != w.prefix {
		return ""
	}
	at := bytes.Index([]byte(k[len(w.prefix):]), []byte(w.delimiter))
	if at < 0 {
		return ""
	}
	return k[:len(w.prefix)+at+len(w.delimiter)]
}

// at returns the position of the first row whose key begins with prefix.
func (w *rolling) at(prefix string) key {
	k := append(key(nil), w.base...)
	if w.ordered {
		return k.orderedPrefix(prefix)
	}
	return append(k, prefix...)
}

// nameOf returns the object key in the key of a row.
func (w *rolling) nameOf(row []byte) (string, error) {
	if !w.ordered {
		return string(row[len(w.base):]), nil
	}
	name, _, err := readOrdered(row[len(w.base):])
	return name, err
}

// walk reads rows from the key from on until the page has limit entries. It calls take for each
// row that is listed itself, and adds common prefixes to prefixes.
func (w *rolling) walk(from key, take func(row, value []byte) error) error {
	if begin := w.at(w.prefix); bytes.Compare(from, begin) < 0 {
		from = begin
	}
	entries, passed := 0, 0
	return walk(w.r, from, w.at(w.prefix).end(), func(row, value []byte) (on key, more bool, err error) {
		name, err := w.nameOf(row)
		if err != nil {
			return nil, false, err
		}
		up := w.rolledUp(name)
		if up != "" && w.rolled && up == w.last {
			if passed++; passed == passRolled {
				on = w.at(w.last).end()
			}
			return on, true, nil
		}
		passed = 0
		if entries == w.limit {
			w.truncated = true
			return nil, false, nil
		}
		entries++
		w.last, w.rolled = name, up != ""
		if w.rolled {
			w.last = up
			w.prefixes = append(w.prefixes, up)
			return nil, true, nil
		}
		return nil, true, take(row, value)
	})
}

// walker is implemented by a Reader that can skip rows within one iteration, which is cheaper
// than a new Scan. The result on of fn is the key to continue with, or nil for the next row.
type walker interface {
	Walk(lower, upper []byte, fn func(key, value []byte) (on []byte, more bool, err error)) error
}

// walk calls fn for the rows of [from, end) in order. fn may return a later key with which to
// continue; nil means the next row.
func walk(r Reader, from, end key, fn func(row, value []byte) (on key, more bool, err error)) error {
	if w, ok := r.(walker); ok {
		return w.Walk(from, end, func(row, value []byte) ([]byte, bool, error) { return fn(row, value) })
	}
	for from != nil && bytes.Compare(from, end) < 0 {
		next := key(nil)
		err := r.Scan(from, end, false, func(row, value []byte) (bool, error) {
			on, more, err := fn(row, value)
			next = on
			return more && on == nil, err
		})
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

// Objects returns a page of a bucket's keys in the order of their bytes. After is a key, or
// a prefix of an earlier page; then no key with that prefix is returned again. The cost
// depends on the size of the page, not on the number of keys that a prefix represents.
func (v View) Objects(b *Bucket, q ObjectsQuery) (ObjectsPage, error) {
	var page ObjectsPage
	w := &rolling{
		r: v.r, base: b.in(tableObject), prefix: q.Prefix, delimiter: q.Delimiter, limit: min(q.Limit, MaxListLimit),
	}
	if w.limit <= 0 {
		return page, nil
	}
	if q.Backward {
		err := w.back(q.After, &page)
		return page, err
	}
	from := w.at("")
	if q.After != "" {
		if from = append(w.at(q.After), 0); w.rolledUp(q.After) == q.After {
			from = w.at(q.After).end()
		}
	}
	err := w.walk(from, func(_, value []byte) error {
		o, err := decodeListed(value)
		if err == nil {
			page.Objects = append(page.Objects, o)
		}
		return err
	})
	if err != nil {
		return ObjectsPage{}, err
	}
	page.Prefixes = w.prefixes
	if w.truncated {
		page.Truncated, page.Next = true, w.last
	}
	return page, nil
}

// back reads a page in reverse order: the entries that sort before the key or common prefix in the
// parameter below, or the last entries if that is empty.
func (w *rolling) back(below string, page *ObjectsPage) error {
	begin, end := w.at(w.prefix), w.at(w.prefix).end()
	if below != "" {
		if at := w.at(below); bytes.Compare(at, end) < 0 {
			end = at
		}
	}
	entries := 0
	for end != nil && bytes.Compare(begin, end) < 0 && !page.Truncated {
		next := key(nil)
		err := w.r.Scan(begin, end, true, func(row, value []byte) (bool, error) {
			if entries == w.limit {
				page.Truncated, page.Next = true, w.last
				return false, nil
			}
			entries++
			name, err := w.nameOf(row)
			if err != nil {
				return false, err
			}
			if up := w.rolledUp(name); up != "" {
				page.Prefixes, w.last, next = append(page.Prefixes, up), up, w.at(up)
				return false, nil
			}
			o, err := decodeListed(value)
			page.Objects, w.last = append(page.Objects, o), name
			return err == nil, err
		})
		if err != nil {
			return err
		}
		end = next
	}
	return nil
}

// Uploads returns a page of a bucket's open uploads by key and then by id. AfterKey
// may be a prefix as an earlier page returned it, see Objects.
func (v View) Uploads(b *Bucket, q UploadsQuery) (UploadsPage, error) {
	var page UploadsPage
	w := &rolling{
		r: v.r, base: b.in(tableUpload), ordered: true, prefix: q.Prefix, delimiter: q.Delimiter, limit: min(q.Limit, MaxListLimit),
	}
	if w.limit <= 0 {
		return page, nil
	}
	from := w.at("")
	if q.AfterKey != "" {
		of := append(key(nil), w.base...).ordered(q.AfterKey)
		switch {
		case w.rolledUp(q.AfterKey) == q.AfterKey:
			from = w.at(q.AfterKey).end()
		case q.AfterID != "":
			from = append(append(of, q.AfterID...), 0)
		default:
			from = of.end()
		}
	}
	err := w.walk(from, func(_, value []byte) error {
		u, err := decode[Upload](value)
		if err == nil {
			page.Uploads = append(page.Uploads, *u)
		}
		return err
	})
	if err != nil {
		return UploadsPage{}, err
	}
	page.Prefixes = w.prefixes
	if w.truncated {
		page.Truncated, page.NextKey = true, w.last
		if !w.rolled {
			page.NextID = page.Uploads[len(page.Uploads)-1].ID
		}
	}
	return page, nil
}
