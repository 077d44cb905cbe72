//go:build conformance

package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// webAPI calls the web API of a node with a Bearer token, and reads the answer into out unless that is nil.
func webAPI(t *testing.T, n *harness.Node, token, method, path, body string, want int, out any) {
	t.Helper()
	client := n.Pins(token)
	client.Base = n.ConsoleURL() + "/api/v1"
	answer, err := client.Do(t.Context(), method, path, nil, []byte(body))
	if err != nil || answer.Status != want {
		t.Fatalf("%s answers %s %s with %d, %v and not %d: %s", n.Name, method, path, answer.Status, err, want, answer.Body)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(answer.Body, out); err != nil {
		t.Fatalf("%s %s: %v: %s", method, path, err, answer.Body)
	}
}

// TestTheWebAPI promises that keys, buckets and links that one node's web API makes hold on all nodes, and that all
// refuse a revoked key and an ended session from the answer on.
func TestTheWebAPI(t *testing.T) {
	c := harness.Start(t, harness.Options{})
	const email, password = "web@example.org", "correct horse battery staple"
	c.Nodes[0].CLIWithInput(password, "user", "add", email, "--password-stdin")
	signIn, err := c.Nodes[0].Pins("").Do(t.Context(), http.MethodPost, "/auth/token", nil, []byte(`{"username":"`+email+`","password":"`+password+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	var session struct{ Token string }
	if err := json.Unmarshal(signIn.Body, &session); err != nil || session.Token == "" {
		t.Fatalf("sign-in is answered with %d %s", signIn.Status, signIn.Body)
	}
	first, second, third := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	var who struct{ Email string }
	webAPI(t, second, session.Token, "GET", "/session", "", http.StatusOK, &who)
	if who.Email != email {
		t.Errorf("the session is of %q", who.Email)
	}
	var key struct {
		ID    string
		Token string
	}
	webAPI(t, second, session.Token, "POST", "/keys", `{"name":"laptop"}`, http.StatusCreated, &key)
	webAPI(t, third, key.Token, "POST", "/buckets", `{"name":"photos"}`, http.StatusCreated, nil)
	webAPI(t, third, key.Token, "GET", "/keys", "", http.StatusForbidden, nil)
	webAPI(t, third, session.Token, "GET", "/members", "", http.StatusForbidden, nil)
	stored, err := first.S3(t.Context(), key.Token, http.MethodPut, "/photos/cat.txt", bytes.NewReader([]byte("meow!")), 5)
	if err != nil || stored.Status != http.StatusOK {
		t.Fatalf("PUT is answered with %d %s, %v", stored.Status, stored.Body, err)
	}
	var page struct {
		Results []struct {
			Key  string
			Size int
		}
	}
	webAPI(t, second, key.Token, "GET", "/buckets/photos/objects", "", http.StatusOK, &page)
	if len(page.Results) != 1 || page.Results[0].Key != "cat.txt" || page.Results[0].Size != 5 {
		t.Errorf("the bucket has %+v", page.Results)
	}
	var link struct{ URL string }
	webAPI(t, second, session.Token, "POST", "/buckets/photos/object/link?key=cat.txt", `{"key_id":"`+key.ID+`"}`, http.StatusOK, &link)
	answer, err := http.Get(link.URL) //nolint:noctx // a friend, who has nothing else
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "meow!" {
		t.Errorf("the link is answered with %d %s, %v", answer.StatusCode, text, err)
	}
	webAPI(t, first, session.Token, "DELETE", "/keys/"+key.ID, "", http.StatusNoContent, nil)
	for _, n := range c.Nodes {
		webAPI(t, n, key.Token, "GET", "/usage", "", http.StatusUnauthorized, nil)
		webAPI(t, n, session.Token, "GET", "/usage", "", http.StatusOK, nil)
	}
	webAPI(t, second, session.Token, "DELETE", "/session", "", http.StatusNoContent, nil)
	for _, n := range c.Nodes {
		webAPI(t, n, session.Token, "GET", "/usage", "", http.StatusUnauthorized, nil)
		webAPI(t, n, "", "GET", "/openapi.json", "", http.StatusOK, nil)
	}
}
