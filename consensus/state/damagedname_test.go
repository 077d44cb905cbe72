package state

import (
	"strings"
	"testing"
)

// oneKey is a store with one key behind every prefix.
type oneKey struct{ behind []byte }

func (oneKey) Get([]byte) ([]byte, bool, error) { return nil, false, nil }

func (o oneKey) Scan(lower, _ []byte, _ bool, fn func(k, v []byte) (bool, error)) error {
	_, err := fn(append(append([]byte(nil), lower...), o.behind...), nil)
	return err
}

// A key of the index by name that is too short, or has a wrong length in it, ends a list with an error. It is not
// read as a pin.
func TestADamagedKeyOfANameIsAnError(t *testing.T) {
	created := make([]byte, 8)
	for name, behind := range map[string][]byte{
		"too short":         {0, 1},
		"a length too long": append([]byte{0, 9, 'n'}, created...),
		"a length too low":  append([]byte{0, 0, 'n'}, created...),
	} {
		l := &lister{r: oneKey{behind}, account: "a", q: &PinQuery{Name: "n"}}
		if _, err := l.named(); err == nil || !strings.Contains(err.Error(), "of a name") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
