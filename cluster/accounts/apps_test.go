package accounts

import (
	"errors"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A redirect URI belongs to an app only if the app has registered exactly this URI. A query without the parameters
// key and state may follow it, and a loopback pattern matches any valid port.
func TestOnlyRegisteredRedirectsAreOfAnApp(t *testing.T) {
	w := newWorld(t)
	redirects := []string{"https://ok.example/done", "myapp://done/here", "com.example.app:/done", "http://127.0.0.1:*/done"}
	if _, err := w.AddApp(t.Context(), "backup", redirects, nil); err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{
		"https://ok.example/done", "https://ok.example/done?a=b&c=%20d", "myapp://done/here", "com.example.app:/done", "http://127.0.0.1:7/done",
		"http://127.0.0.1:65535/done?x=1",
	} {
		if app, err := w.AppOf(t.Context(), uri); err != nil || app.Name != "backup" {
			t.Errorf("%s is of %q, %v", uri, app.Name, err)
		}
	}
	for _, uri := range []string{
		"", "https://ok.example", "https://ok.example/", "https://ok.example/done/", "https://ok.example/done/more", "https://ok.example/doneX", "https://ok.example/Done",
		"https://OK.example/done", "HTTPS://ok.example/done", "http://ok.example/done", "https://ok.example:443/done", "https://ok.example:8443/done",
		"https://ok.example@evil.example/done", "https://evil.example/https://ok.example/done", "https://user@ok.example/done", "https://ok.example.evil.example/done",
		"https://evilok.example/done", "//ok.example/done", "///ok.example/done", `\\ok.example\done`, `https:\\ok.example\done`, "https://ok.example/done#x",
		"https://ok.example/done?key=mine", "https://ok.example/done?a=1&key=mine", "https://ok.example/done?state=x", "https://ok.example/done?a=%zz",
		"https://ok.example/done\r\nSet-Cookie: a=b", "https://ok.example/done\n", " https://ok.example/done", "https://ok.example/done ", "https://ok.example/%64one",
		"javascript:alert(1)", "data:text/html,x", "myapp://done", "myapp://done/here/", "MyApp://done/here", "other://done/here",
		"http://127.0.0.1/done", "http://127.0.0.1:/done", "http://127.0.0.1:0/done", "http://127.0.0.1:07/done", "http://127.0.0.1:65536/done", "http://127.0.0.1:+7/done",
		"http://127.0.0.1:*/done", "http://127.0.0.1:7@evil.example/done", "http://127.0.0.1:7/other/done", "http://localhost:7/done", "http://[::1]:7/done",
		"http://127.0.0.1:7.evil.example/done", "https://127.0.0.1:7/done",
	} {
		if app, err := w.AppOf(t.Context(), uri); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%q is of %q, %v", uri, app.Name, err)
		}
	}
	if _, err := w.AddApp(t.Context(), "backup", redirects, nil); !errors.Is(err, state.ErrExists) {
		t.Errorf("the name again: %v", err)
	}
	if err := w.RemoveApp(t.Context(), "backup"); err != nil {
		t.Error(err)
	}
	if err := w.RemoveApp(t.Context(), "backup"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("an app that is gone: %v", err)
	}
	if _, err := w.AppOf(t.Context(), "https://ok.example/done"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the URI of an app that is gone: %v", err)
	}
}

// AddApp rejects redirect URIs that are not exact or not safe, and unknown scopes, and adds no app then.
func TestRedirectsThatCannotBeRegistered(t *testing.T) {
	w := newWorld(t)
	for _, uri := range []string{
		"", "https://", "https://ok.example", "https:///done", "https://user:pw@ok.example/done", "https://OK.example/done", "HTTPS://ok.example/done",
		"https://ok.example/done?x=1", "https://ok.example/done#x", "http://ok.example/done", "http://127.0.0.1:7/done", "http://127.0.0.1:*", "http://127.0.0.1:*x/done",
		"javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "blob:x", "myapp:", "//ok.example/done", "/done", "my app://done", "myapp://done\n", "MyApp://done",
	} {
		if _, err := w.AddApp(t.Context(), "app", []string{uri}, nil); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%q: %v", uri, err)
		}
	}
	for _, scopes := range [][]string{{"everything"}} {
		if _, err := w.AddApp(t.Context(), "app", []string{"https://ok.example/done"}, scopes); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("scopes %q: %v", scopes, err)
		}
	}
	if all, err := w.Apps(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("there are %d apps, %v", len(all), err)
	}
}
