package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// folderWith returns a data folder with a settings file.
func folderWith(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

const consoleURL = "[console]\nurl = \"https://console.example.org\"\n"

// OpenIDProviders returns the providers of the settings file with their secrets, also those that are in files. Names
// have defaults, and domains and addresses are in lower case. The log and Redacted show no client secret. A missing
// secret file is an error that names the file.
func TestOpenIDProvidersOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(" hidden in a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(folderWith(t, consoleURL+`
[[console.oidc]]
name = "Example & Co"
issuer = "https://id.example.org/realm"
client_id = "holdfast"
client_secret = "hidden here"
scopes = ["profile"]
domains = ["Example.org"]
admins = ["Root@example.org"]

[[console.oidc]]
issuer = "https://accounts.example.com"
client_id = "other"
client_secret_file = "`+file+`"
`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.OpenIDProviders()
	want := []OpenID{
		{
			Name: "Example & Co", Issuer: "https://id.example.org/realm", ClientID: "holdfast", ClientSecret: "hidden here",
			Scopes: []string{"profile"}, Domains: []string{"example.org"}, Admins: []string{"root@example.org"},
		},
		{Name: "accounts.example.com", Issuer: "https://accounts.example.com", ClientID: "other", ClientSecret: "hidden in a file", ClientSecretFile: file},
	}
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("the providers are %+v, %v", all, err)
	}
	if all[0].ID() != "example-co" || all[1].ID() != "accounts-example-com" {
		t.Errorf("their ids are %s and %s", all[0].ID(), all[1].ID())
	}
	if text := c.LogValue().String(); strings.Contains(text, "hidden") || !strings.Contains(text, "https://id.example.org/realm") {
		t.Errorf("the log has %s", text)
	}
	if c.Redacted().Console.OpenID[0].ClientSecret != redacted || c.Console.OpenID[0].ClientSecret != "hidden here" {
		t.Error("the secret is in what is redacted, or was taken from the settings")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := c.OpenIDProviders(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that is not there: %v", err)
	}
}

const provider = "[[console.oidc]]\nissuer = \"https://id.example.org\"\nclient_id = \"x\"\nclient_secret = \"hidden\"\n"

// oneProvider are settings with which every value of console.sign_up works.
const oneProvider = consoleURL + provider

// Load refuses sign-in settings that are wrong or do not fit together, and names the fault without a secret.
func TestSignInSettingsThatAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, file, says string }{
		{"no URL", provider, "console.url: OpenID providers need"},
		{"a path", "[console]\nurl = \"https://console.example.org/\"\n", "console.url"},
		{"another scheme", "[console]\nurl = \"ftp://console.example.org\"\n", "console.url"},
		{"a gateway with a path", "[console]\nipfs_gateway = \"https://gateway.example.org/ipfs\"\n", "console.ipfs_gateway"},
		{"no scheme", "[console]\nurl = \"console.example.org\"\n", "console.url"},
		{"open without a provider", "[console]\nsign_up = \"open\"\n", "console.sign_up: open needs a provider"},
		{"another word", "[console]\nsign_up = \"yes\"\n", "is not one of open, invited, off"},
		{"a contact that is no URI", "[console]\nsecurity_contact = \"security@example.org\"\n", "console.security_contact"},
		{"a contact of two lines", "[console]\nsecurity_contact = \"mailto:a@b\\nPolicy: x\"\n", "console.security_contact"},
		{"no table", consoleURL + "oidc = \"https://id.example.org\"\n", "begin each with [[console.oidc]]"},
		{"an unknown key", consoleURL + provider + "secret = \"hidden\"\n", `table 1: unknown key "secret"`},
		{"a number", consoleURL + provider + "name = 7\n", "table 1: name: 7 must be a string"},
		{"a secret that is no text", consoleURL + strings.Replace(provider, `"hidden"`, "31337", 1), "table 1: client_secret: it must be a string"},
		{"no issuer", consoleURL + "[[console.oidc]]\nclient_id = \"x\"\nclient_secret = \"hidden\"\n", "issuer"},
		{"an issuer that is no URL", consoleURL + strings.Replace(provider, "https://id.example.org", "id.example.org", 1), "issuer"},
		{"plain HTTP", consoleURL + strings.Replace(provider, "https://id", "http://id", 1), "console.oidc_private"},
		{"no client", consoleURL + strings.Replace(provider, `"x"`, `""`, 1), "client_id is missing"},
		{"no secret", consoleURL + strings.Replace(provider, "client_secret = \"hidden\"\n", "", 1), "give either client_secret or client_secret_file"},
		{"two secrets", consoleURL + provider + "client_secret_file = \"f\"\n", "give either client_secret or client_secret_file"},
		{"the same twice", consoleURL + provider + provider, "differs from the other names"},
		{"a domain with an at", consoleURL + provider + "domains = [\"@example.org\"]\n", "domains"},
		{"an administrator without an address", consoleURL + provider + "admins = [\"root\"]\n", "admins"},
		{"too many", consoleURL + strings.Repeat(provider, maxProviders+1), "at most 16"},
	} {
		_, err := Load(folderWith(t, tc.file), nil, nil)
		if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "31337") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if _, err := Load(t.TempDir(), []string{"HOLDFAST_CONSOLE_OIDC=x"}, nil); err == nil || !strings.Contains(err.Error(), "config.toml only") {
		t.Errorf("a variable: %v", err)
	}
	private := consoleURL + "oidc_private = true\n" + strings.Replace(provider, "https://id", "http://id", 1)
	if _, err := Load(folderWith(t, private), []string{"HOLDFAST_CONSOLE_SIGN_UP=open", "HOLDFAST_CONSOLE_URL=http://127.0.0.1:9001"}, nil); err != nil {
		t.Error(err)
	}
}
