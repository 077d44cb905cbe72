package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/oidctest"
)

// broken are use cases of objects of which some fail.
type broken struct {
	Objects
	delete, put error // nil: it works
}

func (b broken) Delete(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, c state.Condition) (objects.Deleted, error) {
	if b.delete != nil {
		return objects.Deleted{}, b.delete
	}
	return b.Objects.Delete(ctx, a, bucket, key, id, c)
}

func (b broken) Put(ctx context.Context, a state.AccountID, bucket string, r objects.PutRequest) (state.Object, error) {
	if b.put != nil {
		return state.Object{}, b.put
	}
	return b.Objects.Put(ctx, a, bucket, r)
}

// A move that made the copy and could not delete the object says that there are two now.
func TestAMoveThatIsHalfDoneSaysSo(t *testing.T) {
	for err, want := range map[error]int{state.ErrPrecondition: http.StatusConflict, state.ErrUnavailable: http.StatusServiceUnavailable} {
		w := newWorld(t)
		w.bucket()
		w.store("one.txt", "text/plain", "one")
		b := w.another(func(o *Options) { o.Objects = broken{Objects: w.objects, delete: fmt.Errorf("delete object: %w", err)} }).browser()
		b.signIn("alice")
		answer := b.post("/buckets", addressOf("object/move", "photos", "one.txt", ""), url.Values{"to": {"two.txt"}})
		body := answer.Body.String()
		if answer.Code != want || !strings.Contains(body, "The copy &#34;two.txt&#34; was made") || strings.Contains(body, "Nothing was changed") {
			t.Errorf("%v: %d %s", err, answer.Code, body)
		}
		if keys := w.keys("photos"); len(keys) != 2 {
			t.Errorf("%v: there are %q", err, keys)
		}
	}
}

// What a person entered is in the form that is shown again.
func TestRefusedFormsOfObjectsKeepWhatWasEntered(t *testing.T) {
	w := newWorld(t)
	w.bucket()
	w.store("one.txt", "text/plain", "one")
	w.store("two.txt", "text/plain", "two")
	b := w.browser()
	b.signIn("alice")
	for _, tc := range []struct {
		path string
		form url.Values
		want string
	}{
		{addressOf("object/move", "photos", "one.txt", ""), url.Values{"to": {"two.txt"}}, `name="to" required maxlength="1024" spellcheck="false" value="two.txt"`},
		{addressOf("object/tags", "photos", "one.txt", ""), url.Values{"tags": {"a=1\nno pair"}}, "a=1\nno pair</textarea>"},
		{"/buckets/photos/cors", url.Values{"origins": {"https://example.org\nexample.com"}, "write": {"1"}}, "https://example.org\nexample.com</textarea>"},
		{"/buckets/photos/cors", url.Values{"origins": {"example.com"}, "write": {"1"}}, `name="write" value="1" checked`},
	} {
		answer := b.post("/buckets", tc.path, tc.form)
		if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), tc.want) {
			t.Errorf("%s: %d, without %q: %s", tc.path, answer.Code, tc.want, answer.Body)
		}
	}
}

// A bucket that keeps no new versions loses the one without an id by a deletion, and the page says
// so before.
func TestThePageSaysWhatADeletionEnds(t *testing.T) {
	w := newWorld(t)
	w.bucket()
	w.store("note", "text/plain", "kept")
	for _, v := range []state.Versioning{state.Versioned, state.Suspended} {
		if err := w.objects.SetVersioning(t.Context(), w.account("alice"), "photos", v); err != nil {
			t.Fatal(err)
		}
	}
	b := w.browser()
	b.signIn("alice")
	_, body := b.get(objectAddress("photos", "note", ""))
	b.post("/buckets", addressOf("object/delete", "photos", "note", ""), nil)
	status, _ := b.get(addressOf("download", "photos", "note", state.NullVersion))
	if status != http.StatusNotFound || strings.Contains(body, "The versions stay") || !strings.Contains(body, "is deleted for good: this bucket keeps no new versions") {
		t.Errorf("after it the content is answered with %d; the page said %s", status, body)
	}
}

// The answer to a form of which all fails is bounded, and the log has the causes.
func TestFailedFilesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.bucket()
	node := w.another(func(o *Options) { o.Objects = broken{Objects: w.objects, put: errors.New("the disk is on fire")} })
	b := node.browser()
	b.signIn("alice")
	files := make([]file, maxFailed+100)
	for i := range files {
		files[i] = file{fmt.Sprint(i, " ", strings.Repeat("n", 20*state.MaxKeyBytes)), "x"}
	}
	files[0].name = "short"
	answer := b.do(filesRequest(t, "/buckets/photos/files", b.token(), files...))
	body := answer.Body.String()
	if !strings.Contains(body, fmt.Sprintf("%d files not stored", len(files))) || !strings.Contains(body, "and 100 more") {
		t.Errorf("%d %.2000s", answer.Code, body)
	}
	if most := maxFailed * 2 * state.MaxKeyBytes; len(body) > most {
		t.Errorf("the answer has %d bytes, %d are the most", len(body), most)
	}
	if !strings.Contains(w.log.String(), "the disk is on fire") {
		t.Error("the log does not have the cause")
	}
}

// asked counts how often the cluster is asked whose a token is.
type asked struct {
	Accounts
	times *atomic.Int64
	stale bool // this node does not know the session yet
}

func (a asked) Authenticate(ctx context.Context, token string) (accounts.Principal, error) {
	a.times.Add(1)
	return a.Accounts.Authenticate(ctx, token)
}

func (a asked) Recognize(token string) (accounts.Principal, error) {
	if a.stale {
		return accounts.Principal{}, state.ErrUnauthorized
	}
	return a.Accounts.Recognize(token)
}

// The page of an error asks the cluster for nothing, and ends no session that this node does not
// know yet.
func TestAnErrorAsksTheClusterForNothing(t *testing.T) {
	w := newWorld(t)
	for _, stale := range []bool{false, true} {
		var times atomic.Int64
		b := w.another(func(o *Options) { o.Accounts = asked{w.users, &times, stale} }).browser()
		b.signIn("alice")
		times.Store(0)
		status, body := b.get("/nothing/here")
		if status != http.StatusNotFound || times.Load() != 0 || strings.Contains(body, "Sign out") == stale || b.cookies[sessionCookie] == "" {
			t.Errorf("stale %t: %d, the cluster was asked %d times, the session is %q: %s", stale, status, times.Load(), b.cookies[sessionCookie], body)
		}
	}
}

// An address that no cookie can hold does not keep a person from signing in at a provider.
func TestALongAddressKeepsNobodyFromSigningIn(t *testing.T) {
	p := oidctest.Start(t)
	w := newWorld(t).another(at(p))
	b := w.browser()
	to := objectAddress("photos", strings.Repeat("ü", state.MaxKeyBytes/2), "")
	status, location, body := b.open(b.through(p, "/sign-in/one?"+url.Values{"to": {to}}.Encode(), carol))
	if status != http.StatusSeeOther || location != "/" {
		t.Fatalf("%d to %q: %s", status, location, body)
	}
	b.is("carol@example.org")
}

// The overview of an account without a limit shows none.
func TestTheOverviewOfAnAccountWithoutALimit(t *testing.T) {
	w := newWorld(t)
	if err := w.users.SetAllowance(t.Context(), "alice@example.org", state.Unlimited); err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	if _, body := b.get("/"); !strings.Contains(body, "No limit") || strings.Contains(body, "EiB") {
		t.Errorf("the page is %s", body)
	}
}

// An app is offered the keys that it can have, and no others of its name.
func TestAnAppIsOfferedItsOwnKeysOnly(t *testing.T) {
	w := newWorld(t)
	if _, err := w.users.AddApp(t.Context(), "photos", []string{"https://photos.example/done"}, []string{"storage:read"}); err != nil {
		t.Fatal(err)
	}
	var ids [3]string
	for i, k := range []struct {
		scope string
		ttl   time.Duration
	}{{"storage:read", 0}, {"storage:write", 0}, {"storage:read", time.Minute}} {
		key, err := w.users.CreateKey(t.Context(), "alice@example.org", "photos", []string{k.scope}, k.ttl)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = string(key.ID)
	}
	b := w.browser()
	b.signIn("alice")
	page := "/get-key?redirect=" + url.QueryEscape("https://photos.example/done")
	offered := func() (all []bool) {
		_, body := b.get(page)
		for _, id := range ids {
			all = append(all, strings.Contains(body, `value="`+id+`"`))
		}
		return all
	}
	if got := fmt.Sprint(offered()); got != "[true false true]" {
		t.Errorf("offered are %s", got)
	}
	form := url.Values{"redirect": {"https://photos.example/done"}, "app": {"photos"}, "scope": {"storage:read"}, "choice": {ids[1]}}
	if answer := b.post(page, "/get-key", form); answer.Code != http.StatusBadRequest {
		t.Errorf("the wider key is answered with %d", answer.Code)
	}
}

// Lines that were copied from a table have tabs.
func TestManyPinsAreAddedFromLinesWithTabs(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	answer := b.post("/pins", "/pins/create-many", url.Values{"lines": {testCID(t, "one") + "\tthe first\n"}})
	if names := w.names("alice"); len(names) != 1 || names[0] != "the first" {
		t.Errorf("there are %q: %s", names, answer.Body)
	}
}

// Who agreed to what an app asked for has not agreed to what it asks for now.
func TestAnAppThatAsksForMoreMeanwhileGetsNothing(t *testing.T) {
	w := newWorld(t)
	redirect := "https://photos.example/done"
	register := func(scope string) {
		t.Helper()
		if _, err := w.users.AddApp(t.Context(), "photos", []string{redirect}, []string{scope}); err != nil {
			t.Fatal(err)
		}
	}
	register("storage:read")
	b := w.browser()
	b.signIn("alice")
	agreed := url.Values{"redirect": {redirect}, "app": {"photos"}, "scope": {"storage:read"}, "choice": {"new"}}
	if err := w.users.RemoveApp(t.Context(), "photos"); err != nil {
		t.Fatal(err)
	}
	register("storage:write")
	answer := b.post("/pins", "/get-key", agreed)
	keys, err := w.users.Keys(t.Context(), "alice@example.org")
	if answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "has changed since") || err != nil || len(keys) != 0 {
		t.Errorf("%d, %d keys, %v: %s", answer.Code, len(keys), err, answer.Body)
	}
	agreed.Set("scope", "storage:write")
	if answer := b.post("/pins", "/get-key", agreed); !strings.HasPrefix(answer.Header().Get("Location"), redirect+"?key=") {
		t.Errorf("agreed to anew it is %d", answer.Code)
	}
}
