package state

import "testing"

// No two tables begin with the same byte.
func TestTablesAreDistinct(t *testing.T) {
	if tables := tablesOf(t); len(tables) < 60 {
		t.Errorf("%d tables were found", len(tables))
	}
}
