package accounts

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

const password = "correct horse battery"

func signIn(t *testing.T, a *Accounts) string {
	t.Helper()
	token, err := a.SignIn(t.Context(), email, password, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func newUser(t *testing.T) (*world, state.Account) {
	t.Helper()
	w := newWorld(t)
	a, err := w.CreateAccount(t.Context(), email, password)
	if err != nil {
		t.Fatal(err)
	}
	return w, a.Account
}

// open tells whether a token opens the account, by both ways.
func (w *world) opens(t *testing.T, a *Accounts, token string) bool {
	t.Helper()
	p, err := a.Authenticate(t.Context(), token)
	q, again := a.Recognize(token)
	if (err == nil) != (again == nil) || err == nil && (p.Account != q.Account || p.Session != q.Session) {
		t.Errorf("authenticated %+v, %v; recognized %+v, %v", p, err, q, again)
	}
	if err != nil && (!errors.Is(err, state.ErrUnauthorized) || err.Error() != state.ErrUnauthorized.Detail) {
		t.Errorf("refused with %v", err)
	}
	return err == nil
}

// A session opens the account for reading and writing on every node until its sign-out, and the sign-out ends that
// session alone.
func TestSessionsOpenTheAccountUntilTheyEnd(t *testing.T) {
	w, account := newUser(t)
	token, other := signIn(t, w.Accounts), signIn(t, w.Accounts)
	if token == other || !strings.HasPrefix(token, "hfs_") {
		t.Errorf("tokens %q and %q", token, other)
	}
	p, err := w.Authenticate(t.Context(), token)
	if err != nil || p.Account != account.ID || p.Email != email || p.KeyID != "" || p.Session == "" ||
		!p.May(state.ScopeRead) || !p.May(state.ScopeWrite) {
		t.Errorf("%+v, %v", p, err)
	}
	if strings.Contains(w.logs.String(), token) || strings.Contains(w.logs.String(), password) {
		t.Error("a secret is in the log")
	}
	node := w.node()
	if !w.opens(t, node, token) {
		t.Error("not known on another node")
	}
	if err := node.SignOut(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*Accounts{w.Accounts, node} {
		if w.opens(t, a, token) || !w.opens(t, a, other) {
			t.Error("one session has ended, and that one alone")
		}
		if err := a.SignOut(t.Context(), token); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("the second end: %v", err)
		}
	}
	key := w.key(t, email)
	if err := w.SignOut(t.Context(), key.Token); !errors.Is(err, state.ErrUnauthorized) || !w.opens(t, w.Accounts, key.Token) {
		t.Errorf("the end of an API key: %v", err)
	}
}

// An idle session expires, and a session in use expires after 30 days.
func TestSessionsEndByThemselves(t *testing.T) {
	w, _ := newUser(t)
	idle, used := signIn(t, w.Accounts), signIn(t, w.Accounts)
	for range 59 {
		w.pass(12 * time.Hour)
		if !w.opens(t, w.Accounts, used) {
			t.Fatal("a session in use has ended")
		}
	}
	if w.opens(t, w.Accounts, idle) {
		t.Error("an idle session lives on")
	}
	if err := w.SignOut(t.Context(), idle); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("the end of what is over: %v", err)
	}
	w.pass(12 * time.Hour)
	if w.opens(t, w.Accounts, used) {
		t.Error("a session outlives 30 days")
	}
}

// A node whose clock is a year ahead refuses expired sessions by its own clock, but deletes a session only if most
// clocks say that it is over.
func TestOneWrongClockEndsNoSession(t *testing.T) {
	w, account := newUser(t)
	ahead := w.node()
	ahead.now = func() time.Time { return w.Accounts.now().Add(365 * 24 * time.Hour) }
	known := true
	ahead.agreed = func() (early, late state.Millis, ok bool) {
		if !known {
			return 0, 0, false
		}
		now := state.MillisOf(w.Accounts.now())
		return now, now, true
	}
	left := func() int {
		t.Helper()
		view, release := w.state.LocalView()
		defer release()
		all, err := view.Sessions(account.ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	token := signIn(t, w.Accounts)
	signIn(t, ahead)
	if w.opens(t, ahead, token) || !w.opens(t, w.Accounts, token) || left() != 2 {
		t.Errorf("%d sessions", left())
	}
	w.pass(DefaultSessionIdle)
	known = false
	if signIn(t, ahead); left() != 3 {
		t.Errorf("%d sessions while nobody knows the time", left())
	}
	known = true
	if signIn(t, ahead); left() != 3 {
		t.Errorf("%d sessions once most say that the first is over", left())
	}
}

// Requests propose nothing; NoteUses proposes one command with the last uses of all sessions and keys, and other
// nodes see them.
func TestUsesReachOtherNodesWithoutAWritePerRequest(t *testing.T) {
	w, _ := newUser(t)
	token, key, never := signIn(t, w.Accounts), w.key(t, email), w.key(t, email)
	node := w.node()
	proposals := 0
	w.state.Before(func(state.Command) { proposals++ })
	for range 1000 {
		w.opens(t, w.Accounts, token)
		w.opens(t, w.Accounts, key.Token)
	}
	w.pass(23 * time.Hour)
	w.opens(t, w.Accounts, token)
	w.opens(t, w.Accounts, key.Token)
	if proposals != 0 {
		t.Errorf("%d writes for requests", proposals)
	}
	for range 3 {
		if err := w.NoteUses(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if proposals != 1 {
		t.Errorf("%d writes for uses", proposals)
	}
	w.pass(2 * time.Hour)
	if !w.opens(t, node, token) {
		t.Error("another node does not know of the use")
	}
	keys, err := node.Keys(t.Context(), email)
	if err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	for _, k := range keys {
		if want := k.ID == key.ID; k.Used.IsZero() == want || want && k.Used.Sub(k.Created).Round(time.Minute) != 23*time.Hour {
			t.Errorf("%s used at %v", k.ID, k.Used)
		}
	}
	for i := range keys {
		if found, err := node.Key(t.Context(), keys[i].ID); err != nil || found != keys[i] {
			t.Errorf("a key by its id: %v, %v; want %v", found, err, keys[i])
		}
	}
	if shown, err := node.Show(t.Context(), never.ID); err != nil || !shown.Used.IsZero() || shown.Token != never.Token {
		t.Errorf("shown %v, %v", shown.Used, err)
	}
	// What is not used any more is not remembered for ever.
	w.pass(time.Hour)
	if err := w.NoteUses(t.Context()); err != nil || len(w.uses.by) != 0 {
		t.Errorf("%d remembered, %v", len(w.uses.by), err)
	}
}

// A node remembers at most maxInUse uses, proposes at most state.MaxUses at once, and allocates nothing to note a
// use.
func TestUsesAreBounded(t *testing.T) {
	u := newUses(time.Hour)
	for i := range maxInUse + 100 {
		u.note(useOf{key: state.KeyID(fmt.Sprint(i))}, 1_000_000)
	}
	if len(u.by) != maxInUse {
		t.Errorf("%d remembered", len(u.by))
	}
	items := u.take(1_000_000)
	if len(items) != state.MaxUses {
		t.Errorf("%d in one command", len(items))
	}
	u.told(items)
	if n := testing.AllocsPerRun(100, func() { u.note(useOf{key: "5"}, 2_000_000) }); n != 0 {
		t.Errorf("%v allocations for a use", n)
	}
}

// A node refuses a session token that is changed in any byte without a linearizable read.
func TestForgedSessionsCostTheClusterNoRead(t *testing.T) {
	w, _ := newUser(t)
	token := signIn(t, w.Accounts)
	w.state.Fail(state.ErrUnavailable) // whatever reads the cluster shows
	raw, err := base64.RawURLEncoding.DecodeString(token[4:])
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		bad := append([]byte(nil), raw...)
		bad[i] ^= 1
		if w.opens(t, w.Accounts, "hfs_"+base64.RawURLEncoding.EncodeToString(bad)) {
			t.Errorf("opens with byte %d changed", i)
		}
	}
	for _, bad := range []string{"hfs_", token + "A", token[:len(token)-1], strings.ToUpper(token), token[4:], token + "=", "HFS_" + token[4:]} {
		if w.opens(t, w.Accounts, bad) {
			t.Errorf("%q opens", bad)
		}
	}
	if _, err := w.Authenticate(t.Context(), token); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("the real one, without a majority: %v", err)
	}
}

// A wrong password, an account without a password and an unknown name have the same answer, and each name and each
// network is limited to a number of wrong passwords a minute.
func TestWrongPasswordsAreOneAnswerAndThrottled(t *testing.T) {
	w, _ := newUser(t)
	w.account(t, "bob@example.org") // without a password
	try := func(name, password, from string) error {
		t.Helper()
		addr, _ := netip.ParseAddr(from)
		_, err := w.SignIn(t.Context(), name, password, addr)
		return err
	}
	for _, name := range []string{email, "bob@example.org", "nobody@example.org", "no address"} {
		for i := range DefaultTries + 2 {
			want := state.ErrUnauthorized
			if i >= DefaultTries {
				want = state.ErrLimited
			}
			if err := try(name, "wrong", ""); !errors.Is(err, want) {
				t.Errorf("%s, try %d: %v", name, i+1, err)
			}
		}
	}
	if err := try(email, password, ""); !errors.Is(err, state.ErrLimited) {
		t.Errorf("the right one after too many: %v", err)
	}
	w.pass(time.Minute)
	for range DefaultTries * 2 {
		if err := try(" Alice@Example.org ", password, "192.0.2.1"); err != nil {
			t.Fatalf("right ones do not count: %v", err)
		}
	}
	for i := range DefaultTries * addressTries {
		if err := try(fmt.Sprintf("u%d@example.org", i), strings.Repeat("x", MaxPassword+1), "2001:db8::1"); !errors.Is(err, state.ErrUnauthorized) {
			t.Fatalf("try %d of an address: %v", i, err)
		}
	}
	if err := try("one@example.org", "wrong", "2001:db8::ffff"); !errors.Is(err, state.ErrLimited) {
		t.Errorf("an address that tries too many names: %v", err)
	}
	if err := try("one@example.org", "wrong", "2001:db8:0:1::1"); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("another network: %v", err)
	}
}

// A node remembers at most maxTried names with wrong passwords, and the newest is among them.
func TestTriesAreBounded(t *testing.T) {
	tries := newTries(1)
	for i := range 4 * maxTried {
		end, err := tries.take(time.Unix(1, 0), fmt.Sprintf("u%d@example.org", i), netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		end(true)
		if n := tries.times.Len(); n > maxTried {
			t.Fatalf("%d remembered", n)
		}
	}
	if _, err := tries.take(time.Unix(1, 0), fmt.Sprintf("u%d@example.org", 4*maxTried-1), netip.Addr{}); err == nil {
		t.Error("the newest is forgotten")
	}
}

// Sign-ins that do not count as wrong push no wrong password of this minute out of memory. There can be as many of
// them as a rate allows, because nobody had time to look at the password.
func TestTriesThatAreNotWrongPushNoneOut(t *testing.T) {
	tries, now := newTries(1), time.Unix(1000, 0)
	address := netip.MustParseAddr("192.0.2.1")
	end, err := tries.take(now, email, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	end(true)
	for i := range 2 * maxTried {
		end, err := tries.take(now, fmt.Sprintf("u%d@example.org", i), address)
		if err != nil {
			t.Fatal(err)
		}
		end(false)
	}
	if _, err := tries.take(now, email, netip.Addr{}); !errors.Is(err, state.ErrLimited) {
		t.Errorf("a wrong password of this minute is forgotten: %v", err)
	}
}

// A name that is limited is free again after the clock was set back by hours, and stays limited if it was set back by
// a second.
func TestTriesOfAClockThatIsSetBackEnd(t *testing.T) {
	tries, now := newTries(1), time.Unix(100_000, 0)
	end, err := tries.take(now, email, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	end(true)
	if _, err := tries.take(now.Add(-time.Second), email, netip.Addr{}); !errors.Is(err, state.ErrLimited) {
		t.Errorf("a request that was a moment earlier: %v", err)
	}
	if _, err := tries.take(now.Add(-2*time.Hour), email, netip.Addr{}); err != nil {
		t.Errorf("a name is refused until the clock is where it was: %v", err)
	}
}

// A password is verified with the parameters in its own hash, and a hash with an unknown form or too large a cost is
// an error.
func TestPasswordHashesCarryTheirCost(t *testing.T) {
	a := New(Options{Secret: clusterSecret})
	for _, tc := range []struct {
		hash, password string
		good, readable bool
	}{
		// Of the reference implementation: argon2id, m=256, t=2, p=1, "password", "somesalt".
		{"$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "password", true, true},
		{"$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "differentpassword", false, true},
		{"", "", false, true},
		{"$argon2i$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "password", false, false},
		{"$argon2id$v=19$m=999999999,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "password", false, false},
		{"$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$", "password", false, false},
		{"plain", "plain", false, false},
	} {
		got, err := a.matches(t.Context(), unknown, tc.hash, tc.password)
		if got != tc.good || (err == nil) != tc.readable {
			t.Errorf("%q with %q: %v, %v", tc.hash, tc.password, got, err)
		}
	}
}

// Keys of each generation stay valid on every node after rotations of the signing key, and an old signing key cannot
// sign for a key of a newer one.
func TestRotationLeavesLiveKeysAsTheyAre(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	node := w.node() // knows of each rotation by itself
	keys := []Key{w.key(t, email)}
	for g := uint64(1); g <= 3; g++ {
		got, err := w.RotateSigningKey(t.Context())
		if err != nil || got != g {
			t.Fatalf("generation %d, %v, want %d", got, err, g)
		}
		key, err := node.CreateKey(t.Context(), email, "", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	for i, key := range keys {
		for _, a := range []*Accounts{w.Accounts, node, w.node()} {
			if !w.opens(t, a, key.Token) {
				t.Errorf("key %d is refused", i)
			}
			if shown, err := a.Show(t.Context(), key.ID); err != nil || shown.Token != key.Token || shown.SecretAccessKey != key.SecretAccessKey {
				t.Errorf("key %d is shown as another, %v", i, err)
			}
		}
	}
	// Whoever has an old signing key cannot sign for a key of a newer one.
	old := w.signers.Load().by[0]
	view, release := w.state.LocalView()
	defer release()
	record, err := view.Key(keys[3].ID)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := old.sign(claimsOf(&record, email, 0))
	if err != nil {
		t.Fatal(err)
	}
	header := headerOf(3)
	for name, token := range map[string]string{
		"by an old key":           forged,
		"by an old key, kid new":  header + forged[strings.IndexByte(forged, '.'):],
		"kid of no generation":    headerOf(99) + keys[3].Token[len(header):],
		"kid with a zero before":  segment(`{"alg":"EdDSA","kid":"03","typ":"JWT"}`) + keys[3].Token[len(header):],
		"kid 0":                   segment(`{"alg":"EdDSA","kid":"0","typ":"JWT"}`) + keys[0].Token[len(jwtHeader):],
		"kid a number":            segment(`{"alg":"EdDSA","kid":3,"typ":"JWT"}`) + keys[3].Token[len(header):],
		"another header is there": segment(`{"alg":"EdDSA","jku":"https://x","kid":"3","typ":"JWT"}`) + keys[3].Token[len(header):],
	} {
		if w.opens(t, w.Accounts, token) {
			t.Errorf("%s: taken", name)
		}
	}
}

// A rotation removes expired API keys that hold the place of an old signing key if most clocks say that they have
// expired, and removes no other key.
func TestExpiredKeysMakeRoomForARotation(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	known := true
	w.agreed = func() (early, late state.Millis, ok bool) {
		if !known {
			return 0, 0, false
		}
		now := state.MillisOf(w.Accounts.now())
		return now, now, true
	}
	rotate := func(what string, want error) {
		t.Helper()
		if _, err := w.RotateSigningKey(t.Context()); !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", what, err, want)
		}
	}
	create := func(ttl time.Duration) Key {
		t.Helper()
		k, err := w.CreateKey(t.Context(), email, "", nil, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	zero, lives := create(time.Hour), Key{}
	for g := 1; g < state.MaxSigningKeys; g++ {
		rotate(fmt.Sprint("generation ", g), nil)
		create(time.Hour)
		switch g {
		case 3: // one key of it lives on
			lives = create(0)
		case 5:
		default:
			create(time.Hour)
		}
	}
	rotate("while all live", state.ErrTooLarge)
	w.pass(time.Hour + time.Second)
	known = false
	rotate("while nobody knows the time", state.ErrTooLarge)
	known = true
	rotate("once they have expired", nil)
	// Two of each signing key, but for one of the first and of generation 5, which goes.
	keys, err := w.Keys(t.Context(), email)
	if want := 2*state.MaxSigningKeys - 3; err != nil || len(keys) != want {
		t.Errorf("%d keys left, %v, want %d", len(keys), err, want)
	}
	if !slices.ContainsFunc(keys, func(k Key) bool { return k.ID == zero.ID }) || !w.opens(t, w.Accounts, lives.Token) {
		t.Error("a key went that was in nobody's way")
	}
}

// Tokens with an unknown signing key cost the cluster at most one read a second together, and a node accepts a key of
// a new signing key at once.
func TestMadeUpSigningKeysCostTheClusterLittle(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	if _, err := w.RotateSigningKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := w.key(t, email) // of generation 1
	if _, err := w.RotateSigningKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := w.key(t, email)
	if err := w.Revoke(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RotateSigningKey(t.Context()); err != nil { // forgets generation 1
		t.Fatal(err)
	}
	lagging := clustertest.NewLagging(t, w.state)
	node := w.node()
	node.state = lagging
	costs := func(what string, want int64, token string, tokenGood bool) {
		t.Helper()
		before := lagging.Asked()
		if _, err := node.Authenticate(t.Context(), token); tokenGood != (err == nil) || err != nil && !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("%s: %v", what, err)
		}
		if got := lagging.Asked() - before; got != want {
			t.Errorf("%s costs %d reads, want %d", what, got, want)
		}
	}
	junk := func(g uint64) string { return headerOf(g) + second.Token[strings.IndexByte(second.Token, '.'):] }
	costs("the first token", 2, second.Token, true)
	costs("a token again", 1, second.Token, true)
	costs("a signing key that is gone", 0, old.Token, false)
	costs("junk of a known signing key", 0, junk(3), false)
	costs("junk", 1, junk(77), false)
	for g := range uint64(10) {
		costs("more junk", 0, junk(4+g), false)
	}
	w.pass(askEvery)
	costs("junk a second later", 1, junk(78), false)
	costs("more of it", 0, junk(79), false)
	w.pass(askEvery)
	if _, err := w.RotateSigningKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	costs("a key of a signing key that is new", 2, w.key(t, email).Token, true)
	costs("another one", 1, w.key(t, email).Token, true)
	if _, err := w.RotateSigningKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What the node has applied itself it need not ask for.
	fifth := w.key(t, email)
	lagging = clustertest.NewLagging(t, w.state)
	node.state = lagging
	costs("a key of a signing key that the node has applied", 1, fifth.Token, true)
	// While the cluster does not answer, nobody's token is called bad.
	w.state.Fail(state.ErrUnavailable)
	w.pass(askEvery)
	for range 3 {
		if _, err := node.Authenticate(t.Context(), junk(90)); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("without a majority: %v", err)
		}
	}
}

// What refusals cost must not tell whether there is an account: compare the
// processor time of the three, which take turns.
func BenchmarkRefusedSignIn(b *testing.B) {
	w := newWorld(b)
	if _, err := w.CreateAccount(b.Context(), email, password); err != nil {
		b.Fatal(err)
	}
	w.account(b, "bob@example.org")
	a := w.node()
	a.tries = newTries(1 << 30)
	names := []string{"wrong", "no-password", "unknown"}
	spent := make([][]float64, len(names))
	for b.Loop() {
		for i, user := range []string{email, "bob@example.org", "nobody@example.org"} {
			before := hosttest.ProcessorTime(b)
			if _, err := a.SignIn(b.Context(), user, "not the password", netip.Addr{}); !errors.Is(err, state.ErrUnauthorized) {
				b.Fatal(err)
			}
			spent[i] = append(spent[i], float64(hosttest.ProcessorTime(b)-before)/float64(time.Millisecond))
		}
	}
	for i, name := range names {
		slices.Sort(spent[i])
		b.ReportMetric(spent[i][len(spent[i])/2], name+"-cpu-ms")
	}
}
