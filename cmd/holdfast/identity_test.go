package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// `keygen` writes an identity of mode 0600 that opens with its passphrase, and does not replace a file. Commands
// refuse an identity with a wrong passphrase, that others can read, or that is missing, and say what to do.
func TestAnIdentityIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	file, passphrase := filepath.Join(dir, "identity"), filepath.Join(dir, "passphrase")
	secret := func(text string) {
		if err := os.WriteFile(passphrase, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret("short\n")
	if got := call(t, &fakeNode{}, "", "keygen", file, "--passphrase-file", passphrase); got.code != exitFailure || !strings.Contains(got.errOut, "shorter than 8") {
		t.Errorf("%+v", got)
	}
	if got := call(t, &fakeNode{}, "", "keygen", file); got.code != exitFailure || !strings.Contains(got.errOut, "--passphrase-file") {
		t.Errorf("%+v", got)
	}
	secret("correct horse\r\nsecond line\n")
	made := call(t, &fakeNode{}, "", "keygen", file, "--passphrase-file", passphrase)
	if made.code != exitOK {
		t.Fatalf("%+v", made)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	id, err := seal.OpenIdentity(data, []byte("correct horse"))
	if err != nil || id.Public().String()+"\n" != made.out {
		t.Errorf("%v, printed %q", err, made.out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if got := call(t, &fakeNode{}, "", "keygen", file, "--passphrase-file", passphrase); got.code != exitFailure || !strings.Contains(got.errOut, "not replaced") {
		t.Errorf("%+v", got)
	}
	list := []string{"ls", "s3://bucket", "--endpoint", "http://127.0.0.1:1", "--token", "t", "--encrypt", "--identity", file, "--passphrase-file", passphrase}
	secret("wrong horse")
	if got := call(t, &fakeNode{}, "", list...); got.code != exitFailure || !strings.Contains(got.errOut, "passphrase is wrong") {
		t.Errorf("%+v", got)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := call(t, &fakeNode{}, "", list...); got.code != exitFailure || !strings.Contains(got.errOut, "chmod 600") {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := call(t, &fakeNode{}, "", list...); got.code != exitFailure || !strings.Contains(got.errOut, "keygen makes one") {
		t.Errorf("%+v", got)
	}
}

// TestAnAgentGivesThePassphrase promises that HOLDFAST_IDENTITY_COMMAND prints the passphrase of the identity. It may
// print the identity after it. The error of the command names its failure.
func TestAnAgentGivesThePassphrase(t *testing.T) {
	dir := t.TempDir()
	file, passphrase := filepath.Join(dir, "identity"), filepath.Join(dir, "passphrase")
	if err := os.WriteFile(passphrase, []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := call(t, &fakeNode{}, "", "keygen", file, "--passphrase-file", passphrase); got.code != exitOK {
		t.Fatalf("%+v", got)
	}
	for _, tc := range []struct {
		environ []string
		names   string
	}{
		{[]string{"HOLDFAST_IDENTITY_COMMAND=echo correct horse", "HOLDFAST_IDENTITY=" + file}, "connection refused"},
		{[]string{"HOLDFAST_IDENTITY_COMMAND=cat " + passphrase + " " + file}, "connection refused"},
		{[]string{"HOLDFAST_IDENTITY_COMMAND=echo no", "HOLDFAST_IDENTITY=" + file}, "passphrase is wrong"},
		{[]string{"HOLDFAST_IDENTITY_COMMAND=exit 3", "HOLDFAST_IDENTITY=" + file}, "exit status 3"},
		{[]string{"HOLDFAST_IDENTITY_COMMAND=echo x"}, "holdfast keygen"},
	} {
		a, w := testApp(t, &fakeNode{}, "")
		a.environ = append(a.environ, append(tc.environ, "HOME="+t.TempDir())...)
		code := a.execute(t.Context(), []string{"rm", "s3://bucket/key", "--encrypt", "--endpoint", "http://127.0.0.1:1", "--token", "t"})
		if code == exitOK || !strings.Contains(w.errs.String(), tc.names) {
			t.Errorf("%q: code %d, %q", tc.environ, code, w.errs.String())
		}
	}
}

// `profile add` stores a profile with the token from standard input, and `profile ls` lists it without the token.
// `profile add` refuses a name that is used and a missing token, and commands use the first profile as the default.
func TestProfilesAreAddedAndListed(t *testing.T) {
	home := t.TempDir()
	run := func(stdin string, args ...string) outcome {
		a, w := testApp(t, &fakeNode{}, stdin)
		a.environ = append(a.environ, "HOME="+home)
		code := a.execute(t.Context(), args)
		return outcome{code, w.out.String(), w.errs.String()}
	}
	if got := run("", "profile", "add", "home", "--endpoint", "http://a"); got.code != exitFailure || !strings.Contains(got.errOut, "no token") {
		t.Errorf("%+v", got)
	}
	if got := run("secret\n", "profile", "add", "home", "--endpoint", "http://127.0.0.1:1"); got.code != exitOK || !strings.Contains(got.out, home) {
		t.Errorf("%+v", got)
	}
	if got := run("secret\n", "profile", "add", "home", "--endpoint", "http://b"); got.code != exitUsage || !strings.Contains(got.errOut, "already") {
		t.Errorf("%+v", got)
	}
	got := run("", "profile", "ls")
	if got.code != exitOK || got.out != "* home  http://127.0.0.1:1\n" {
		t.Errorf("%+v", got)
	}
	if got := run("", "profile", "ls", "--json"); got.code != exitOK || !strings.Contains(got.out, `"default": true`) || strings.Contains(got.out, "secret") {
		t.Errorf("%+v", got)
	}
	if got := run("", "ls"); got.code != exitFailure || !strings.Contains(got.errOut, "127.0.0.1:1") {
		t.Errorf("the default is not used: %+v", got)
	}
}
