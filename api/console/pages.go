package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

//go:embed pages parts static
var files embed.FS

// Pages has the parsed templates and the static files of the console.
type Pages struct {
	byName map[string]*template.Template
	assets map[string]asset
	// version is a hash of all static files. It is part of their paths, so that browsers can cache
	// them without limit, and a new release has new paths.
	version string
}

// LoadPages parses the templates and files that are embedded in the program.
func LoadPages() (*Pages, error) {
	p := &Pages{byName: map[string]*template.Template{}, assets: map[string]asset{}}
	hash := sha256.New()
	static, err := fs.ReadDir(files, "static")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	for _, f := range static {
		a, err := readAsset(f.Name())
		if err != nil {
			return nil, err
		}
		p.assets[f.Name()] = a
		body := a.body.bytes
		_, _ = fmt.Fprintf(hash, "%s %d\n", f.Name(), len(body))
		hash.Write(body)
	}
	p.version = hex.EncodeToString(hash.Sum(nil)[:6])
	base, err := template.New("").Funcs(functions(p.version)).ParseFS(files, "parts/*.html")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	all, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	for _, name := range all {
		t, err := template.Must(base.Clone()).ParseFS(files, name)
		if err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
		p.byName[strings.TrimSuffix(path.Base(name), ".html")] = t
	}
	return p, nil
}

// view is the data that every template gets.
type view struct {
	Title   string
	Section string     // current entry of the navigation; empty if there is none
	Email   string     // e-mail address of the account; empty without a session
	Admin   bool       // the account is an administrator
	Token   string     // form token
	Colours string     // colour scheme that the user chose; empty for that of the system
	Ends    *time.Time // result of surface.contentEnds for the account
	Seen    string     // fingerprint of the account, see events; empty if the page is not updated while it is open
	Data    any        // data of the particular page, such as pinData
}

// show answers with the page of the template name. section is the entry of the navigation.
func (s *surface) show(c *call, status int, name, title, section string, data any) error {
	c.visit()
	ends, err := s.contentEnds(c.who.Account)
	if err != nil {
		return err
	}
	return s.render(c.w, status, name, view{
		Title: title, Section: section, Email: c.who.Email, Admin: c.who.Admin, Token: c.formToken(), Colours: coloursOf(c.r, c.secure), Ends: ends, Seen: c.seen, Data: data,
	})
}

// render answers with the page of the template name. If the template fails, it returns an error
// and writes nothing.
func (s *surface) render(w http.ResponseWriter, status int, name string, v view) error {
	var body bytes.Buffer
	t, ok := s.Pages.byName[name]
	if !ok {
		return fmt.Errorf("console: no page %q", name)
	}
	if err := t.ExecuteTemplate(&body, "layout", v); err != nil {
		return fmt.Errorf("console: page %s: %w", name, err)
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	if _, err := w.Write(body.Bytes()); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// trouble is the data of an error page.
type trouble struct {
	Status int
	What   string // what happened
	Detail string
	Do     string // what the user can do about it
}

// errorData has the data of an error page.
type errorData struct {
	trouble
	Next link // the page to go on with
}

// failed answers an error with an error page, or with plain text if a script sent the request.
func (s *surface) failed(w http.ResponseWriter, r *http.Request, err error) error {
	t := troubleOf(err)
	if t.Status == http.StatusServiceUnavailable || t.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "5")
	}
	var own *web.Error
	if errors.As(err, &own) && len(own.Answer.Allow) > 0 {
		w.Header().Set("Allow", strings.Join(own.Answer.Allow, ", "))
	}
	if r.Header.Get(formHeader) != "" { // a script shows the reason beside the file
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(t.Status)
		_, err := io.WriteString(w, t.Detail)
		return err //nolint:wrapcheck // the client has left
	}
	if t.Detail == web.NoSuchRoute().Answer.Detail {
		t.Detail = "" // the title says it
	}
	v := view{Colours: coloursOf(r, s.Limits.Scheme(r) == "https")}
	// Who has a session keeps the navigation, by the state of this node: an error costs the
	// cluster nothing, since no rate bounds how often there is one.
	if s.Accounts != nil {
		c := &call{w: w, r: r, secure: s.Limits.Scheme(r) == "https"}
		c.session = c.sessionToken()
		if who, err := s.Accounts.Recognize(c.session); err == nil && who.Session != "" {
			v.Email, v.Admin, v.Token = who.Email, who.Admin, c.formToken()
		}
	}
	next := link{"To the overview", "/"}
	if own != nil && own.Answer.Reason == reasonSignIn {
		if v.Email != "" {
			t.What, t.Do = "The sign-in failed", "You are still signed in as "+v.Email+"."
		} else {
			next = link{"To the sign-in page", "/sign-in"}
		}
	}
	v.Title, v.Data = t.What, errorData{t, next}
	return s.render(w, t.Status, "error", v)
}

// refusal returns the text of err, for display next to a form, if err has one of the given codes,
// which mean that the entered values are wrong. It returns "" for other errors.
func refusal(err error, codes ...state.Code) string {
	var known *state.Error
	if errors.As(err, &known) && slices.Contains(codes, known.Code) {
		return known.Detail
	}
	return ""
}

// oneOfMany returns the texts about the failure of one of several changes. Because such a request
// is answered with a normal page, it logs an internal error itself.
func (s *surface) oneOfMany(c *call, err error) trouble {
	t := troubleOf(err)
	if t.Status == http.StatusInternalServerError {
		s.Logger.ErrorContext(c.r.Context(), "one of several changes failed", "request", c.w.Header().Get(web.RequestIDHeader), "err", err)
	}
	return t
}

// troubleOf converts any error to the data of an error page.
func troubleOf(err error) trouble {
	var own *web.Error
	var known *state.Error
	switch {
	case errors.As(err, &own):
		t := trouble{Status: own.Answer.Status, What: http.StatusText(own.Answer.Status), Detail: own.Answer.Detail}
		switch {
		case own.Answer.Reason == reasonSignIn:
			t.What, t.Do = "You were not signed in", "Try again, or sign in with a password or at another provider."
		case t.Status == http.StatusNotFound:
			t.What, t.Do = "There is no such page", "The address may be mistyped, or what it showed was deleted."
		case t.Status == http.StatusTooManyRequests:
			t.What, t.Do = "Too many requests", "Wait a moment and try again."
		}
		return t
	case isAbsent(err):
		// The same for an absent id and for one of another account.
		return trouble{http.StatusNotFound, "Not found", "Nothing of this account has that id.", "It may have been deleted."}
	case errors.Is(err, state.ErrLimited):
		return trouble{http.StatusTooManyRequests, "Too many requests", err.Error(), "Wait a minute and try again."}
	case errors.Is(err, state.ErrUnavailable):
		return trouble{http.StatusServiceUnavailable, "The cluster does not answer", err.Error(), "Most of its nodes have to be reachable. Try again in a moment; nothing that was stored is lost."}
	case errors.Is(err, state.ErrUnauthorized):
		return trouble{http.StatusForbidden, "Not allowed", "this session may not do that", "Sign in again."}
	case errors.As(err, &known) && known.Code == state.CodeInvalid:
		return trouble{http.StatusBadRequest, "That cannot be done", known.Detail, "Go back and change what you entered."}
	case errors.As(err, &known) && known.Code == state.CodeForbidden:
		return trouble{http.StatusForbidden, "Not allowed", known.Detail, ""}
	case errors.As(err, &known):
		return trouble{http.StatusConflict, "That cannot be done", known.Detail, ""}
	case errors.Is(err, context.DeadlineExceeded):
		return trouble{http.StatusServiceUnavailable, "The node was too slow", "the time for the answer was over", "Look whether it was done, and try again in a moment if not."}
	}
	return trouble{http.StatusInternalServerError, "Something went wrong", "the node could not answer; its log has the reason beside this request's id", "Try again; if it stays, tell the operator."}
}

// robots serves /robots.txt, which excludes all search engines (RFC 9309).
func robots(c *call) error {
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := c.w.Write([]byte("User-agent: *\nDisallow: /\n"))
	return err
}

// securityExpiry is the time from now to the expiry in security.txt. RFC 9116, section 2.5.5,
// recommends less than a year.
const securityExpiry = 90 * 24 * time.Hour

// securityText serves /.well-known/security.txt (RFC 9116) if a contact is configured.
func (s *surface) securityText(c *call) error {
	if s.SecurityContact == "" {
		return web.NoSuchRoute()
	}
	expires := time.Now().UTC().Truncate(24 * time.Hour).Add(securityExpiry)
	text := "Contact: " + s.SecurityContact + "\nExpires: " + expires.Format(time.RFC3339) + "\n"
	if s.URL != "" {
		text += "Canonical: " + s.URL + "/.well-known/security.txt\n"
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := io.WriteString(c.w, text)
	return err //nolint:wrapcheck // the client has left
}

// status serves a page that tells everybody whether the node can serve, and nothing else.
func (s *surface) status(c *call) error {
	if s.Health.Ready(c.ctx) != nil {
		return s.render(c.w, http.StatusServiceUnavailable, "status", view{Title: "Not available"})
	}
	return s.render(c.w, http.StatusOK, "status", view{Title: "Available", Data: true})
}
