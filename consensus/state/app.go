package state

import (
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of apps.
const (
	MaxApps         = 1000 // apps of a cluster
	MaxAppName      = 64   // bytes
	MaxRedirects    = 16   // of an app
	MaxRedirectSize = 1024 // bytes of a redirect URI
)

// App is a third-party program that may ask a signed-in person for an API key.
type App struct {
	Name      string
	Redirects []string // URIs to which the key may be sent, compared byte for byte
	Scope     []string // scopes of its keys
	Created   Millis
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *App) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Name, MaxAppName)
	codec.Strings(c, &v.Redirects, MaxRedirects, MaxRedirectSize)
	codec.Strings(c, &v.Scope, 8, MaxIDLen)
	codec.Int(c, &v.Created)
}

func (v *App) check() error {
	switch {
	case v.Name == "" || len(v.Name) > MaxAppName || strings.ContainsFunc(v.Name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return Errorf(CodeInvalid, "the name of an app has 1 to %d bytes of printable text", MaxAppName)
	case len(v.Redirects) == 0 || len(v.Redirects) > MaxRedirects:
		return Errorf(CodeInvalid, "an app has 1 to %d redirect URIs", MaxRedirects)
	}
	for _, r := range v.Redirects {
		if r == "" || len(r) > MaxRedirectSize {
			return Errorf(CodeInvalid, "a redirect URI has 1 to %d bytes", MaxRedirectSize)
		}
	}
	return checkScope(v.Scope)
}

// AddApp registers an app. The command needs feature level 6.
//
// Errors: ErrInvalid; ErrExists if an app with that name exists; ErrTooLarge if the cluster has
// MaxApps apps.
type AddApp struct{ App App }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *AddApp) Code(c *codec.Coder) { v.App.Code(c) }

func (v *AddApp) apply(tx Tx, _ *entry) (Result, error) {
	if err := v.App.check(); err != nil {
		return Result{}, err
	}
	k := appKey(v.App.Name)
	if there, err := has(tx, k); err != nil {
		return Result{}, err
	} else if there {
		return Result{}, Errorf(CodeExists, "an app %s exists already", v.App.Name)
	}
	all, err := scanAll[App](tx, table(tableApp))
	if err != nil {
		return Result{}, err
	}
	if len(all) >= MaxApps {
		return Result{}, Errorf(CodeTooLarge, "there are %d apps, which is the most", MaxApps)
	}
	return Result{}, put(tx, k, &v.App)
}

// RemoveApp removes an app. API keys that people have given to the app remain valid. The command
// needs feature level 6.
//
// Errors: ErrNotFound.
type RemoveApp struct{ Name string }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *RemoveApp) Code(c *codec.Coder) { codec.String(c, &v.Name, MaxAppName) }

func (v *RemoveApp) apply(tx Tx, _ *entry) (Result, error) {
	k := appKey(v.Name)
	if there, err := has(tx, k); err != nil {
		return Result{}, err
	} else if !there {
		return Result{}, Errorf(CodeNotFound, "there is no app %s", v.Name)
	}
	return Result{}, tx.Delete(k)
}

// Apps returns all apps by name.
func (v View) Apps() ([]App, error) { return scanAll[App](v.r, table(tableApp)) }

func appKey(name string) key { return table(tableApp).ordered(name) }
