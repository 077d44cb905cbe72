package state

// wantMeta writes what the index by meta should have of a pin.
func (m *machine) wantMeta(want *memory, p *Pin) {
	m.t.Helper()
	at, err := get[indexing](m, indexingKey)
	if err != nil {
		m.t.Fatal(err)
	}
	if at == nil || !at.Complete && string(locatorKey(p.Account, p.ID)) > at.To {
		return
	}
	pairs := map[pair]bool{}
	for k, v := range p.Meta {
		if len(p.Meta) > maxIndexedPairs {
			pairs[manyPairs] = true
		} else {
			pairs[pairOf(k, v)] = true
		}
	}
	for pair := range pairs {
		set(m.t, want, metaIndex(p.Account, pair).descending(p.Created), []byte{byte(p.Status)})
		if p.Status == Pinned {
			for level := range counterShifts {
				bump(m.t, want, metaCounter(p.Account, pair, level, p.Created), 1)
			}
		}
	}
}
