package accounts

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"golang.org/x/crypto/argon2"
)

const email = "alice@example.org"

// clusterSecret opens the fixed signing key of the tests.
var clusterSecret = []byte("0123456789abcdef0123456789abcdef")

func fixedSeed() []byte { return bytes.Repeat([]byte{7}, 32) }

func fixedSealed(tb testing.TB) []byte {
	tb.Helper()
	sealed, err := seal(clusterSecret, fixedSeed(), bytes.Repeat([]byte{9}, sealNonce))
	if err != nil {
		tb.Fatal(err)
	}
	return sealed
}

// world is the use case over a state machine, with a clock to turn.
type world struct {
	*Accounts
	state *clustertest.State
	logs  *bytes.Buffer

	mu  sync.Mutex
	now time.Time
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	st := clustertest.New(tb, clustertest.Setup{Nodes: clustertest.Members("n1"), SealedSigningKey: fixedSealed(tb)})
	w := &world{state: st, now: time.UnixMilli(1_800_000_000_123), logs: new(bytes.Buffer)}
	w.Accounts = w.node()
	return w
}

// node returns the use case on one more node of the same cluster.
func (w *world) node() *Accounts {
	n := 0
	return New(Options{
		State: w.state, Secret: clusterSecret, Logger: slog.New(slog.NewTextHandler(w.logs, nil)),
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now
		},
		NewID: func() string {
			n++
			return fmt.Sprintf("abcdefghijklmnopqrstuvw%03d", n)
		},
	})
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) account(tb testing.TB, email string) state.Account {
	tb.Helper()
	a, err := w.CreateAccount(tb.Context(), email, "")
	if err != nil {
		tb.Fatal(err)
	}
	return a.Account
}

func (w *world) key(tb testing.TB, email string, scopes ...string) Key {
	tb.Helper()
	k, err := w.CreateKey(tb.Context(), email, "laptop", scopes, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// NormalEmail trims spaces and lowers case, and returns ErrInvalid for an address that is no printable ASCII, is
// longer than 254 bytes or has not exactly one @ between two parts.
func TestNormalEmail(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"alice@example.org", "alice@example.org"},
		{"  Alice@Example.ORG\n", "alice@example.org"},
		{"a+b.c@xn--bcher-kva.example", "a+b.c@xn--bcher-kva.example"},
		{strings.Repeat("a", 242) + "@example.org", strings.Repeat("a", 242) + "@example.org"},
		{strings.Repeat("a", 243) + "@example.org", ""},
		{"", ""},
		{"alice", ""},
		{"@example.org", ""},
		{"alice@", ""},
		{"alice@b@example.org", ""},
		{"a@b", "a@b"}, // the shortest
		{"@", ""},
		{"!~@example.org", "!~@example.org"}, // the first and the last of printable ASCII
		{"al\x7fice@example.org", ""},
		{"al ice@example.org", ""},
		{"alice@exam\x00ple.org", ""},
		{"älice@example.org", ""},
		{"alice@example\u200b.org", ""},
		{"\u212aelvin@example.org", "kelvin@example.org"}, // the Kelvin sign's lower case is k
	} {
		got, err := NormalEmail(tc.in)
		if got != tc.want || (tc.want == "") != errors.Is(err, state.ErrInvalid) {
			t.Errorf("%q: got %q, %v, want %q", tc.in, got, err, tc.want)
		}
	}
}

// An account is found by its e-mail in any case and with spaces around it, and no second account can have that e-mail
// in another form.
func TestAccountsAreFoundByAnyFormOfTheirEmail(t *testing.T) {
	w := newWorld(t)
	made := w.account(t, " Alice@Example.org ")
	if made.Email != email || made.ID == "" || made.Created != 1_800_000_000_123 {
		t.Errorf("made %+v", made)
	}
	for _, form := range []string{email, "ALICE@EXAMPLE.ORG", " alice@example.org"} {
		if got, err := w.ByEmail(t.Context(), form); err != nil || got != made {
			t.Errorf("%q: %+v, %v", form, got, err)
		}
		if _, err := w.CreateAccount(t.Context(), form, ""); !errors.Is(err, state.ErrExists) {
			t.Errorf("again as %q: %v", form, err)
		}
	}
	for _, form := range []string{"", "bob@example.org", "no address", strings.Repeat("x", 10_000)} {
		if _, err := w.ByEmail(t.Context(), form); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%.20q: %v", form, err)
		}
	}
	if _, err := w.CreateAccount(t.Context(), "no address", ""); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("no address: %v", err)
	}
	all, err := w.List(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	if op, err := w.Operator(t.Context()); err != nil || op.ID != clustertest.Operator {
		t.Errorf("operator %+v, %v", op, err)
	}
}

// The state keeps a password as Argon2id with a random salt, and no answer about accounts has the hash.
func TestPasswordsAreKeptAsArgon2id(t *testing.T) {
	w := newWorld(t)
	const password = "correct horse battery"
	a, err := w.CreateAccount(t.Context(), email, password)
	if err != nil {
		t.Fatal(err)
	}
	if a.PasswordHash != "" {
		t.Error("the hash is handed out")
	}
	byEmail, err := w.ByEmail(t.Context(), email)
	if err != nil || byEmail.PasswordHash != "" {
		t.Errorf("the hash is handed out by e-mail, %v", err)
	}
	all, err := w.List(t.Context())
	if err != nil || slices.ContainsFunc(all, func(a User) bool { return a.PasswordHash != "" }) {
		t.Errorf("the hash is listed, %v", err)
	}
	view, release := w.state.LocalView()
	defer release()
	stored, err := view.Account(a.ID)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(stored.PasswordHash, "$")
	if len(parts) != 6 || parts[1] != "argon2id" || parts[2] != "v=19" || parts[3] != "m=19456,t=2,p=1" {
		t.Fatalf("stored as %q", stored.PasswordHash)
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	if err != nil || len(salt) != 16 {
		t.Fatalf("salt %q, %v", parts[4], err)
	}
	want := argon2.IDKey([]byte(password), salt, 2, 19456, 1, 32)
	if got, err := base64.RawStdEncoding.DecodeString(parts[5]); err != nil || !bytes.Equal(got, want) {
		t.Errorf("hash %x, %v, want %x", got, err, want)
	}
	other, err := w.hashPassword(t.Context(), password)
	if err != nil || other == stored.PasswordHash {
		t.Errorf("the same salt twice: %v", err)
	}
	for name, bad := range map[string]string{
		"short": "1234567", "long": strings.Repeat("x", MaxPassword+1), "no text": "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8",
	} {
		if _, err := w.CreateAccount(t.Context(), "bob@example.org", bad); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A password waits while all slots for hashing are taken, and gives up when its request is cancelled.
func TestAtMostTwoPasswordsAreHashedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Secret: clusterSecret})
		takeAll(t, a) // somebody else hashes
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := a.hashPassword(ctx, "a password of some length")
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("a third one is hashed: %v", err)
		default:
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// An API key opens the account that it was created for, and permits its scopes and nothing else.
func TestAKeyOpensWhatItsScopesSay(t *testing.T) {
	w := newWorld(t)
	account := w.account(t, email)
	for _, tc := range []struct {
		scopes      []string
		scope       string
		read, write bool
	}{
		{nil, "storage:read storage:write", true, true},
		{[]string{"storage:write", "storage:read", "storage:write"}, "storage:read storage:write", true, true},
		{[]string{"storage:read"}, "storage:read", true, false},
		{[]string{"storage:write"}, "storage:write", false, true},
	} {
		key := w.key(t, email, tc.scopes...)
		p, err := w.Authenticate(t.Context(), key.Token)
		if err != nil {
			t.Fatal(err)
		}
		if p.Account != account.ID || p.Email != email || p.KeyID != key.ID || key.Scope != tc.scope {
			t.Errorf("%v: %+v, key %q", tc.scopes, p, key.Scope)
		}
		if p.May(state.ScopeRead) != tc.read || p.May(state.ScopeWrite) != tc.write || p.May("") || p.May("storage:delete") {
			t.Errorf("%v: may %v", tc.scopes, p.Scopes)
		}
	}
}

// CreateKey rejects an unknown account, unknown scopes, a lifetime out of bounds and a bad name, and stores no key
// then.
func TestCreateKeyRefuses(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	for _, tc := range []struct {
		name, email, key string
		scopes           []string
		ttl              time.Duration
		want             error
	}{
		{"unknown account", "bob@example.org", "", nil, 0, state.ErrNotFound},
		{"no account", "", "", nil, 0, state.ErrNotFound},
		{"unknown scope", email, "", []string{"storage:read", "admin"}, 0, state.ErrInvalid},
		{"empty scope", email, "", []string{""}, 0, state.ErrInvalid},
		{"negative life", email, "", nil, -1, state.ErrInvalid},
		{"endless life", email, "", nil, 1<<63 - 1, state.ErrInvalid},
		{"long name", email, strings.Repeat("ä", 256), nil, 0, state.ErrInvalid},
		{"name that is no text", email, "\xff", nil, 0, state.ErrInvalid},
	} {
		if _, err := w.CreateKey(t.Context(), tc.email, tc.key, tc.scopes, tc.ttl); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, err, tc.want)
		}
	}
	if keys, err := w.Keys(t.Context(), ""); err != nil || len(keys) != 0 {
		t.Errorf("keys %v, %v", keys, err)
	}
	if _, err := w.CreateKey(t.Context(), email, strings.Repeat("🦀", 255), nil, 0); err != nil {
		t.Errorf("name of 255 large characters: %v", err)
	}
}

// Any node shows the secrets of a key again by its id, and lists of keys have no secrets.
func TestKeysAreShownAgainAndListedWithoutSecrets(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	w.account(t, "bob@example.org")
	one, other := w.key(t, email), w.key(t, "bob@example.org", state.ScopeRead)
	if got, err := w.node().Show(t.Context(), one.ID); err != nil || got != one {
		t.Errorf("another node shows %#v, %v", got, err)
	}
	list, err := w.Keys(t.Context(), "")
	if err != nil || len(list) != 2 || list[0].Email == list[1].Email {
		t.Errorf("all keys: %v, %v", list, err)
	}
	list, err = w.Keys(t.Context(), "BOB@example.org")
	want := other
	want.Token, want.AccessKeyID, want.SecretAccessKey = "", "", ""
	if err != nil || !slices.Equal(list, []Key{want}) {
		t.Errorf("bob's keys: %v, %v", list, err)
	}
	if got, err := w.node().Key(t.Context(), other.ID); err != nil || got != want {
		t.Errorf("bob's key: %v, %v", got, err)
	}
	if _, err := w.Keys(t.Context(), "nobody@example.org"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("nobody's keys: %v", err)
	}
	for _, id := range []state.KeyID{"", "unknown", state.KeyID(strings.Repeat("x", 200))} {
		if _, err := w.Show(t.Context(), id); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("show %.10q: %v", id, err)
		}
		if _, err := w.Key(t.Context(), id); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("find %.10q: %v", id, err)
		}
		if err := w.Revoke(t.Context(), id); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("revoke %.10q: %v", id, err)
		}
	}
}

// Every node refuses a key as soon as another node has revoked it, although it has verified the key before.
func TestARevokedKeyIsRefusedByEveryNodeAtOnce(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	revoked, kept := w.key(t, email), w.key(t, email)
	nodes := []*Accounts{w.Accounts, w.node(), w.node()}
	for _, n := range nodes { // the signature is remembered everywhere
		if _, err := n.Authenticate(t.Context(), revoked.Token); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes[1].Revoke(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		if _, err := n.Authenticate(t.Context(), revoked.Token); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("node %d: %v", i, err)
		}
		if _, err := n.Authenticate(t.Context(), kept.Token); err != nil {
			t.Errorf("node %d, the other key: %v", i, err)
		}
	}
	if err := nodes[0].Revoke(t.Context(), revoked.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	if _, err := w.Show(t.Context(), revoked.ID); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("shown after its end: %v", err)
	}
}

// A key is valid until the next whole second after its lifetime, is refused from then on, and stays in the list.
func TestAKeyExpires(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	key, err := w.CreateKey(t.Context(), email, "", nil, 90*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Unix(1_800_000_091, 0).UTC(); !key.Expires.Equal(want) {
		t.Errorf("expires %v, want the next whole second, %v", key.Expires, want)
	}
	w.pass(90 * time.Second)
	if _, err := w.Authenticate(t.Context(), key.Token); err != nil {
		t.Errorf("in its life: %v", err)
	}
	w.pass(877 * time.Millisecond)
	if _, err := w.Authenticate(t.Context(), key.Token); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("after it: %v", err)
	}
	list, err := w.Keys(t.Context(), email)
	if err != nil || len(list) != 1 || !list[0].Expires.Equal(key.Expires) {
		t.Errorf("listed as %v, %v", list, err)
	}
}

// Without a majority of the cluster a node answers ErrUnavailable for a valid key, although it knew the key before.
func TestWithoutAMajorityNothingIsKnown(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	key := w.key(t, email)
	fresh := w.node()
	w.state.Fail(state.ErrUnavailable)
	for name, a := range map[string]*Accounts{"a node that knew the key": w.Accounts, "a node that has just started": fresh} {
		if _, err := a.Authenticate(t.Context(), key.Token); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Authenticate(t.Context(), "rubbish"); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("rubbish needs no majority: %v", err)
	}
	if err := w.Revoke(t.Context(), key.ID); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("revoke: %v", err)
	}
}

// A node with another cluster secret answers a valid token with ErrSealed and not with ErrUnauthorized.
func TestAnotherClusterSecretOpensNothing(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	key := w.key(t, email)
	stranger := New(Options{State: w.state, Secret: []byte("another secret of some length")})
	if _, err := stranger.Authenticate(t.Context(), key.Token); !errors.Is(err, ErrSealed) || errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("got %v", err)
	}
}

// Neither the log nor any text form of a key has the password, the token, the secret access key or the cluster
// secret.
func TestSecretsStayOutOfLogsAndText(t *testing.T) {
	w := newWorld(t)
	const password = "canary in the mine"
	if _, err := w.CreateAccount(t.Context(), email, password); err != nil {
		t.Fatal(err)
	}
	key := w.key(t, email)
	if _, err := w.Authenticate(t.Context(), key.Token+"x"); err == nil || strings.Contains(err.Error(), key.Token) {
		t.Errorf("the error tells the token: %v", err)
	}
	if err := w.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewTextHandler(w.logs, nil)).Info("a key", "key", key)
	text := w.logs.String() + fmt.Sprintf("%v %+v %#v %s", key, key, key, []Key{key})
	if !strings.Contains(text, string(key.ID)) {
		t.Errorf("nothing was logged: %s", text)
	}
	for _, secret := range []string{password, key.Token, key.SecretAccessKey, "argon2id", string(clusterSecret)} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is told by %s", secret, text)
		}
	}
}

// Eight goroutines that authenticate with sixteen keys each get the principal of the key that they use.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.account(t, email)
	keys := make([]Key, 16)
	for i := range keys {
		keys[i] = w.key(t, email)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			a := w.Accounts
			for k := range 200 {
				key := keys[(i+k)%len(keys)]
				if p, err := a.Authenticate(t.Context(), key.Token); err != nil || p.KeyID != key.ID {
					t.Error(p, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// An account is shown with its keys, buckets, objects and pins, by its e-mail and by the id that logs name.
func TestAnAccountIsShownWithWhatItHas(t *testing.T) {
	w := newWorld(t)
	a := w.account(t, email)
	w.key(t, email)
	w.key(t, email)
	w.state.Apply(t, &state.CreateBucket{Bucket: state.Bucket{Account: a.ID, Name: "the-first", Created: 1}})
	for _, who := range []string{email, strings.ToUpper(email), string(a.ID)} {
		h, err := w.Holdings(t.Context(), who)
		if err != nil || h.Account.ID != a.ID || h.PasswordHash != "" || h.Keys != 2 || h.Buckets != 1 || h.Objects != 0 || h.Pins[state.Pinned] != 0 {
			t.Errorf("%q: %+v, %v", who, h, err)
		}
	}
	for _, who := range []string{"", "nobody@example.org", "no-such-id", strings.Repeat("x", state.MaxIDLen+1)} {
		if _, err := w.Holdings(t.Context(), who); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%q: %v", who, err)
		}
	}
	if !strings.Contains(w.logs.String(), "email="+email) {
		t.Errorf("an id alone: %s", w.logs)
	}
	w.state.Fail(state.ErrUnavailable)
	if _, err := w.Holdings(t.Context(), email); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("without a majority: %v", err)
	}
}

// The log has a line with the new values for each change of an account, and no password.
func TestChangesAreLoggedWithTheirValues(t *testing.T) {
	w := newWorld(t)
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	const email = "alice@example.org"
	w.account(t, email)
	inAndOut := func() error {
		token, err := w.SignIn(t.Context(), email, "a password of some length", netip.Addr{})
		if err != nil {
			return err
		}
		return w.SignOut(t.Context(), token)
	}
	for _, tc := range []struct {
		name   string
		change func() error
		want   string
	}{
		{"allowance", func() error { return w.SetAllowance(t.Context(), email, 5<<30) }, `msg="allowance changed" account=A email=alice@example.org bytes=5368709120`},
		{"no limit", func() error { return w.SetAllowance(t.Context(), email, state.Unlimited) }, `bytes=unlimited`},
		{"password", func() error { return w.SetPassword(t.Context(), email, "a password of some length") }, `msg="password changed" account=A email=alice@example.org`},
		{"key", func() error {
			_, err := w.CreateKey(t.Context(), email, "backup", []string{state.ScopeRead}, time.Hour)
			return err
		}, `name=backup scope=storage:read expires=2027-01-15T09:00:01Z`},
		{"a revoked key", func() error {
			key, err := w.CreateKey(t.Context(), email, "old", []string{state.ScopeRead}, 0)
			if err != nil {
				return err
			}
			return w.Revoke(t.Context(), key.ID)
		}, `msg="API key revoked" account=A email=alice@example.org key=`},
		{"a session", inAndOut, `msg="session begun" account=A email=alice@example.org`},
		{"the end of a session", inAndOut, `msg="session ended" account=A email=alice@example.org`},
	} {
		w.logs.Reset()
		if err := tc.change(); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		got := regexp.MustCompile(`account=\S+`).ReplaceAllString(w.logs.String(), "account=A")
		if !strings.Contains(got, tc.want) || strings.Contains(got, "a password of") {
			t.Errorf("%s: logged %q, want %q", tc.name, got, tc.want)
		}
	}
}

// proposals keeps the commands that are proposed, and counts the views that are open.
type proposals struct {
	*clustertest.State
	all  []state.Command
	open int
}

func (p *proposals) LocalView() (state.View, func()) {
	p.open++
	view, release := p.State.LocalView()
	return view, func() { p.open--; release() }
}

func (p *proposals) Propose(ctx context.Context, c state.Command) (state.Result, error) {
	p.all = append(p.all, c)
	return p.State.Propose(ctx, c)
}

// A new account gets the allowance that the operator set for new ones. A cluster
// with a member that knows no quotas gets the command that such a member knows.
func TestANewAccountHasTheAllowanceOfNewOnes(t *testing.T) {
	const allowance = 12_345
	w := newWorld(t)
	p := &proposals{State: w.state}
	a := New(Options{State: p, Secret: clusterSecret, Logger: slog.New(slog.DiscardHandler), Allowance: allowance})
	if _, err := a.CreateAccount(t.Context(), "old@example.org", ""); err != nil {
		t.Fatal(err)
	}
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: 2})
	if _, err := a.CreateAccount(t.Context(), email, ""); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.all[0].(*state.CreateAccount); !ok {
		t.Errorf("level 1: %T", p.all[0])
	}
	if c, ok := p.all[1].(*state.OpenAccount); !ok || c.Allowance != allowance {
		t.Errorf("level 2: %+v", p.all[1])
	}
	if p.open != 0 {
		t.Errorf("%d views are still open", p.open)
	}
	users, err := a.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(users, func(u User) bool { return u.Email == email }); i < 0 || users[i].Quota.Allowance != allowance {
		t.Errorf("%+v", users)
	}
}

// A page of accounts is in the order of their addresses, and the pages have each of them once.
func TestAccountsAreListedInPages(t *testing.T) {
	w := newWorld(t)
	before, err := w.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"zoe", "bob", "al", "maximilian", "cy", "ann", "bea"} {
		if _, err := w.CreateAccount(t.Context(), name+"@pages.example", password); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{1, 3, 7, 100} {
		var got []string
		for q := (UserQuery{Part: "@Pages", Limit: limit}); ; {
			page, err := w.Page(t.Context(), q)
			if err != nil || page.Total != 7 || len(page.Users) > limit || page.More && len(page.Users) < limit {
				t.Fatalf("%+v, %v", page, err)
			}
			for _, u := range page.Users {
				if got = append(got, u.Email); u.PasswordHash != "" {
					t.Errorf("%+v", u)
				}
			}
			if !page.More {
				break
			}
			q.After = page.Users[len(page.Users)-1].Email
		}
		if want := "[al@pages.example ann@pages.example bea@pages.example bob@pages.example cy@pages.example maximilian@pages.example zoe@pages.example]"; fmt.Sprint(got) != want {
			t.Errorf("pages of %d have %v", limit, got)
		}
	}
	if page, err := w.Page(t.Context(), UserQuery{Limit: 100}); err != nil || page.Total != len(before)+7 || page.More {
		t.Errorf("all: %+v, %v", page, err)
	}
}
