package pinning

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Every id that a pin can have is accepted in the path, and each other one is not found.
func TestIDsOfThePath(t *testing.T) {
	for c := range 256 {
		for _, id := range []string{string([]byte{byte(c)}), "a" + string([]byte{byte(c)}), string([]byte{byte(c)}) + "Z9"} {
			r := httptest.NewRequest("GET", "/pins/x", nil)
			r.SetPathValue("requestid", id)
			known := c < 0x80 && strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", rune(c))
			if got, err := requestID(r); known && (err != nil || string(got) != id) || !known && (got != "" || !errors.Is(err, state.ErrNotFound)) {
				t.Errorf("%q: %q, %v", id, got, err)
			}
		}
	}
	for n, known := range map[int]bool{1: true, state.MaxIDLen: true, state.MaxIDLen + 1: false} {
		r := httptest.NewRequest("GET", "/pins/x", nil)
		r.SetPathValue("requestid", strings.Repeat("x", n))
		if got, err := requestID(r); (err == nil) != known || len(got) > state.MaxIDLen {
			t.Errorf("%d bytes: %q, %v", n, got, err)
		}
	}
}
