package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// ReadProfiles returns the profiles as AddProfile wrote them. ClientProfile overrides their fields by the
// environment. AddProfile keeps the user's text and mode 0600, and refuses a bad or used name.
func TestProfilesAreReadAsTheyWereAdded(t *testing.T) {
	home := t.TempDir()
	environ := []string{"HOME=" + home}
	path, err := ClientFile(environ)
	if err != nil || path != filepath.Join(home, ".config", "holdfast", "config.toml") {
		t.Fatal(path, err)
	}
	first := Profile{Endpoints: []string{"https://a", "https://b"}, Token: `t"o\k`, Identity: "/id"}
	second := Profile{Endpoints: []string{"http://c"}, AccessKey: "k", SecretKey: "s", IdentityCommand: "pass x", Pinning: []string{"http://pins"}, Console: "https://console"}
	for name, p := range map[string]Profile{"first": first} {
		if err := AddProfile(path, name, p); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, "# a comment of the user"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := AddProfile(path, "sec-ond", second); err != nil {
		t.Fatal(err)
	}
	all, err := ReadProfiles(path)
	if want := (Profiles{"first", map[string]Profile{"first": first, "sec-ond": second}}); err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%+v, %v", all, err)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "# a comment of the user\n") {
		t.Errorf("%s, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, name := range []string{"first", "", "a b", "a.b", "ä"} {
		if err := AddProfile(path, name, second); !errors.Is(err, ErrProfile) {
			t.Errorf("%q: %v", name, err)
		}
	}
	used := second // with the address of its web API
	used.Web = []string{second.Console}
	for _, tc := range []struct {
		name    string
		environ []string
		want    Profile
	}{
		{"", nil, first},
		{"sec-ond", nil, used},
		{"", []string{"HOLDFAST_PROFILE=sec-ond"}, used},
		{ // the other addresses of the profile are those of another cluster
			"sec-ond",
			[]string{"HOLDFAST_ENDPOINT=http://x"},
			Profile{Endpoints: []string{"http://x"}, AccessKey: "k", SecretKey: "s", IdentityCommand: "pass x", Console: "https://console"},
		},
		{"first", []string{"HOLDFAST_PROFILE=sec-ond"}, first},
		{
			"",
			[]string{"HOLDFAST_ENDPOINT=http://x, http://y", "HOLDFAST_ACCESS_KEY=k", "HOLDFAST_SECRET_KEY=s", "HOLDFAST_IDENTITY=/other"},
			Profile{Endpoints: []string{"http://x", "http://y"}, AccessKey: "k", SecretKey: "s", Identity: "/other"},
		},
		{
			"sec-ond",
			[]string{"HOLDFAST_TOKEN=t", "AWS_ENDPOINT_URL=http://z", "AWS_ACCESS_KEY_ID=q", "HOLDFAST_IDENTITY_COMMAND=agent"},
			Profile{Endpoints: []string{"http://c"}, Pinning: used.Pinning, Token: "t", IdentityCommand: "agent", Console: "https://console", Web: used.Web},
		},
	} {
		if p, err := ClientProfile(tc.name, append(tc.environ, environ...)); err != nil || !reflect.DeepEqual(p, tc.want) {
			t.Errorf("%q with %q: %+v, %v", tc.name, tc.environ, p, err)
		}
	}
	if _, err := ClientProfile("none", environ); !errors.Is(err, ErrProfile) {
		t.Error(err)
	}
	aws := []string{"AWS_ENDPOINT_URL=http://z", "AWS_ACCESS_KEY_ID=q", "AWS_SECRET_ACCESS_KEY=r", "HOME=" + t.TempDir()}
	if p, err := ClientProfile("", aws); err != nil || !reflect.DeepEqual(p, Profile{Endpoints: []string{"http://z"}, AccessKey: "q", SecretKey: "r"}) {
		t.Errorf("%+v, %v", p, err)
	}
}

// ReadProfiles refuses a profile file with an unknown key or a wrong type, and one that others can read. The error
// says what to mend.
func TestBadFilesOfProfilesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	for text, word := range map[string]string{
		"default = 1":                          "default",
		"profiles = 1":                         "profiles",
		"other = 1":                            `"other"`,
		"[profiles]\nx = 1":                    "profiles.x",
		"[profiles.x]\nendpoint = 'a'":         `"profiles.x.endpoint"`,
		"[profiles.x]\nendpoints = 'a'":        "list",
		"[profiles.x]\ntoken = 5":              "profiles.x.token",
		"[profiles.x]\ntoken = 'a'\ntoken = 5": "token",
		"[profiles":                            ":1",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadProfiles(path); err == nil || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadProfiles(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("mode 0640: %v", err)
	}
}
