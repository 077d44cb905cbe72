//go:build conformance

package conformance

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// secretLog keeps all that a node says at debug in this test.
const secretLog = 64 << 20

// canaries are secrets by what they are, in every form in which they could sing.
type canaries map[string][][]byte

// add watches for a secret. Of a token every part that nobody can guess counts.
func (c canaries) add(name, secret string, parts ...string) {
	for _, text := range append(parts, secret) {
		c[name] = append(c[name], []byte(text))
	}
}

// addBytes watches for a secret of bytes as it is and as text.
func (c canaries) addBytes(name string, secret []byte) {
	c[name] = append(c[name], secret, []byte(hex.EncodeToString(secret)), []byte(strings.ToUpper(hex.EncodeToString(secret))),
		[]byte(base64.RawStdEncoding.EncodeToString(secret)), []byte(base64.RawURLEncoding.EncodeToString(secret)))
}

// addToken watches for a token: of one with dots its last part is what proves it.
func (c canaries) addToken(name, token string) {
	c.add(name, token, token[strings.LastIndexByte(token, '.')+1:])
	if bare, ok := strings.CutPrefix(token, "hfs_"); ok {
		c.add(name, bare)
	}
}

// silent wants none of the secrets in what somebody else could read.
func (c canaries) silent(t *testing.T, where string, said []byte) {
	t.Helper()
	for _, name := range c.found(said) {
		t.Errorf("A51: %s tells %s", where, name)
	}
}

func (c canaries) found(said []byte) (names []string) {
	for name := range maps.Keys(c) {
		for _, form := range c[name] {
			if bytes.Contains(said, form) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// canaryPassword returns a password that is nothing else.
func canaryPassword() string { return "canary " + rand.Text() }

// keeper uses secrets of a cluster and gathers what it is answered.
type keeper struct {
	t       *testing.T
	c       *harness.Cluster
	secrets canaries
	answers bytes.Buffer // to requests that do not ask for a secret

	first, second, wrong string // passwords: one that was changed, the one that is good, one that never was
	key                  harness.Key
}

const keeperEmail = "canary@example.org"

// TestSecretsAreNotTold promises that no answer, log at level debug or file repeats a secret of an account or of the
// cluster to a caller who did not ask for it (A51). The secrets are used in every way, good and bad.
func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{ByTicket: true, Env: []string{"HOLDFAST_LOG_LEVEL=debug", "HOLDFAST_SESSION_TRIES=100"}, LogBytes: secretLog})
	k := &keeper{t: t, c: c, secrets: canaries{}, first: canaryPassword(), second: canaryPassword(), wrong: canaryPassword()}
	k.ofTheCluster()
	k.ofAnAccount()
	lasting := ""
	for i := range c.Nodes {
		lasting = k.sessions(i)
	}
	k.commandsThatFail()
	n := c.Nodes[0]
	n.CLI("key", "rotate")
	n.CLI("key", "revoke", k.key.ID)
	k.ask(n, http.MethodGet, "/pins", "", bearer(k.key.Token))
	if r := k.ask(n, http.MethodGet, "/pins", "", bearer(lasting)); r.Status != http.StatusOK {
		t.Fatalf("a session after all this: %d", r.Status)
	}
	k.secrets.silent(t, "an answer", k.answers.Bytes())
	for _, n := range c.Nodes {
		k.listen(n)
	}
	for _, n := range c.Nodes {
		n.Stop()
		k.atRest(n)
	}
}

// ofTheCluster watches for what opens the cluster.
func (k *keeper) ofTheCluster() {
	text, err := os.ReadFile(k.c.SecretFile())
	if err != nil {
		k.t.Fatal(err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		k.t.Fatal(err)
	}
	k.secrets.addBytes("the cluster secret", secret)
	for _, n := range k.c.Nodes {
		key, err := os.ReadFile(filepath.Join(n.Dir, "identity.key"))
		if err != nil {
			k.t.Fatal(err)
		}
		k.secrets.addBytes("the key of "+n.Name, bytes.TrimSpace(key))
	}
	ticket, _, _ := strings.Cut(k.c.Nodes[0].CLI("token"), "\n")
	k.secrets.add("a ticket", ticket)
}

// ofAnAccount makes an account with a password that is changed, and an API key.
func (k *keeper) ofAnAccount() {
	n := k.c.Nodes[0]
	k.secrets.add("a password that was changed", k.first)
	k.secrets.add("a password", k.second)
	k.secrets.add("a wrong password", k.wrong)
	n.CLIWithInput(k.first+"\n", "user", "add", keeperEmail, "--password-stdin")
	n.CLIWithInput(k.second+"\n", "user", "passwd", keeperEmail)
	made := n.CLI("key", "create", "--user", keeperEmail, "--json")
	if err := harness.DecodeStrict([]byte(made), &k.key); err != nil {
		k.t.Fatalf("%v in %s", err, made)
	}
	k.secrets.addToken("an API key", k.key.Token)
	k.secrets.add("an access key's secret", k.key.SecretAccessKey)
	if found := k.secrets.found([]byte(made)); len(found) != 2 {
		k.t.Fatalf("who asks for a key gets %v", found) // else nothing below could be found
	}
}

// ask sends a request whose answer tells no secret.
func (k *keeper) ask(n *harness.Node, method, path, body string, header http.Header) harness.Response {
	k.t.Helper()
	r := do(k.t, n, "", method, path, body, header)
	fmt.Fprintf(&k.answers, "%s %s %d %v %s\n", method, path, r.Status, r.Header, r.Body)
	return r
}

// sessions signs in on a node, well and badly, uses what it gets, and returns
// the token of a session that lasts.
func (k *keeper) sessions(at int) string {
	n := k.c.Nodes[at]
	signIn := func(password string) harness.Response {
		return do(k.t, n, "", http.MethodPost, "/auth/token", `{"username":"`+keeperEmail+`","password":"`+password+`"}`, nil)
	}
	var session [2]struct{ Token string }
	for i := range session {
		if r := signIn(k.second); r.Status != http.StatusOK || json.Unmarshal(r.Body, &session[i]) != nil || session[i].Token == "" {
			k.t.Fatalf("sign in on %s: %d", n.Name, r.Status)
		}
		k.secrets.addToken(fmt.Sprintf("session %d of %s", i+1, n.Name), session[i].Token)
	}
	for _, password := range []string{k.first, k.wrong} {
		r := signIn(password)
		if r.Status != http.StatusUnauthorized {
			k.t.Errorf("a wrong password: %d %s", r.Status, r.Body)
		}
		k.answers.Write(r.Body)
	}
	for _, token := range []string{k.key.Token, session[0].Token, session[1].Token} {
		k.useAndMisuse(n, token)
	}
	if r := k.ask(n, http.MethodDelete, "/auth/token", "", bearer(session[1].Token)); r.Status != http.StatusOK {
		k.t.Errorf("the end of a session: %d", r.Status)
	}
	k.ask(k.c.Nodes[(at+1)%len(k.c.Nodes)], http.MethodGet, "/pins", "", bearer(session[1].Token))
	name, password := `"username":"`+keeperEmail+`"`, `"password":"`+k.second+`"`
	for _, body := range []string{
		"{" + name + "," + password, "{" + name + `,"password":["` + k.second + `"]}`, `{"username":1,` + password + "}", "{" + password + "}",
		"{" + name + "," + password + "," + password + "}",
	} {
		if r := k.ask(n, http.MethodPost, "/auth/token", body, nil); r.Status != http.StatusBadRequest {
			k.t.Errorf("a bad sign-in: %d %s", r.Status, r.Body)
		}
	}
	return session[0].Token
}

// commandsThatFail have a secret as input.
func (k *keeper) commandsThatFail() {
	n := k.c.Nodes[0]
	for _, r := range []harness.Result{
		n.TryCLI(k.first+"\n", "user", "add", keeperEmail, "--password-stdin"), // is there already
		n.TryCLI(k.second+"\n", "user", "passwd", "nobody@example.org"),
		n.TryCLI(k.second+"\n", "user", "add", "no e-mail", "--password-stdin"),
		n.TryCLI("", "key", "show", "nosuchkey"),
	} {
		if r.Code == 0 {
			k.t.Errorf("wrong use of a command is taken: %s", r.Stdout)
		}
		k.secrets.silent(k.t, "a command that fails", []byte(r.Stdout+r.Stderr))
	}
}

// listen reads all that a running node says to who does not ask for a secret.
func (k *keeper) listen(n *harness.Node) {
	for _, command := range []string{"status", "status --json", "peers ls", "peers ls --json", "user ls", "user ls --json", "key ls --user " + keeperEmail, "key ls --json --user " + keeperEmail} {
		r := n.TryCLI("", strings.Fields(command)...)
		if r.Code != 0 {
			k.t.Errorf("%s: %s", command, r.Stderr)
		}
		k.secrets.silent(k.t, "holdfast "+command, []byte(r.Stdout+r.Stderr))
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/cmdline"} {
		monitor := harness.PinsClient{Base: n.AdminURL(), HTTP: http.DefaultClient}
		r, err := monitor.Do(k.t.Context(), http.MethodGet, path, nil, nil)
		if err != nil {
			k.t.Fatal(err)
		}
		if path == "/metrics" && (r.Status != http.StatusOK || len(r.Body) == 0) {
			k.t.Errorf("%s: %d", path, r.Status)
		}
		k.secrets.silent(k.t, path, r.Body)
	}
	// A ticket that a node was started with is in its arguments, and spent.
	for _, file := range []string{"cmdline", "environ", "comm"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", n.Pid(), file))
		if err != nil || len(data) == 0 {
			k.t.Fatalf("%s: %d bytes, %v", file, len(data), err)
		}
		k.secrets.silent(k.t, "/proc/PID/"+file, data)
	}
	said := n.Log()
	for _, line := range []string{"level=DEBUG", "path=/auth/token", "path=/pins", "status=401", "status=400"} {
		if !strings.Contains(said, line) || len(said) >= secretLog {
			k.t.Errorf("the log of %s has %d bytes and no %s: nothing shows that it tells what it could", n.Name, len(said), line)
		}
	}
	k.secrets.silent(k.t, "the log of "+n.Name, []byte(said))
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// useAndMisuse sends a token where it belongs and where it does not.
func (k *keeper) useAndMisuse(n *harness.Node, token string) {
	k.t.Helper()
	if r := k.ask(n, http.MethodGet, "/pins", "", bearer(token)); r.Status != http.StatusOK {
		k.t.Errorf("a good token: %d %s", r.Status, r.Body)
	}
	if r := k.ask(n, http.MethodPost, "/pins", `{"cid":"`+nowhere().String()+`"}`, bearer(token)); r.Status != http.StatusAccepted {
		k.t.Errorf("a good token: %d %s", r.Status, r.Body)
	}
	k.ask(n, http.MethodPost, "/pins", `{"cid":"no"}`, bearer(token))
	k.ask(n, http.MethodDelete, "/pins/unknown", "", bearer(token))
	for _, header := range []string{token, "Basic " + token, "bearer " + token, "Bearer  " + token, "Bearer " + token + "A", "Bearer " + token[:len(token)-1], "Bearer " + token + " x", "Token " + token} {
		if r := k.ask(n, http.MethodGet, "/pins", "", http.Header{"Authorization": {header}}); r.Status != http.StatusUnauthorized {
			k.t.Errorf("a token in a wrong form: %d", r.Status)
		}
	}
	for _, path := range []string{"/pins?token=" + token, "/pins?access_token=" + token + "&limit=x"} {
		r := do(k.t, n, "", http.MethodGet, path, "", nil) // the path is not for answers
		if r.Status != http.StatusUnauthorized || strings.Contains(string(r.Body), token) {
			k.t.Errorf("a token in a query: %d %s", r.Status, r.Body)
		}
	}
	for name, value := range map[string]string{"Cookie": "session=" + token, "X-Api-Key": token, "Idempotency-Key": token} {
		k.ask(n, http.MethodPost, "/pins", `{"cid":"`+nowhere().String()+`"}`, http.Header{name: {value}})
	}
}

// atRest reads the files of a stopped node: nothing that opens an account
// is among them, and what opens the cluster is in the files that are for it.
func (k *keeper) atRest(n *harness.Node) {
	k.t.Helper()
	read := 0
	err := filepath.WalkDir(n.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || entry.Name() == "cluster.secret" || entry.Name() == "identity.key" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		k.secrets.silent(k.t, path, data)
		return nil
	})
	if err != nil || read == 0 {
		k.t.Errorf("%d files of %s, %v", read, n.Dir, err)
	}
}
