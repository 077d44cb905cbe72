package state

import "testing"

// The index by meta has the pins of all accounts after it is built, whatever rows other tables have.
// The row of a drained node precedes all rows of pins, and its name sorts after those of both accounts.
func TestTheIndexByMetaHasAllAccounts(t *testing.T) {
	m := found(t)
	m.must(&JoinNode{Node: Node{ID: "a longer name"}})
	for _, a := range []AccountID{alice, bob} {
		pin := create(a, "p"+RequestID(a), contents[0])
		pin.Pin.Meta = map[string]string{"app": "x"}
		m.must(pin)
	}
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	m.must(&SetDrain{Node: "a longer name", On: true, At: 1})
	m.index100()
	if next, _, _, err := m.view().PinsToIndex(); next != nil || err != nil {
		t.Errorf("the index is not complete: %v, %v", next, err)
	}
}

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
