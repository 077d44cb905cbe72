package state

import (
	"fmt"
	"slices"
)

// The origins of a root are those in its pins; they are not stored separately. originsOf returns
// the prefix of an index of the attached pins that have origins, by account, newest pin first.
func originsOf(k RootKey) key { return part(table(tableOrigin), k) }

func originKey(p *Pin, k RootKey) key {
	return append(part(originsOf(k), p.Account).descending(p.Created), p.ID...)
}

// hold writes the index rows by which a pin is attached to a root. The caller increases the
// root's reference count.
func (v *Pin) hold(tx Tx, k RootKey) error {
	if len(v.Origins) > 0 {
		if err := tx.Set(originKey(v, k), nil); err != nil {
			return err
		}
	}
	if v.MaxBytes > 0 {
		if err := tx.Set(boundedKey(v, k), nil); err != nil {
			return err
		}
	}
	return tx.Set(attachedKey(v, k), nil)
}

// release deletes the index rows that hold has written.
func (v *Pin) release(tx Tx, k RootKey) error {
	if len(v.Origins) > 0 {
		if err := tx.Delete(originKey(v, k)); err != nil {
			return err
		}
	}
	if v.MaxBytes > 0 {
		if err := tx.Delete(boundedKey(v, k)); err != nil {
			return err
		}
	}
	return tx.Delete(attachedKey(v, k))
}

// maxOriginPins is the largest number of pins of an account that are read to find the origins
// of a root.
const maxOriginPins = 16

// Origins returns up to MaxOrigins different origins of a root's pins. It takes one origin in
// turn from each of the first MaxOrigins accounts with origins, starting with the newest pin of
// each, so that one account cannot displace the origins of another.
func (v View) Origins(k RootKey) ([]string, error) {
	root, err := get[Root](v.r, rootKey(k))
	if err != nil || root == nil || root.Refs == 0 {
		return nil, err
	}
	if only, err := v.firsts.only(v.r, root); err != nil || only != nil {
		return different(only), err
	}
	accounts, err := v.accountsIn(originsOf(k), MaxOrigins)
	if err != nil || len(accounts) == 0 {
		return nil, err
	}
	lines := make([]*originLine, len(accounts))
	for i, a := range accounts {
		prefix := part(originsOf(k), a)
		lines[i] = &originLine{account: a, prefix: prefix, from: prefix}
	}
	all := make([]string, 0, MaxOrigins)
	for len(lines) > 0 {
		for _, l := range lines {
			o, err := l.next(v.r, all)
			if err != nil {
				return nil, err
			}
			if o == "" {
				l.over = true
				continue
			}
			if all = append(all, o); len(all) == MaxOrigins {
				return all, nil
			}
		}
		lines = slices.DeleteFunc(lines, func(l *originLine) bool { return l.over })
	}
	return all, nil
}

// different returns the origins of a pin without repetitions. The pin may be nil.
func different(p *Pin) (all []string) {
	if p == nil {
		return nil
	}
	for _, o := range p.Origins {
		if o != "" && !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

// originLine iterates over the origins in one account's pins of a root, for Origins.
type originLine struct {
	account AccountID
	prefix  key
	from    key      // position of the next pin to read; nil if there are no more
	pins    int      // number of pins that were read
	named   []string // origins of the pins read so far that next has not returned
	over    bool
}

// next returns the account's next origin that is not in taken, or "" if there is none.
func (l *originLine) next(r Reader, taken []string) (origin string, err error) {
	for {
		for len(l.named) > 0 {
			origin, l.named = l.named[0], l.named[1:]
			if origin != "" && !slices.Contains(taken, origin) {
				return origin, nil
			}
		}
		if l.from == nil || l.pins == maxOriginPins {
			return "", nil
		}
		if err := l.read(r); err != nil {
			return "", err
		}
	}
}

// read reads the account's next pin and its origins.
func (l *originLine) read(r Reader) error {
	var id RequestID
	found := false
	err := r.Scan(l.from, l.prefix.end(), false, func(k, _ []byte) (bool, error) {
		if len(k) < len(l.prefix)+8 {
			return false, fmt.Errorf("state: short key %x", k)
		}
		id, found = RequestID(k[len(l.prefix)+8:]), true
		l.from = append(slices.Clone(k), 0)
		return false, nil
	})
	if err != nil || !found {
		l.from = nil
		return err
	}
	p, err := findPin(r, l.account, id)
	if err != nil {
		return err
	}
	if p == nil {
		return fmt.Errorf("state: pin %s names origins and does not exist", id)
	}
	l.pins, l.named = l.pins+1, p.Origins
	return nil
}
