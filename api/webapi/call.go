package webapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// call is one request, with its caller and its parsed input.
type call struct {
	w http.ResponseWriter
	r *http.Request
	// ctx ends with the request, or caseTimeout after its body was read. It contains the session or
	// key of the caller, so that the state machine rejects changes if that was revoked meanwhile.
	ctx    context.Context
	long   context.Context // ctx without a time limit, for a body of any size
	who    accounts.Principal
	token  string // token of who; "" if the access is anybody
	secure bool   // the client uses HTTPS
	query  url.Values
	fields web.Fields // members of the JSON body
	held   *web.Held  // memory of the body and of the answer
}

// guarded returns the handler of an operation. It checks the caller, the rate limits, the query
// and the body, and then calls op.serve.
func (s *surface) guarded(op operation) web.Handler {
	origins := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) error {
		c := &call{w: w, r: r, ctx: r.Context(), secure: s.Limits.Scheme(r) == "https"}
		if op.access == anybody {
			return op.serve(c)
		}
		if err := s.Limits.Address(r); err != nil {
			return err
		}
		if err := s.identify(c, op.access, origins); err != nil {
			return err
		}
		if err := op.access.permits(c); err != nil {
			return err
		}
		if err := s.Limits.Account(c.who.Account, nil); err != nil {
			return err
		}
		leave, err := s.Limits.Enter(r.Context(), c.who.Account)
		if err != nil {
			return fmt.Errorf("wait for other requests of the account: %w", err)
		}
		defer leave()
		c.held = s.Limits.Hold(c.who.Account)
		defer c.held.Release()
		if err := c.read(op); err != nil {
			return err
		}
		ctx := state.WithActor(pins.Seen(objects.Seen(r.Context(), c.who.Index), c.who.Index), s.Limits.Actor(r, &c.who))
		if c.long = state.As(ctx, c.who.KeyID); c.who.Session != "" {
			c.long = state.AsSession(ctx, c.who.Session)
		}
		var cancel context.CancelFunc
		c.ctx, cancel = context.WithTimeout(c.long, caseTimeout)
		defer cancel()
		return op.serve(c)
	}
}

// identify authenticates the caller by a linearizable read, with the bearer token or else the
// session cookie. It ignores the cookie if there is an Authorization header, or if the access a
// requires a token. A change with a cookie must have the form token and must not come from a page
// of another origin, or the error is 403.
func (s *surface) identify(c *call, a access, origins *http.CrossOriginProtection) (err error) {
	_, byHeader := c.r.Header["Authorization"]
	if byHeader || a.byTokenOnly() {
		if c.token, err = web.Bearer(c.r); err != nil {
			return err
		}
	} else if cookie, err := c.r.Cookie(web.CookieName(web.SessionCookie, c.secure)); err == nil {
		c.token = cookie.Value
	}
	if c.token == "" || len(c.token) > accounts.MaxToken {
		return state.ErrUnauthorized
	}
	ctx, cancel := context.WithTimeout(c.ctx, caseTimeout)
	defer cancel()
	authenticate := s.Accounts.Authenticate
	if a.takesShares() {
		authenticate = s.Accounts.AuthenticateS3
	}
	if c.who, err = authenticate(ctx, c.token); err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if byHeader {
		return nil
	}
	reads := c.r.Method == http.MethodGet || c.r.Method == http.MethodHead
	switch {
	case c.who.Session == "": // an API key is no session
		return state.ErrUnauthorized
	case reads:
		return nil
	case origins.Check(c.r) != nil:
		return forbidden("a page of another site sent this request")
	case !web.IsFormToken(c.r.Header.Get(web.FormHeader), c.token):
		return forbidden("a change with a session cookie needs the form_token of GET %s/session in the header %s", Prefix, web.FormHeader)
	case web.JSONType(c.r.Header) != nil:
		return forbidden("a change with a session cookie has no body but JSON")
	}
	return nil
}

// forbidden returns a 403 error with a formatted detail.
func forbidden(format string, args ...any) error {
	return web.Errorf(http.StatusForbidden, "FORBIDDEN", format, args...)
}

// byTokenOnly reports whether the access requires a bearer token and ignores cookies.
func (a access) byTokenOnly() bool { return a.takesShares() || a == writesByToken }

// takesShares reports whether the token may be that of a share.
func (a access) takesShares() bool { return a == byToken || a == listsByToken }

// permits returns nil if the caller of c has the access a, and a 403 error otherwise.
func (a access) permits(c *call) error {
	who := &c.who
	switch a {
	case mayRead:
		return withScope(who, state.ScopeRead)
	case byToken:
		if !who.MayRead(c.bucket(), c.r.PathValue("key")) {
			return forbidden("the token does not read this object")
		}
		return nil
	case listsByToken:
		if !who.MayList(c.bucket(), c.r.URL.Query().Get("prefix")) {
			return forbidden("the token does not list these keys")
		}
		return nil
	case mayWrite, writesByToken:
		return withScope(who, state.ScopeWrite)
	case mayDelete:
		if who.May(state.ScopeDelete) {
			return nil
		}
		return withScope(who, state.ScopeWrite)
	case bySession, admins:
		if who.Session == "" {
			return forbidden("an API key does not open this: sign in")
		}
		if a == admins && !who.Admin {
			return forbidden("this is for administrators")
		}
		return nil
	}
	return forbidden("nobody may use this")
}

func withScope(who *accounts.Principal, scope string) error {
	if !who.May(scope) {
		return forbidden("the token does not have the scope %s", scope)
	}
	return nil
}

// read parses the query and the body of the request into c. It returns a 400 error for a
// parameter or a member that op does not have.
func (c *call) read(op operation) (err error) {
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return web.BadRequest("the query is not valid: a %% must stand before two hexadecimal digits, and a ; is written %%3B")
	}
	for _, name := range slices.Sorted(maps.Keys(c.query)) { // of several mistakes the first
		switch values := c.query[name]; {
		case !slices.Contains(op.query, name):
			return web.BadRequest("there is no parameter %q", name)
		case len(values) > 1:
			return web.BadRequest("the parameter %s is there twice", name)
		case !utf8.ValidString(values[0]):
			return web.BadRequest("the parameter %s is not UTF-8", name)
		}
	}
	if op.fields == nil {
		return nil
	}
	body, err := web.Body(c.w, c.r, web.MaxJSONBody, c.held)
	if err != nil {
		return err
	}
	if c.fields, err = web.Object("the body", body); err != nil {
		return err
	}
	return c.fields.Only(op.fields...)
}

// id returns the segment {id} of the path.
func (c *call) id() string { return c.r.PathValue("id") }

// ok answers 200 with body in JSON.
func (c *call) ok(body any) error { return web.HeldJSON(c.w, http.StatusOK, body, c.held) }

// created answers 201 with body in JSON.
func (c *call) created(body any) error { return web.HeldJSON(c.w, http.StatusCreated, body, c.held) }

// done answers 204 without a body.
func (c *call) done() error { return web.Empty(c.w, http.StatusNoContent) }

// Default and maximum of the query parameter limit.
const (
	defaultLimit = 50
	maxLimit     = state.MaxListLimit
)

// limit returns the maximum number of rows of the page that the query asks for, or a 400 error.
func (c *call) limit() (int, error) {
	if !c.query.Has("limit") {
		return defaultLimit, nil
	}
	n, err := strconv.ParseUint(c.query.Get("limit"), 10, 16)
	if err != nil || n < 1 || n > maxLimit {
		return 0, web.BadRequest("limit must be a whole number from 1 to %d", maxLimit)
	}
	return int(n), nil
}

// cursor returns the position after which the requested page begins, or "" for the first page. A
// malformed cursor is errCursor. A cursor contains no account, so a cursor from another account
// only selects a position in the caller's own rows.
func (c *call) cursor() (string, error) {
	text := c.query.Get("cursor")
	place, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || !utf8.Valid(place) || len(place) == 0 && c.query.Has("cursor") {
		return "", errCursor
	}
	return string(place), nil
}

// errCursor is the 400 error for a malformed cursor.
var errCursor = web.BadRequest("cursor is not the next of an earlier page")

// cursorOf encodes a position as a cursor, for the member next of a page.
func cursorOf(place string) string { return base64.RawURLEncoding.EncodeToString([]byte(place)) }

// timeForm is the time format of bodies: RFC 3339 with milliseconds in UTC.
const timeForm = "2006-01-02T15:04:05.000Z"

// timeText formats t with timeForm. It returns "" for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeForm)
}

// seconds returns the member name of the body, which must be a whole number of seconds from 1 to
// most. given is false if it is absent. Errors are 400.
func (c *call) seconds(name string, most time.Duration) (d time.Duration, given bool, err error) {
	n, given, err := c.fields.Whole(name)
	if err != nil || !given {
		return 0, given, err
	}
	if n < 1 || n > uint64(most/time.Second) {
		return 0, true, web.BadRequest("%s must be from 1 to %d seconds", name, most/time.Second)
	}
	return time.Duration(n) * time.Second, true, nil
}

// text returns the member name of the body, which must be a string that is not blank. Errors are
// 400.
func (c *call) text(name string) (string, error) {
	text, _, err := c.fields.Text(name)
	if err == nil && strings.TrimSpace(text) == "" {
		err = web.BadRequest("%s is missing or empty", name)
	}
	return text, err
}
