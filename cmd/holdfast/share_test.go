package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// someIdentity returns a new identity, its file and the file of its passphrase.
func someIdentity(t *testing.T) (id *seal.Identity, file, passphrase string) {
	t.Helper()
	id, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	text, err := id.Seal([]byte("correct horse"), seal.Cost{Time: 1, Memory: 8 << 10, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, passphrase = filepath.Join(dir, "identity"), filepath.Join(dir, "passphrase")
	for path, data := range map[string][]byte{file: text, passphrase: []byte("correct horse\n")} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return id, file, passphrase
}

// TestEachRefusedShareHasItsOwnMessage promises that each refusal of share open says what is wrong with the share.
// The command checks a share before it sends a request, in the order of the format.
func TestEachRefusedShareHasItsOwnMessage(t *testing.T) {
	owner, _, _ := someIdentity(t)
	recipient, file, passphrase := someIdentity(t)
	other, _, _ := someIdentity(t)
	at := time.Now()
	share := seal.Share{Bucket: "b", PathScope: "/papers", Permissions: seal.ReadOnly()}
	withEnd := func(created, end time.Time) seal.Share {
		s := share
		s.Created, s.Expires = created, end
		return s
	}
	made := func(s seal.Share) string {
		link, err := owner.NewLink("https://console.example.org/shared", "access", s)
		if err != nil {
			t.Fatal(err)
		}
		link.Endpoints = []string{"http://127.0.0.1:1"}
		return link.URL()
	}
	personal := func(to *seal.Identity, s seal.Share) string {
		token, err := owner.NewToken(to.Public(), s)
		if err != nil {
			t.Fatal(err)
		}
		return (&seal.Link{Token: token, Access: "access", Endpoints: []string{"http://127.0.0.1:1"}}).URL()
	}
	forged, err := seal.ParseLink(made(share))
	if err != nil {
		t.Fatal(err)
	}
	if forged.Token, err = seal.ParseToken(strings.Replace(forged.Token.JSON(), `"/papers"`, `"/"`, 1)); err != nil {
		t.Fatal(err)
	}
	unlock := []string{"--identity", file, "--passphrase-file", passphrase}
	from := func(id *seal.Identity) []string { return append([]string{"--from", id.Public().String()}, unlock...) }
	upload := filepath.Join(t.TempDir(), "answer")
	if err := os.WriteFile(upload, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	const plain = "https://example.org/shared#v=2&b=photos&p=trip%2F&a=token"
	for _, tc := range []struct {
		what, link string
		flags      []string
		code       int
		says       string
	}{
		{"no link", "https://example.org/", nil, exitUsage, "no whole link"},
		{"half a link", made(share)[:len(made(share))/2], nil, exitUsage, "no whole link"},
		{"a plain link without a place", "https://example.org/shared#v=2&b=photos&a=token", nil, exitUsage, "no whole link"},
		{"a plain link, with --from", plain, []string{"--from", owner.Public().String()}, exitUsage, "no identity has signed it"},
		{"a plain link, to write", plain, []string{"--put", upload}, exitUsage, "permits only reading"},
		{"a plain link without an endpoint", plain, nil, exitUsage, "no cluster is named"},
		{"another version", strings.Replace(made(share), "v=1", "v=3", 1), nil, exitUsage, "version is not supported"},
		{"signature", forged.URL(), from(other), exitFailure, "wrong signature"},
		{"unknown owner", made(withEnd(at, at.Add(time.Hour))), from(other), exitFailure, "unknown owner: " + owner.Public().String()},
		{"unknown owner of a personal share", personal(recipient, share), from(other), exitFailure, "unknown owner"},
		{"not yet", made(withEnd(at.Add(time.Hour), time.Time{})), nil, exitFailure, "not valid yet: before "},
		{"expired", made(withEnd(at.Add(-2*time.Hour), at.Add(-time.Hour))), nil, exitFailure, "has expired: at "},
		{"expired, without --from", personal(recipient, withEnd(at.Add(-2*time.Hour), at.Add(-time.Hour))), unlock, exitFailure, "has expired"},
		{"no owner named", personal(recipient, share), unlock, exitUsage, "signed by " + owner.Public().String()},
		{"no identity", personal(recipient, share), from(owner)[:2], exitUsage, "no identity is named"},
		{"another recipient", personal(other, share), from(owner), exitFailure, "another recipient"},
		{"no permission to write", made(share), []string{"--put", upload}, exitFailure, "does not permit this: write"},
		{"no permission to delete", personal(recipient, share), append(from(owner), "--rm", "a"), exitFailure, "does not permit this: delete"},
		{"outside of the folder", made(share), []string{"--rm", "../papers-private/a"}, exitFailure, "outside the shared folder"},
		{"above the root", made(share), []string{"--rm", "../../a"}, exitFailure, "escapes its folder"},
		{"a hidden escape", made(share), []string{"--rm", "%2E%2e/a"}, exitFailure, "escapes its folder"},
		{"no file", made(share), []string{"--put", "/nonexistent"}, exitFailure, "no regular file"},
		{"--from that is none", made(share), []string{"--from", "hfid1-x"}, exitUsage, "no share identity"},
	} {
		for _, stdin := range []bool{false, true} {
			args, in := append([]string{"share", "open", tc.link}, tc.flags...), ""
			if stdin {
				args[2], in = "-", tc.link+"\n"
			}
			got := call(t, &fakeNode{}, in, args...)
			if got.code != tc.code || !strings.Contains(got.errOut, tc.says) || strings.Count(got.errOut, "\n") != 1 || got.out != "" {
				t.Errorf("%s: %+v, want code %d and %q", tc.what, got, tc.code, tc.says)
			}
			if strings.Contains(got.errOut, tc.link) {
				t.Errorf("%s: the message has the link", tc.what)
			}
		}
	}
}

// TestALinkDoesNotGetTheKeyOfAProfile promises that the credential of a profile is not sent to an
// endpoint in a link.
func TestALinkDoesNotGetTheKeyOfAProfile(t *testing.T) {
	owner, _, _ := someIdentity(t)
	link, err := owner.NewLink("", "", seal.Share{Bucket: "b", PathScope: "/papers", Permissions: seal.ReadOnly()})
	if err != nil {
		t.Fatal(err)
	}
	link.Endpoints = []string{"http://127.0.0.1:1"}
	a, w := testApp(t, &fakeNode{}, "")
	a.environ = append(a.environ, "HOLDFAST_TOKEN=secret")
	if code := a.execute(t.Context(), []string{"share", "open", link.URL()}); code != exitUsage || !strings.Contains(w.errs.String(), "no cluster is named") {
		t.Errorf("code %d, %q", code, w.errs.String())
	}
}

// TestAServerOfALinkDoesNotWriteToTheTerminal promises that a server's error is printed without control characters.
func TestAServerOfALinkDoesNotWriteToTheTerminal(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "<Error><Code>Access\u009b2JDenied</Code><Message>\u202Edeined</Message></Error>") // the client sees a cut body
	}))
	t.Cleanup(server.Close)
	owner, _, _ := someIdentity(t)
	link, err := owner.NewLink("", "access", seal.Share{Bucket: "papers", PathScope: "/papers", Permissions: seal.ReadOnly()})
	if err != nil {
		t.Fatal(err)
	}
	link.Endpoints = []string{server.URL}
	a, w := testApp(t, &fakeNode{}, "")
	code := a.execute(t.Context(), []string{"share", "open", link.URL()})
	if said := w.errs.String(); code != exitFailure || !strings.Contains(said, "2JDenied") || strings.ContainsAny(said, "\u009b\u202E") {
		t.Errorf("code %d, %q", code, said)
	}
}

// TestARevokedShareIsToldInOneSentence promises one sentence for a person whose share was revoked, and nothing else.
// It has no storage key, no address of a node and no code.
func TestARevokedShareIsToldInOneSentence(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
	}))
	t.Cleanup(server.Close)
	owner, _, _ := someIdentity(t)
	upload := filepath.Join(t.TempDir(), "answer")
	if err := os.WriteFile(upload, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, err := owner.NewLink("", "access", seal.Share{Bucket: "papers", PathScope: "/papers", Permissions: seal.FullAccess()})
	if err != nil {
		t.Fatal(err)
	}
	link.Endpoints = []string{server.URL}
	for _, more := range [][]string{nil, {t.TempDir()}, {"--put", upload}, {"--rm", "a"}} {
		a, w := testApp(t, &fakeNode{}, "")
		a.environ = append(a.environ, "HOME="+t.TempDir())
		code := a.execute(t.Context(), append([]string{"share", "open", link.URL()}, more...))
		if want := "holdfast: the share was revoked, or its time is over: ask the owner for a new link\n"; code != exitFailure || w.errs.String() != want {
			t.Errorf("%q: code %d, %q", more, code, w.errs.String())
		}
	}
}

// The end of a share is a duration from now, a time or a date, and one that is malformed or past is refused.
func TestEndsOfShares(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 5, time.UTC)
	for text, want := range map[string]time.Time{
		"7d": now.AddDate(0, 0, 7).Truncate(time.Second), "90m": now.Add(90 * time.Minute).Truncate(time.Second),
		"2027-01-31T12:00:00+01:00": time.Date(2027, 1, 31, 11, 0, 0, 0, time.UTC), "2027-01-31": time.Date(2027, 1, 31, 0, 0, 0, 0, time.Local),
	} {
		if got, err := endOf(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s is %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "-1h", "0s", "2026-11-01", "2026-11-28T12:00:00Z", "7"} {
		if got, err := endOf(text, now); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

// TestRecordsOfSharesHaveNoSecret promises that the record of a share has mode 0600 and no link. The record is found
// until it is forgotten.
func TestRecordsOfSharesHaveNoSecret(t *testing.T) {
	a, _ := testApp(t, &fakeNode{}, "")
	home := t.TempDir()
	a.environ = append(a.environ, "HOME="+home)
	m := madeShare{ID: strings.Repeat("ab", 16), Bucket: "b", Path: "/papers", Link: "secret"}
	if err := a.remember(m); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, ".local", "state", "holdfast", "shares", m.ID+".json")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "secret") {
		t.Errorf("%s, %v", text, err)
	}
	if got, ok := a.remembered(m.ID); !ok || got.Path != "/papers" || fmt.Sprint(got.place()) != "s3://b/papers" {
		t.Errorf("%+v, %t", got, ok)
	}
	if _, ok := a.remembered("../" + m.ID); ok {
		t.Error("an id is a path")
	}
	for range 2 {
		if err := a.forget(m.ID); err != nil {
			t.Error(err)
		}
	}
	if _, ok := a.remembered(m.ID); ok {
		t.Error("the record is still there")
	}
}

// TestSharesAreListedForPeople promises that share ls without a bucket lists the shares of all buckets. A recipient
// does not push the other columns away, the list says why a path is not known, and --json has all.
func TestSharesAreListedForPeople(t *testing.T) {
	id, _, _ := someIdentity(t)
	recipient := id.Public().String()
	mine, theirs := strings.Repeat("ab", 16), strings.Repeat("cd", 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/":
			_, _ = io.WriteString(w, "<ListAllMyBucketsResult><Buckets><Bucket><Name>docs</Name></Bucket><Bucket><Name>gone</Name></Bucket><Bucket><Name>photos</Name></Bucket></Buckets></ListAllMyBucketsResult>")
		case strings.HasPrefix(r.URL.Path, "/docs"):
			_, _ = fmt.Fprintf(w, `{"shares":[{"share_id":%q,"bucket":"docs","prefixes":["e/","x/"],"read":true,"name":"For Ann","created_at":"2026-11-28T00:00:00Z"}]}`, mine)
		case strings.HasPrefix(r.URL.Path, "/gone"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<Error><Code>NoSuchBucket</Code></Error>")
		default:
			_, _ = fmt.Fprintf(w, `{"shares":[{"share_id":%q,"bucket":"photos","prefixes":["e/1"],"read":true,"name":"","created_at":"2026-11-28T00:00:00Z"}]}`, theirs)
		}
	}))
	t.Cleanup(server.Close)
	home := t.TempDir()
	run := func(args ...string) (string, string) {
		a, w := testApp(t, &fakeNode{}, "")
		a.environ = append(a.environ, "HOME="+home, "HOLDFAST_ENDPOINT="+server.URL, "HOLDFAST_TOKEN=t")
		if err := a.remember(madeShare{ID: mine, Bucket: "docs", Path: "/papers", Recipient: recipient}); err != nil {
			t.Fatal(err)
		}
		if code := a.execute(t.Context(), append([]string{"share", "ls"}, args...)); code != 0 {
			t.Fatalf("%q: %d, %s", args, code, w.errs.String())
		}
		return w.out.String(), w.errs.String()
	}
	out, said := run()
	for _, want := range []string{mine, theirs, "s3://docs/papers", "s3://photos/?", recipient[:14] + "…", "For Ann"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table has no %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, recipient) || !strings.Contains(said, "another machine made the share") {
		t.Errorf("%s%s", out, said)
	}
	if out, said = run("s3://docs"); strings.Contains(out, theirs) || !strings.Contains(out, mine) || said != "" {
		t.Errorf("of one bucket: %s%s", out, said)
	}
	if out, _ = run("--json"); !strings.Contains(out, recipient) || !strings.Contains(out, `"bucket": "photos"`) {
		t.Error(out)
	}
}

// `share ls --all` lists the shares of all accounts that the node on this machine returns, as a table and as JSON.
func TestAnOperatorListsAllShares(t *testing.T) {
	node := &fakeNode{shares: []client.ShareRow{{ID: "00", User: "ann@example.org", Bucket: "photos", Read: true, State: "active", Name: "For Bob"}}}
	got := call(t, node, "", "share", "ls", "--all")
	if got.code != 0 || !strings.Contains(got.out, "ann@example.org") || !strings.Contains(got.out, "For Bob") {
		t.Errorf("%+v", got)
	}
	if got = call(t, node, "", "share", "ls", "--all", "--json"); got.code != 0 || !strings.Contains(got.out, `"user": "ann@example.org"`) {
		t.Errorf("%+v", got)
	}
}

// A `share` command with wrong usage exits with code 2 and one line that names what is wrong.
func TestWrongUseOfSharesIsNamed(t *testing.T) {
	for args, names := range map[string]string{
		"share":                          "create, ls, open, revoke",
		"share create":                   "s3://BUCKET/PATH",
		"share create s3://b/f":          "give --to hfid1-... for somebody with an identity, or --link",
		"share create b --link":          "s3://",
		"share create s3://b/f --to ann": "no share identity",
		"share create s3://b/f --link --expires soon":                "such as 12h or 7d",
		"share create s3://b/f --link --expires 2001-01-01":          "end before it begins",
		"share create s3://b/f --link --console console":             "--console",
		"share create s3://b/f --link --read-write --full-access":    "full-access",
		"share create s3://b/f --link":                               "no cluster is named",
		"share create s3://b/f --link --endpoint http://h --token t": "no identity is named",
		"share open":                                "LINK",
		"share open x":                              "malformed",
		"share open x y --put z":                    "DIR, or --put and --rm",
		"share ls":                                  "no cluster is named",
		"share ls --all s3://b":                     "neither a bucket nor a profile",
		"share create s3://b --link":                "--whole-bucket",
		"share create s3://b/ --link":               "--whole-bucket",
		"share create s3://b --link --whole-bucket": "no cluster is named",
		"share create s3://b/f --link --console ftp://console.example.org":          "is not a URL such as",
		"share create s3://b/f --link --console https://":                           "is not a URL such as",
		"share create s3://b/f --link --console https://:9001":                      "is not a URL such as",
		"share create s3://b/f --link --console https://a:0":                        "is not a URL such as",
		"share create s3://b/f --link --console https://a:99999":                    "is not a URL such as",
		"share create s3://b/f --link --console https://console..example.org":       "is not a URL such as",
		"share create s3://b/f --link --console https://-a":                         "is not a URL such as",
		"share create s3://b/f --link --console https://a#":                         "is not a URL such as",
		"share create s3://b/f --link --console https://a@b":                        "is not a URL such as",
		"share create s3://b/f --link --console https://console.example.org/shared": "without a path",
		"share create s3://b/f --link --console http://console.example.org":         "only on a page with https",
		"share create s3://b/f --link --console http://192.0.2.1:9001":              "only on a page with https",
		"share create s3://b/f --link --console http://[::1]:9001/":                 "no cluster is named",
		"share create s3://b/f --link --console http://localhost:9001":              "no cluster is named",
		"share create s3://b/f --link --console https://console.example.org:8443/":  "no cluster is named",
		"share ls s3://b/f":                             "more than a bucket",
		"share revoke":                                  "SHARE_ID and s3://BUCKET",
		"share revoke x":                                "malformed",
		"share revoke v=2&b=b&p=f&a=t":                  "does not name its share",
		"share revoke x s3://b":                         "32 hexadecimal digits",
		"share revoke 0123456789abcdef0123456789abcdef": "s3://BUCKET",
	} {
		isWrongUsage(t, args, names)
	}
}
