package accounts

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A setup token adds the first administrator once, and nobody gets another token after that.
func TestTheFirstAdministratorIsSetUpOnce(t *testing.T) {
	w := newWorld(t)
	token, err := w.SetupToken()
	if err != nil || token == "" {
		t.Fatalf("token %q, %v", token, err)
	}
	for _, other := range []string{"", "hfl_", token[:len(token)-1], token + "A", "hfs_" + token[4:], "hfl_B" + token[5:]} {
		if err := w.CheckSetup(t.Context(), other); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("token %q: %v", other, err)
		}
	}
	if err := w.SetUp(t.Context(), token, "not an address", password); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("a bad address: %v", err)
	}
	if err := w.SetUp(t.Context(), token, "ada@example.org", password); err != nil {
		t.Fatal(err)
	}
	if err := w.SetUp(t.Context(), token, "eve@example.org", password); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the token again: %v", err)
	}
	if again, err := w.SetupToken(); err != nil || again != "" {
		t.Errorf("another token %q, %v", again, err)
	}
	session, err := w.SignIn(t.Context(), "ada@example.org", password, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := w.Authenticate(t.Context(), session); err != nil || !p.Admin {
		t.Errorf("the session is of %+v, %v", p, err)
	}
	if err := w.SetAdmin(t.Context(), "ada@example.org", false); err != nil {
		t.Fatal(err)
	}
	if p, err := w.Authenticate(t.Context(), session); err != nil || p.Admin {
		t.Errorf("after that was taken away it is of %+v, %v", p, err)
	}
}

// A setup token is valid until LinkLife is over, and is refused from then on.
func TestASetupTokenEnds(t *testing.T) {
	w := newWorld(t)
	token, err := w.SetupToken()
	if err != nil {
		t.Fatal(err)
	}
	w.pass(LinkLife - time.Second)
	if err := w.CheckSetup(t.Context(), token); err != nil {
		t.Errorf("before its end: %v", err)
	}
	w.pass(time.Second)
	if err := w.SetUp(t.Context(), token, "ada@example.org", password); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("at its end: %v", err)
	}
}
