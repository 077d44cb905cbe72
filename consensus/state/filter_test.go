package state

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

// Every character folds to the least of those that Unicode's simple case folding takes for the same. The folder
// finds it with its table and without.
func TestCharactersFoldAsUnicodeSays(t *testing.T) {
	table := new(folder)
	for table.least == nil {
		table.fold(nil, []byte("é"))
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		got, once := string(table.fold(nil, []byte(string(r)))), new(folder)
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		if alone := string(once.fold(nil, []byte(string(r)))); got != string(least) || alone != got {
			t.Fatalf("%U folds to %q and, without a table, to %q, want %q", r, got, alone, string(least))
		}
	}
}

// A name matches as a whole or in a part, with the case or by Unicode's simple case folding, as Match says.
func TestNamesMatch(t *testing.T) {
	for _, tc := range []struct {
		how        Match
		want, name string
		matches    bool
	}{
		{Exact, "Μέλι", "Μέλι", true},
		{Exact, "Μέλι", "μέλι", false},
		{IExact, "μέλι", "ΜΈΛΙ", true},
		{IExact, "μέλι", "ΜΈΛΙ ", false},
		{Partial, "έλ", "Μέλι", true},
		{Partial, "έλ", "ΜΈΛΙ", false},
		{IPartial, "έλ", "ΜΈΛΙ", true},
		{IPartial, "ΈΛ", "μέλι", true},
		{IPartial, "μελ", "Μέλι", false}, // an accent is no case
		{IPartial, "ёжик в", "ЁЖИК В ТУМАНЕ", true},
		{IPartial, "ΟΔΌΣ", "οδός", true},          // three forms: Σ, σ and the ς at an end
		{IPartial, "kelvin", "\u212aELVIN", true}, // three forms, one of them ASCII
		{IPartial, "\u017fet", "a SET", true},     // ſ is an S
		{IPartial, "ß", "SS", false},              // simple folding has one character for one
		{IPartial, "az@[`{", "AZ@[`{", true},
		{IPartial, "@", "`", false}, // 32 apart like letters, and none
		{IPartial, "[", "{", false},
	} {
		if got := nameMatcher(tc.want, tc.how)([]byte(tc.name)); got != tc.matches {
			t.Errorf("match %v of %q: %q is %v", tc.how, tc.want, tc.name, got)
		}
	}
}
