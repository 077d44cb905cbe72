package accounts

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// loopbackAnyPort is the start of the redirect URI of a program that runs on the user's own
// machine. Such a program does not know in advance on which port it will listen (RFC 8252,
// section 7.3), so any port matches.
const loopbackAnyPort = "http://127.0.0.1:*"

// App is a registered app, a third-party program that may ask a signed-in person for an API key.
// See state.App.
type App struct {
	Name      string
	Redirects []string
	Scope     []string
	Created   time.Time
}

// AddApp registers an app, which may then ask signed-in people for an API key. Without scopes,
// the app asks for reading and writing. A redirect URI must have a path, and no query and no
// fragment. Its scheme must be https, a private scheme of the app (RFC 8252, section 7.1), or it
// must begin with http://127.0.0.1:*.
//
// Errors: state.ErrInvalid, state.ErrExists, state.ErrUnavailable.
func (a *Accounts) AddApp(ctx context.Context, name string, redirects, scopes []string) (App, error) {
	for _, r := range redirects {
		if err := checkRedirect(r); err != nil {
			return App{}, err
		}
	}
	if len(scopes) == 0 {
		scopes = []string{state.ScopeRead, state.ScopeWrite}
	}
	scopes, err := normalScopes(scopes)
	if err != nil {
		return App{}, err
	}
	record := state.App{Name: strings.TrimSpace(name), Redirects: redirects, Scope: scopes, Created: state.MillisOf(a.now())}
	if _, err := a.state.Propose(ctx, &state.AddApp{App: record}); err != nil {
		return App{}, fmt.Errorf("add app: %w", err)
	}
	a.log.InfoContext(ctx, "app registered", "app", record.Name, "redirects", redirects)
	return appOf(&record), nil
}

// RemoveApp removes a registered app. API keys that users have given to the app remain valid.
// Errors: state.ErrNotFound, state.ErrUnavailable.
func (a *Accounts) RemoveApp(ctx context.Context, name string) error {
	if _, err := a.state.Propose(ctx, &state.RemoveApp{Name: name}); err != nil {
		return fmt.Errorf("remove app: %w", err)
	}
	a.log.InfoContext(ctx, "app removed", "app", name)
	return nil
}

// Apps returns the registered apps, sorted by name. Errors: state.ErrUnavailable.
func (a *Accounts) Apps(ctx context.Context) ([]App, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("list apps: %w", err)
	}
	defer release()
	records, err := view.Apps()
	if err != nil {
		return nil, fmt.Errorf("list apps: %w", err)
	}
	all := make([]App, len(records))
	for i := range records {
		all[i] = appOf(&records[i])
	}
	return all, nil
}

// AppOf returns the app that has registered a redirect URI, or state.ErrNotFound. It compares
// scheme, host, port and path byte for byte. The given URI may have a query, but no user
// information, no fragment, and no characters that browsers interpret differently.
func (a *Accounts) AppOf(ctx context.Context, redirect string) (App, error) {
	base, query, _ := strings.Cut(redirect, "?")
	if len(redirect) > 2*state.MaxRedirectSize || strings.ContainsFunc(redirect, strangeInURI) {
		return App{}, state.ErrNotFound
	}
	if values, err := url.ParseQuery(query); err != nil || values.Has("key") || values.Has("state") {
		return App{}, state.ErrNotFound
	}
	all, err := a.Apps(ctx)
	if err != nil {
		return App{}, err
	}
	for _, app := range all {
		if slices.ContainsFunc(app.Redirects, func(registered string) bool { return isRedirect(registered, base) }) {
			return app, nil
		}
	}
	return App{}, state.ErrNotFound
}

// isRedirect returns whether base, a URI without its query, matches a registered one.
func isRedirect(registered, base string) bool {
	path, any := strings.CutPrefix(registered, loopbackAnyPort)
	if !any {
		return base == registered
	}
	rest, ok := strings.CutPrefix(base, strings.TrimSuffix(loopbackAnyPort, "*"))
	port, ok2 := strings.CutSuffix(rest, path)
	n, err := strconv.ParseUint(port, 10, 16)
	return ok && ok2 && err == nil && n > 0 && port == strconv.FormatUint(n, 10)
}

// strangeInURI returns true for a character that must not occur in a redirect URI: anything but
// visible ASCII, and characters that browsers and libraries interpret differently.
func strangeInURI(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\\\"<>^`{|}#", r)
}

// forbiddenSchemes are the schemes that an app must not register, because a browser opens or
// executes them itself.
var forbiddenSchemes = []string{"http", "javascript", "data", "vbscript", "file", "blob", "about", "filesystem", "ws", "wss", "ftp", "mailto", "tel", "view-source", "intent"}

// checkRedirect returns state.ErrInvalid if a redirect URI cannot be registered.
func checkRedirect(uri string) error {
	bad := func(why string) error {
		return state.Errorf(state.CodeInvalid, "%q cannot be a redirect URI: %s", uri, why)
	}
	if strings.ContainsFunc(uri, strangeInURI) || strings.Contains(uri, "?") {
		return bad("it has a query, a fragment or a character that URIs do not have")
	}
	if path, any := strings.CutPrefix(uri, loopbackAnyPort); any {
		if !strings.HasPrefix(path, "/") {
			return bad("a path follows " + loopbackAnyPort)
		}
		return nil
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return bad("it is no URI")
	case u.User != nil:
		return bad("it names a user")
	case u.Scheme != strings.ToLower(u.Scheme) || !strings.HasPrefix(uri, u.Scheme+":"):
		return bad("its scheme is written in lower case")
	case u.Scheme == "https":
		if u.Hostname() == "" || u.Host != strings.ToLower(u.Host) || !strings.HasPrefix(cmp.Or(u.Path, "-"), "/") {
			return bad("it has a host in lower case and a path")
		}
	case u.Scheme == "" || slices.Contains(forbiddenSchemes, u.Scheme):
		return bad("it is https, a scheme of the app's own, or " + loopbackAnyPort + "/path")
	case u.Opaque == "" && u.Host == "" && u.Path == "":
		return bad("something follows its scheme")
	}
	return nil
}

func appOf(v *state.App) App {
	return App{Name: v.Name, Redirects: v.Redirects, Scope: v.Scope, Created: v.Created.Time()}
}
