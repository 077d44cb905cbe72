package web

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Texts of people do not become formulas of a spreadsheet, and numbers stay numbers.
func TestTextsOfExportsAreNoFormulas(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "note": "note", "a=1": "a=1", "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "\tx": "'\tx", "\rx": "'\rx", "'x": "'x", "é": "é",
	} {
		if got := CSVText(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
	p := PostingOf(&state.Posting{ID: "=id", Kind: state.Correction, Credits: 5, Takes: true, Corrects: "@c", Note: "-n", By: state.Actor{Email: "+a@example.org"}})
	v := p.Values()
	if v[3] != "-5" || v[5] != "'=id" || v[6] != "'@c" || v[7] != "'-n" || v[8] != "'+a@example.org" {
		t.Errorf("a posting becomes %q", v)
	}
}
