package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// An administrator reads what will happen, disables an account, sees it in the list, and enables it
// again. The sign-in page tells the person nothing.
func TestAnAdministratorDisablesAnAccount(t *testing.T) {
	w, alice := administrator(t)
	bob := w.browser()
	bob.signIn("bob")
	page := "/users/" + string(w.account("bob"))
	_, body := alice.get(page)
	for _, want := range []string{"its sessions (1) end", "nobody can sign in to it", "Its pins and objects stay", "</svg>active</span>"} {
		if !strings.Contains(body, want) {
			t.Errorf("before: the page does not say %q: %s", want, body)
		}
	}
	done := alice.post(page, page+"/disabled", url.Values{"disabled": {"yes"}})
	for _, want := range []string{"</svg>disabled</span> since <time", "its API keys (0) and its shares work again", `value="no"><button>Enable`} {
		if !strings.Contains(done.Body.String(), want) {
			t.Errorf("the page does not say %q: %s", want, done.Body)
		}
	}
	if _, body := alice.get("/users"); strings.Count(body, "</svg>disabled</span>") != 1 || strings.Count(body, "</svg>active</span>") < 2 {
		t.Errorf("the list is %s", body)
	}
	if answer := bob.do(httptest.NewRequest(http.MethodGet, "/pins", nil)); answer.Code != http.StatusSeeOther {
		t.Errorf("the session is answered with %d", answer.Code)
	}
	tell := func(password string) string {
		answer := w.browser().post("/sign-in", "/sign-in", url.Values{"email": {"bob@example.org"}, "password": {password}})
		if answer.Code != http.StatusUnauthorized {
			t.Errorf("the sign-in is answered with %d", answer.Code)
		}
		return tokenOf.ReplaceAllString(answer.Body.String(), "")
	}
	if right, wrong := tell("password of bob"), tell("not this one"); right != wrong {
		t.Errorf("with the right password: %s", right)
	}
	alice.post(page, page+"/disabled", url.Values{"disabled": {"no"}})
	bob.signIn("bob")
	self := "/users/" + string(w.account("alice"))
	if answer := alice.post(self, self+"/disabled", url.Values{"disabled": {"yes"}}); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "Another administrator") {
		t.Errorf("the own account: %d: %s", answer.Code, answer.Body)
	}
	if _, body := alice.get(self); strings.Contains(body, "Disable this account") {
		t.Error("the own page has a button for it")
	}
}

// A session shows the address and the browser from which it began, to its person and to
// administrators, as text.
func TestASessionShowsItsClient(t *testing.T) {
	w, alice := administrator(t)
	bob := w.browser()
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0": "<td>Firefox 140 on Linux</td>",
		"<script>alert(1)</script>": "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>",
		strings.Repeat("long", 100): "<td>" + strings.Repeat("long", 24) + "</td>",
		"":                          `<td><span class="muted">not told</span></td>`,
		"\"onload=alert(1)":         "<td>&#34;onload=alert(1)</td>",
		"Mozilla/5.0 a\x1b[31mb\xff (\u202ereversed)": "<td>Mozilla/5.0 a [31mb ( reversed)</td>",
	} {
		_, form := bob.get("/sign-in")
		r := formRequest("/sign-in", url.Values{"email": {"bob@example.org"}, "password": {"password of bob"}, tokenField: tokenOf.FindStringSubmatch(form)[1:]})
		r.Header.Set("User-Agent", agent)
		if answer := bob.do(r); answer.Code != http.StatusSeeOther {
			t.Fatalf("the sign-in is answered with %d: %s", answer.Code, answer.Body)
		}
		_, own := bob.get("/account")
		_, seen := alice.get("/users/" + string(w.account("bob")))
		for _, body := range []string{own, seen} {
			if !strings.Contains(body, want) || !strings.Contains(body, `<code>192.0.2.1</code>`) {
				t.Errorf("%q: the page is %s", agent, body)
			}
		}
		bob.post("/account", "/sign-out", nil)
	}
}
