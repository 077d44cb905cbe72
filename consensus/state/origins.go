package state

import (
	"fmt"
	"slices"
)

// Origins are stored in the pins that name them. Keys with this prefix find the attached pins
// that have origins, by root and account, and of an account the newest pin first.
func originsOf(k RootKey) key { return part(table(tableOrigin), k) }

func originKey(p *Pin, k RootKey) key {
	return append(part(originsOf(k), p.Account).descending(p.Created), p.ID...)
}

// hold attaches a pin to a root. The caller increases the count of the root.
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

// release deletes the records that hold has written.
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

// Origins returns up to MaxOrigins origins of the pins of a root, each once. The first
// MaxOrigins accounts with origins take turns, and each begins with its newest pin, so that
// one account cannot displace the origins of another.
func (v View) Origins(k RootKey) ([]string, error) {
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

// originLine has the origins of one account's pins of a root.
type originLine struct {
	account AccountID
	prefix  key
	from    key      // position of the pins that are not read yet; nil if there are none
	pins    int      // number of pins that were read
	named   []string // origins of these pins that were not taken yet
	over    bool
}

// next returns the next origin that was not taken yet, or "" if there is none.
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

// read reads the next pin.
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
