package state

import "slices"

// wantDrains checks that all drains are of members, and counts them.
func (m *machine) wantDrains(want *memory, nodes []Node) {
	m.t.Helper()
	drains, err := m.view().Drains()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, d := range drains {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.ID == d.Node }) {
			m.t.Errorf("%s is no member and is being drained", d.Node)
		}
	}
	bump(m.t, want, drainCount, len(drains))
}
