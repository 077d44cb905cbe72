//go:build conformance

package conformance

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestADisabledAccount promises that all nodes refuse an account as soon as one has disabled it, on each API as they
// refuse a revoked key, and that its public content stays readable. An account that is enabled again has its keys as
// they were, and no session.
func TestADisabledAccount(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, harness.Options{})
	const email, password = "disabled@example.org", "correct horse battery staple"
	first := c.Nodes[0]
	first.CLIWithInput(password, "user", "add", email, "--password-stdin")
	signIn := func(n *harness.Node) (status int, token, body string) {
		t.Helper()
		r, err := n.Pins("").Do(t.Context(), http.MethodPost, "/auth/token", nil, []byte(`{"username":"`+email+`","password":"`+password+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		var session struct{ Token string }
		_ = json.Unmarshal(r.Body, &session)
		return r.Status, session.Token, string(r.Body)
	}
	_, session, _ := signIn(first)
	o := &objects{t: t, cluster: c, token: first.Key(email).Token, turn: newObjects(t, c, "other@example.org").turn}
	private, public := "/private"+randomName(), "/public"+randomName()
	o.ok(http.StatusOK, http.MethodPut, private, nil)
	o.ok(http.StatusOK, http.MethodPut, public, nil, "X-Amz-Acl", "public-read")
	var roots []string // of the private object, and of the public one
	for _, bucket := range []string{private, public} {
		roots = append(roots, o.ok(http.StatusOK, http.MethodPut, bucket+"/cat.txt", []byte("meow! "+bucket)).Header.Get("X-Holdfast-Cid"))
	}
	var key struct{ ID string }
	webAPI(t, first, session, "POST", "/keys", `{"name":"signs"}`, http.StatusCreated, &key)
	var link struct{ URL string }
	webAPI(t, first, session, "POST", "/buckets"+private+"/object/link?key=cat.txt", `{"key_id":"`+key.ID+`"}`, http.StatusOK, &link)
	host := strings.TrimPrefix(first.S3URL(), "http://")
	var share struct {
		Token string `json:"token"`
	}
	webAPI(t, first, o.token, "POST", "/shares", `{"bucket":"`+private[1:]+`","prefixes":["cat.txt"],"read":true}`, http.StatusCreated, &share)
	// wants asks every node in every way.
	wants := func(when string, s3, api, sessions int) {
		t.Helper()
		for _, n := range c.Nodes {
			for path, token := range map[string]string{private + "/cat.txt": o.token, private + "/cat.txt?share": share.Token} {
				if r := o.with(token).callOn(n, http.MethodGet, strings.TrimSuffix(path, "?share"), nil); r.Status != s3 {
					t.Errorf("%s, %s: GET %s is answered with %d %s", when, n.Name, path, r.Status, r.Body)
				}
			}
			if answer, err := http.Get(link.URL); err != nil || answer.StatusCode != s3 || answer.Body.Close() != nil { //nolint:noctx // a friend, who has nothing else
				t.Errorf("%s, %s: the presigned link: %v, %v", when, host, answer, err)
			}
			for token, want := range map[string]int{o.token: api, session: sessions} {
				if r, err := n.Pins(token).Do(t.Context(), http.MethodGet, "/pins", nil, nil); err != nil || r.Status != want {
					t.Errorf("%s, %s: GET /pins is answered with %d %s, %v", when, n.Name, r.Status, r.Body, err)
				}
				webAPI(t, n, token, "GET", "/usage", "", want, nil)
			}
			for root, public := range map[string]bool{roots[0]: false, roots[1]: true} {
				copied := filepath.Join(t.TempDir(), "copy")
				if r := n.TryCLI("", "get", root, "--user", "other@example.org", "-o", copied); (r.Code == 0) != public {
					t.Errorf("%s, %s: another account reads %s, public %t: %+v", when, n.Name, root, public, r)
				}
			}
		}
	}
	wants("before", http.StatusOK, http.StatusOK, http.StatusOK)

	var told struct{ Disabled string }
	if err := json.Unmarshal([]byte(first.CLI("user", "disable", email, "--yes", "--json")), &told); err != nil || told.Disabled == "" {
		t.Errorf("disable says %+v, %v", told, err)
	}
	wants("disabled", http.StatusForbidden, http.StatusUnauthorized, http.StatusUnauthorized)
	for _, n := range c.Nodes {
		if status, token, body := signIn(n); status != http.StatusUnauthorized || token != "" || strings.Contains(body, "disabled") {
			t.Errorf("%s: sign-in is answered with %d %s", n.Name, status, body)
		}
		if r := n.TryCLI("", "key", "create", "--user", email); r.Code == 0 || !strings.Contains(r.Stderr, "disabled") {
			t.Errorf("%s: a new key: %+v", n.Name, r)
		}
	}
	if list := c.Nodes[2].CLI("user", "ls"); !strings.Contains(list, email+"     disabled") && !strings.Contains(list, email+"  disabled") {
		t.Errorf("the list is %s", list)
	}
	c.Nodes[1].CLI("user", "enable", email)
	wants("enabled", http.StatusOK, http.StatusOK, http.StatusUnauthorized)
	if status, token, body := signIn(c.Nodes[2]); status != http.StatusOK || token == "" {
		t.Errorf("sign-in is answered with %d %s", status, body)
	}
	rows := first.CLI("audit", "ls", "--action", "user.disable")
	if !strings.Contains(rows, email) || strings.Count(rows, "user.disable") != 1 {
		t.Errorf("the audit log has %s", rows)
	}
}
