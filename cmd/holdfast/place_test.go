package main

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// fakeCluster is a node with a gateway, a pinning API and a web API at one address. It has one pin.
type fakeCluster struct {
	url string

	mu       sync.Mutex
	requests []string // method, path and query of each, without those for addresses
	bodies   []string
	tokens   []string
	status   int // of every answer, if it is not 0
}

func newFakeCluster(t *testing.T) *fakeCluster {
	f := new(fakeCluster)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// ServeHTTP implements http.Handler.
func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/.well-known/holdfast" {
		fmt.Fprintf(w, `{"pinning":%q,"web":%q}`, f.url, f.url+"/api/v1")
		return
	}
	body, _ := io.ReadAll(r.Body) // the tests compare what arrives
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, strings.TrimSuffix(r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery, "?"))
	f.bodies = append(f.bodies, r.Header.Get("Content-Type")+" "+string(body))
	f.tokens = append(f.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	const pin = `{"requestid":"r9","status":"pinned","created":"2026-11-20T10:00:00.000Z","pin":{"cid":"bafy9","name":"nine"},"delegates":[],"info":{"dag_size":"5"}}`
	switch {
	case f.status != 0:
		w.WriteHeader(f.status)
		fmt.Fprint(w, `{"error":{"reason":"SOME_REASON","details":"some details"}}`)
	case strings.HasPrefix(r.URL.Path, "/api/v1/content/"):
		f.content(w, strings.TrimPrefix(r.URL.Path, "/api/v1/content/"), r.Header.Get("Accept"), len(f.requests))
	case r.URL.Path == "/api/v1/pins/upload":
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"pins":[{"id":"r9","cid":"bafy9","name":"nine","status":"queued"}],"size":5,"blocks":3`)
		if r.URL.Query().Has("entries") {
			fmt.Fprint(w, `,"entries":[{"name":"a","cid":"bafya"},{"name":"b","cid":"bafyb"}]`)
		}
		fmt.Fprint(w, `}`)
	case r.Method == http.MethodGet && r.URL.Path == "/pins":
		fmt.Fprint(w, `{"count":1,"results":[`+pin+`]}`)
	default:
		fmt.Fprint(w, pin)
	}
}

// content answers with a file, and for bafydir with a folder. For bafycut the first answer is cut, and the content is
// gone afterwards.
func (f *fakeCluster) content(w http.ResponseWriter, path, accept string, nth int) {
	cut := strings.HasPrefix(path, "bafycut")
	switch {
	case cut && nth > 1:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":{"reason":"NOT_FOUND","details":"gone"}}`)
		return
	case accept == "application/vnd.ipld.car":
		w.Header().Set("Content-Type", accept)
		fmt.Fprint(w, "a car of ", path)
	case strings.HasPrefix(path, "bafydir") || path == "bafycut/dir":
		w.Header().Set("Content-Type", "application/x-tar")
		archive := tar.NewWriter(w)
		_ = archive.WriteHeader(&tar.Header{Name: "a", Mode: 0o644, Size: 4})
		fmt.Fprint(archive, "text")
		_ = archive.Close()
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len("file ")+len(path)))
		fmt.Fprint(w, "file ")
		if !cut {
			fmt.Fprint(w, path)
		}
	}
	if cut {
		_ = http.NewResponseController(w).Flush() // the first bytes arrive
		panic(http.ErrAbortHandler)
	}
}

// A command on pins works on the cluster that a flag names, or on the node that --data names. Without these flags it works
// on the node if HOLDFAST_DATA is set or the default data folder exists, whatever else the environment names, and
// otherwise on the cluster of the environment or of the default profile.
func TestFlagsThenTheNodeThenTheEnvironment(t *testing.T) {
	f := newFakeCluster(t)
	empty, withNode, withProfile := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(withNode, ".local", "share", "holdfast"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(withProfile, ".config", "holdfast", "config.toml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("default = \"work\"\n[profiles.work]\nendpoints = [\""+f.url+"\"]\ntoken = \"of the profile\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOLDFAST_ENDPOINT=" + f.url, "HOLDFAST_TOKEN=of the environment"}
	aws := []string{"AWS_ENDPOINT_URL=" + f.url, "HOLDFAST_TOKEN=of key create --env"}
	for _, tc := range []struct {
		name string
		home string
		env  []string
		args string
		want string // the token that the cluster gets; "node"; or a part of the message
	}{
		{"nothing", empty, nil, "", "the data folder does not exist: "},
		{"a node", withNode, nil, "", "node"},
		{"a node and a cluster in the environment", withNode, env, "", "node"},
		{"a node and a profile", withProfile, nil, "--data " + withNode, "node"},
		{"a folder in the environment and a cluster", empty, append(env, "HOLDFAST_DATA="+withNode), "", "node"},
		{"a cluster in the environment", empty, env, "", "of the environment"},
		{"what key create prints", empty, aws, "", "of key create --env"},
		{"a default profile", withProfile, nil, "", "of the profile"},
		{"a profile in the environment that does not exist", withProfile, []string{"HOLDFAST_PROFILE=home"}, "", `no profile "home"`},
		{"a flag and a node", withNode, env, "--token flag", "flag"},
		{"a profile and a folder in the environment", withProfile, []string{"HOLDFAST_DATA=" + withNode}, "--profile work", "of the profile"},
		{"an endpoint alone", empty, nil, "--endpoint " + f.url, "no key is given"},
		{"a token alone", empty, nil, "--token t", "no cluster is named"},
		{"an access key alone", empty, []string{"HOLDFAST_ACCESS_KEY=a", "HOLDFAST_SECRET_KEY=b"}, "--endpoint " + f.url, "and this needs its token"},
		{"both", withProfile, nil, "--profile work --data " + withNode, "--data names the node on this machine, and --profile a cluster"},
		{"the option of an operator", withProfile, nil, "--user a@b", "--user is for the node on this machine"},
	} {
		f.mu.Lock()
		f.tokens = nil
		f.mu.Unlock()
		node := &fakeNode{pins: []client.PinStatus{{RequestID: "of the node", Status: "pinned"}}}
		a, w := testApp(t, node, "")
		a.environ = append([]string{"HOME=" + tc.home}, tc.env...)
		a.connect = func(dir string) operator {
			if _, err := os.Stat(dir); err != nil {
				return absent{}
			}
			return node
		}
		code := a.execute(t.Context(), strings.Fields("pin ls --json "+tc.args))
		got := strings.Join(f.tokens, " ")
		if strings.Contains(w.out.String(), "of the node") {
			got = "node"
		}
		if code != exitOK {
			got = w.errs.String()
		}
		if got != tc.want && (code == exitOK || !strings.Contains(got, tc.want)) {
			t.Errorf("%s: %q, want %q (code %d, %q)", tc.name, got, tc.want, code, &w.errs)
		}
		if code == exitFailure && !strings.Contains(w.errs.String(), "or a cluster with --profile") {
			t.Errorf("%s: the message is %q", tc.name, &w.errs)
		}
	}
}

// callCluster runs the program with the token of f and without a node.
func callCluster(t *testing.T, f *fakeCluster, stdin string, args ...string) outcome {
	t.Helper()
	a, w := testApp(t, absent{}, stdin)
	a.environ = []string{"HOME=" + t.TempDir(), "HOLDFAST_ENDPOINT=" + f.url, "HOLDFAST_TOKEN=t"}
	code := a.execute(t.Context(), args)
	return outcome{code, w.out.String(), w.errs.String()}
}

// On a cluster the commands send what was typed and print what they print on the node: the JSON has the same fields.
func TestCommandsOnACluster(t *testing.T) {
	f := newFakeCluster(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "text", "b": "more", "x.car": "a car"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	const waits = "; GET /pins/r9"
	const realCID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
	for _, tc := range []struct{ args, out, requests, body string }{
		{"pin add bafy9 --name nine --meta k=v", "r9\n", "POST /pins", `application/json {"cid":"bafy9","name":"nine","meta":{"k":"v"}}`},
		{"pin add bafy9 --wait", "r9\n", "POST /pins" + waits, ""},
		{"pin ls --status failed --name n --match partial", "REQUEST ID  STATUS  CREATED                   CID    NAME\nr9          pinned  2026-11-20T10:00:00.000Z  bafy9  nine\n", "GET /pins?limit=500&match=partial&name=n&status=failed", ""},
		{"pin rm r9", "removed pin r9 \"nine\" of bafy9\n", "GET /pins/r9; DELETE /pins/r9", ""},
		{"add " + at("a"), "bafy9\n", "POST /api/v1/pins/upload?name=a" + waits, "application/octet-stream text"},
		{"add - --hash sha2-256 --cid-version 0 --name n", "bafy9\n", "POST /api/v1/pins/upload?cid_version=0&hash=sha2-256&name=n" + waits, "application/octet-stream input"},
		{"add " + at("a") + " " + at("b"), "bafya  a\nbafyb  b\nbafy9\n", "POST /api/v1/pins/upload?entries=true" + waits, "application/x-tar a\x00"},
		{"car import " + at("x.car"), "bafy9\n", "POST /api/v1/pins/upload?name=x.car" + waits, "application/vnd.ipld.car a car"},
		{"get ipfs://" + realCID + "/a%20b/", "file " + realCID + "/a b", "GET /api/v1/content/" + realCID + "/a b", ""},
		{"get bafydir -o " + at("got"), "", "GET /api/v1/content/bafydir", ""},
		{"car export /ipfs/" + realCID, "a car of " + realCID, "GET /api/v1/content/" + realCID, ""},
		{"car export bafy9 -o " + at("got.car"), "", "GET /api/v1/content/bafy9", ""},
	} {
		f.requests, f.bodies = nil, nil
		got := callCluster(t, f, "input", strings.Fields(tc.args)...)
		if want := (outcome{exitOK, tc.out, ""}); got != want {
			t.Errorf("%s: %+v, want %+v", tc.args, got, want)
		}
		if sent := strings.Join(f.requests, "; "); sent != tc.requests {
			t.Errorf("%s sent %q, want %q", tc.args, sent, tc.requests)
		}
		if len(f.bodies) == 0 || !strings.HasPrefix(f.bodies[0], tc.body) {
			t.Errorf("%s sent %q, want %q", tc.args, f.bodies, tc.body)
		}
	}
	for name, want := range map[string]string{"got/a": "text", "got.car": "a car of bafy9"} {
		if text, err := os.ReadFile(at(name)); err != nil || string(text) != want {
			t.Errorf("%s has %q, %v", name, text, err)
		}
	}
	for args, want := range map[string]string{
		"pin ls --json":                         `[{"requestid":"r9","status":"pinned","created":"2026-11-20T10:00:00.000Z","pin":{"cid":"bafy9","name":"nine"},"delegates":[],"info":{"dag_size":"5"}}]`,
		"add --json " + at("a"):                 `{"cid":"bafy9","size":5,"requestid":"r9","status":"pinned"}`,
		"car import --json " + at("x.car"):      `{"roots":[{"cid":"bafy9","requestid":"r9","status":"pinned"}],"blocks":3,"bytes":5}`,
		"add --json " + at("a") + " " + at("b"): `{"cid":"bafy9","size":5,"requestid":"r9","status":"pinned","entries":[{"name":"a","cid":"bafya"},{"name":"b","cid":"bafyb"}]}`,
	} {
		got := callCluster(t, f, "", strings.Fields(args)...)
		var parsed json.RawMessage
		if err := json.Unmarshal([]byte(got.out), &parsed); err != nil {
			t.Errorf("%s: %v in %+v", args, err, got)
			continue
		}
		if compact, err := json.Marshal(parsed); err != nil || string(compact) != want {
			t.Errorf("%s: %s, want %s", args, compact, want)
		}
	}
}

// A refusal of a cluster is one line with its reason and details. An answer of 400 is wrong usage for the words of a pin,
// and a failure for content that is sent.
func TestRefusalsOfAClusterAreTold(t *testing.T) {
	f := newFakeCluster(t)
	t.Chdir(t.TempDir())
	if err := os.Mkdir("bafydir", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args   string
		status int
		code   int
		says   string
	}{
		{"pin add x", http.StatusBadRequest, exitUsage, "holdfast: pin add: SOME_REASON: some details (" + f.url + ")\n"},
		{"pin add x", http.StatusConflict, exitFailure, "holdfast: pin add: SOME_REASON: some details (" + f.url + ")\n"},
		{"pin ls", http.StatusUnauthorized, exitFailure, "holdfast: pin ls: SOME_REASON: some details (" + f.url + ")\n"},
		{"pin get r1", http.StatusNotFound, exitFailure, "holdfast: pin get: SOME_REASON: some details (" + f.url + ")\n"},
		{"add -", http.StatusBadRequest, exitFailure, "holdfast: upload: SOME_REASON: some details (" + f.url + "/api/v1)\n"},
		{"add /no/such/file", 0, exitFailure, "holdfast: stat /no/such/file: no such file or directory\n"},
		{"car import /no/such/file", 0, exitFailure, "holdfast: open /no/such/file: no such file or directory\n"},
		{"get bafyhave", http.StatusNotFound, exitFailure, "holdfast: read content: SOME_REASON: some details (" + f.url + "/api/v1)\n"},
		{"get bafyhave -o /no/such/folder/x", http.StatusForbidden, exitFailure, "holdfast: read content: SOME_REASON: some details (" + f.url + "/api/v1)\n"},
		{"get bafyhave", http.StatusBadRequest, exitUsage, "holdfast: read content: SOME_REASON: some details (" + f.url + "/api/v1)\n"},
		{"car export bafyhave", http.StatusBadRequest, exitUsage, "holdfast: read content: SOME_REASON: some details (" + f.url + "/api/v1)\n"},
		{"car export bafyhave", http.StatusNotFound, exitFailure, "holdfast: read content: SOME_REASON: some details (" + f.url + "/api/v1)\n"},
		{"get bafydir", 0, exitFailure, "holdfast: get bafydir: bafydir exists already: -o names another place\n"},
		{"get bafydir -o -", 0, exitFailure, "holdfast: get bafydir: the content is a folder, which cannot be written to standard output: -o names a place for it\n"},
		{"get bafyhave --user a@b", 0, exitUsage, "holdfast: get: --user is for the node on this machine: on a cluster a key belongs to one account\n"},
		{"car export bafyhave --user a@b", 0, exitUsage, "holdfast: car export: --user is for the node on this machine: on a cluster a key belongs to one account\n"},
	} {
		f.status = tc.status
		if got, want := callCluster(t, f, "x", strings.Fields(tc.args)...), (outcome{tc.code, "", tc.says}); got != want {
			t.Errorf("%s, answered %d: %+v, want %+v", tc.args, tc.status, got, want)
		}
	}
}

// Content whose transfer ends early is an error, and neither its name nor a part of it is left.
func TestCutContentLeavesNothing(t *testing.T) {
	const cid = "bafycut"
	for _, command := range []string{"get " + cid, "get " + cid + "/dir", "car export " + cid} {
		f := newFakeCluster(t)
		dir := t.TempDir()
		got := callCluster(t, f, "", append(strings.Fields(command), "-o", filepath.Join(dir, "x"))...)
		if got.code != exitFailure || !strings.Contains(got.errOut, "read content: NOT_FOUND: gone") || len(f.requests) != 2 {
			t.Errorf("%s: %+v after %q", command, got, f.requests)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", command, left, err)
		}
	}
}
