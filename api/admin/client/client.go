// Package client calls the local API of a running node, through the Unix socket in its
// data folder. The program's commands use it.
//
// Imports: std, api/admin for the bodies.
// Never:   use cases, consensus, storage, peer, settings, terminals.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin"
)

// Status is the cluster as the answering node sees it.
type Status = admin.Status

// Peer is one member.
type Peer = admin.Peer

// Quorum says whether the cluster can write, and who votes.
type Quorum = admin.Quorum

// DrainPlan is a member and the effect of its drain.
type DrainPlan = admin.DrainPlan

// Drain tells how far the drain of a member is.
type Drain = admin.Drain

// Leaving is a member and the effect of its removal.
type Leaving = admin.Leaving

// User is an account.
type User = admin.User

// UserDetail is an account with the counts of its pins, objects, keys and sessions.
type UserDetail = admin.UserDetail

// Ticket is a join ticket.
type Ticket = admin.Ticket

// Key is a new API key with its secrets.
type Key = admin.Key

// KeyRow is an API key in a list, without its secrets.
type KeyRow = admin.KeyRow

// ShareRow is a share of an account in a list, without its secrets.
type ShareRow = admin.ShareRow

// SigningKey is the key of the cluster that signs new API keys.
type SigningKey = admin.SigningKey

// App is an app that may ask people for an API key.
type App = admin.App

// AuditRow is a row of the audit log.
type AuditRow = admin.AuditRow

// NewCredits requests a posting.
type NewCredits = admin.NewCredits

// Posting is a row of the ledger of an account.
type Posting = admin.Posting

// LedgerPage is a page of a ledger.
type LedgerPage = admin.LedgerPage

// PostingColumns are the names of the columns of a ledger as comma-separated values.
var PostingColumns = admin.PostingColumns

// AuditActor describes who asked for a change, and from where.
type AuditActor = admin.AuditActor

// Payment is a payment of the paid gateway.
type Payment = admin.Payment

// PaymentPage is a page of payments.
type PaymentPage = admin.PaymentPage

// AuditPage is a page of the audit log.
type AuditPage = admin.AuditPage

// AuditCheck is the result of a verification of the audit log.
type AuditCheck = admin.AuditCheck

// Link is a one-time link to the console.
type Link = admin.Link

// OpenLink is a one-time link that can be used, without its secret.
type OpenLink = admin.OpenLink

// NewApp registers an app.
type NewApp = admin.NewApp

// NewKey asks for an API key.
type NewKey = admin.NewKey

// Content is an imported file.
type Content = admin.Content

// Scrubbed is the result of verifying every stored block of the node.
type Scrubbed = admin.Scrubbed

// StateHash is the hash of a node's replicated state at an index.
type StateHash = admin.StateHash

// StateCheck is one comparison of the replicated state on all members.
type StateCheck = admin.StateCheck

// MinPassword is the minimum length of a password in characters.
const MinPassword = admin.MinPassword

// ErrNotRunning means that no node uses the data folder now.
var ErrNotRunning = errors.New("no node is running")

// ErrNoFolder means that the data folder does not exist, so no node can run on it.
var ErrNoFolder = errors.New("the data folder does not exist")

// Bounds of calls.
const (
	callTimeout  = 60 * time.Second // calls without a file
	quickTimeout = 10 * time.Second // calls that the node answers from memory
	dialTimeout  = 10 * time.Second
	maxAnswer    = 256 << 20 // bytes; a page of pins with all their metadata
)

// Client speaks to one node. It is safe for use by many goroutines.
type Client struct {
	folder string
	http   *http.Client
	quick  time.Duration // timeout of calls that the node answers from memory
}

// ErrNoAnswer means that a process runs on the data folder but does not answer: it hangs,
// or its machine is overloaded.
var ErrNoAnswer = errors.New("the node does not answer")

// New returns a client of the node that runs on a data folder. It does not check whether a
// node runs.
func New(folder string) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &Client{folder: folder, quick: quickTimeout, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			socket, release, err := admin.Socket(folder)
			if err != nil {
				return nil, err
			}
			defer release()
			return dialer.DialContext(ctx, "unix", socket)
		},
		MaxIdleConns: 4,
	}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is an unsuccessful answer of the node, with the node's text.
type Error struct {
	Status int // HTTP status code
	Reason string
	Detail string
	// RetryAfter is the wait that the node asked for; 0: none.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	if e.Detail != "" {
		return e.Detail
	}
	return fmt.Sprintf("the node answered %d %s", e.Status, http.StatusText(e.Status))
}

// Status returns the cluster as the node sees it.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.callWithin(ctx, c.quick, http.MethodGet, "/status", nil, nil, &s)
}

// Peers returns the members.
func (c *Client) Peers(ctx context.Context) (peers []Peer, err error) {
	return peers, c.callWithin(ctx, c.quick, http.MethodGet, "/peers", nil, nil, &peers)
}

// Quorum returns whether the cluster can write and who votes. Without a majority the node
// takes about 2 s to answer.
func (c *Client) Quorum(ctx context.Context) (q Quorum, err error) {
	return q, c.callWithin(ctx, c.quick, http.MethodGet, "/quorum", nil, nil, &q)
}

// Leaving returns the effect of removing a member; node is an id or a name. Without count
// the node does not scan the roots, and Pins and Sole are 0.
func (c *Client) Leaving(ctx context.Context, node string, count bool) (l Leaving, err error) {
	return l, c.call(ctx, http.MethodGet, "/peers/"+url.PathEscape(node), url.Values{"count": {strconv.FormatBool(count)}}, nil, &l)
}

// DrainPlan returns the effect of the drain of a member; node is an id or a name.
func (c *Client) DrainPlan(ctx context.Context, node string) (p DrainPlan, err error) {
	return p, c.call(ctx, http.MethodGet, "/peers/"+url.PathEscape(node)+"/drain", nil, nil, &p)
}

// DrainPeer begins the drain of a member if on is true, and ends it otherwise; node is an id or a
// name.
func (c *Client) DrainPeer(ctx context.Context, node string, on bool) error {
	return c.call(ctx, http.MethodPut, "/peers/"+url.PathEscape(node)+"/drain", nil, admin.SetDrain{On: on}, nil)
}

// RemovePeer ends the membership of a node, given by id or name. It needs force if the
// node is dead or holds the only copy of some content.
func (c *Client) RemovePeer(ctx context.Context, node string, force bool) error {
	return c.call(ctx, http.MethodDelete, "/peers/"+url.PathEscape(node), url.Values{"force": {strconv.FormatBool(force)}}, nil, nil)
}

// CreateTicket returns a ticket that admits one node and expires after ttl; 0 is the
// node's default.
func (c *Client) CreateTicket(ctx context.Context, ttl time.Duration) (string, error) {
	var ask admin.NewTicket
	if ttl != 0 {
		ask.TTL = ttl.String()
	}
	var t admin.Ticket
	err := c.call(ctx, http.MethodPost, "/tickets", nil, ask, &t)
	return t.Ticket, err
}

// CreateUser adds an account; an empty password means none.
func (c *Client) CreateUser(ctx context.Context, email, password string) (u User, err error) {
	return u, c.call(ctx, http.MethodPost, "/users", nil, admin.NewUser{Email: email, Password: password}, &u)
}

// Users returns all accounts.
func (c *Client) Users(ctx context.Context) (users []User, err error) {
	return users, c.call(ctx, http.MethodGet, "/users", nil, nil, &users)
}

// User returns an account, by e-mail or id, with what belongs to it.
func (c *Client) User(ctx context.Context, who string) (u UserDetail, err error) {
	return u, c.call(ctx, http.MethodGet, user(who), nil, nil, &u)
}

// RemoveUser removes an account and its keys. The cluster removes its pins afterwards.
func (c *Client) RemoveUser(ctx context.Context, email string) error {
	return c.call(ctx, http.MethodDelete, user(email), nil, nil, nil)
}

// SetPassword changes an account's password.
func (c *Client) SetPassword(ctx context.Context, email, password string) error {
	return c.call(ctx, http.MethodPut, user(email)+"/password", nil, admin.NewPassword{Password: password}, nil)
}

// SetDisabled disables the account with an e-mail address if on is true, and enables it again
// otherwise.
func (c *Client) SetDisabled(ctx context.Context, email string, on bool) error {
	return c.call(ctx, http.MethodPut, user(email)+"/disabled", nil, admin.NewDisabled{Disabled: &on}, nil)
}

// SetQuota sets the number of bytes that an account may store without credits;
// math.MaxUint64 is no limit.
func (c *Client) SetQuota(ctx context.Context, email string, bytes uint64) error {
	ask := admin.NewQuota{Unlimited: bytes == math.MaxUint64}
	if bytes != math.MaxUint64 {
		ask.AllowanceBytes = &bytes
	}
	return c.call(ctx, http.MethodPut, user(email)+"/quota", nil, ask, nil)
}

// Post adds a posting to the ledger of an account and returns it. The cluster makes a posting that
// has an id only once.
func (c *Client) Post(ctx context.Context, email string, p NewCredits) (done Posting, err error) {
	return done, c.call(ctx, http.MethodPost, user(email)+"/credits", nil, p, &done)
}

// Ledger returns a page of the ledger of an account, the newest postings first. The parameters are
// cursor and limit.
func (c *Client) Ledger(ctx context.Context, email string, query url.Values) (page LedgerPage, err error) {
	return page, c.call(ctx, http.MethodGet, user(email)+"/ledger", query, nil, &page)
}

// CreateUserLink makes a one-time link that sets a new password of the account with an e-mail
// address, or invites a person who has none.
func (c *Client) CreateUserLink(ctx context.Context, email string) (l Link, err error) {
	return l, c.call(ctx, http.MethodPost, user(email)+"/links", nil, nil, &l)
}

// CreateConsoleLink makes a one-time link that signs in as the account of local commands.
func (c *Client) CreateConsoleLink(ctx context.Context) (l Link, err error) {
	return l, c.call(ctx, http.MethodPost, "/console/links", nil, nil, &l)
}

func user(email string) string { return "/users/" + url.PathEscape(email) }

// CreateKey adds an API key and returns it with its secrets.
func (c *Client) CreateKey(ctx context.Context, k NewKey) (key Key, err error) {
	return key, c.call(ctx, http.MethodPost, "/keys", nil, k, &key)
}

// Keys returns the keys of a user, or all keys for an empty user.
func (c *Client) Keys(ctx context.Context, user string) (keys []KeyRow, err error) {
	return keys, c.call(ctx, http.MethodGet, "/keys", as(user), nil, &keys)
}

// Key returns the key with an id, without its secrets; found reports whether there is one. A node
// of an earlier release answers with all keys, from which Key picks this one.
func (c *Client) Key(ctx context.Context, jti string) (key KeyRow, found bool, err error) {
	var keys []KeyRow
	if err := c.call(ctx, http.MethodGet, "/keys", url.Values{"id": {jti}}, nil, &keys); err != nil {
		return KeyRow{}, false, err
	}
	if i := slices.IndexFunc(keys, func(k KeyRow) bool { return k.ID == jti }); i >= 0 {
		return keys[i], true, nil
	}
	return KeyRow{}, false, nil
}

// ShowKey returns a key with its secrets.
func (c *Client) ShowKey(ctx context.Context, jti string) (key Key, err error) {
	return key, c.call(ctx, http.MethodGet, "/keys/"+url.PathEscape(jti), nil, nil, &key)
}

// RotateSigningKey makes a new key of the cluster sign all later API keys.
func (c *Client) RotateSigningKey(ctx context.Context) (key SigningKey, err error) {
	return key, c.call(ctx, http.MethodPost, "/signing-keys", nil, nil, &key)
}

// Shares returns the shares of all accounts, without their secrets.
func (c *Client) Shares(ctx context.Context) (shares []ShareRow, err error) {
	return shares, c.call(ctx, http.MethodGet, "/shares", nil, nil, &shares)
}

// RevokeKey ends a key on every node.
func (c *Client) RevokeKey(ctx context.Context, jti string) error {
	return c.call(ctx, http.MethodDelete, "/keys/"+url.PathEscape(jti), nil, nil, nil)
}

// AddApp registers an app.
func (c *Client) AddApp(ctx context.Context, v NewApp) (added App, err error) {
	return added, c.call(ctx, http.MethodPost, "/apps", nil, v, &added)
}

// Apps returns the registered apps by name.
func (c *Client) Apps(ctx context.Context) (apps []App, err error) {
	return apps, c.call(ctx, http.MethodGet, "/apps", nil, nil, &apps)
}

// RemoveApp removes an app; its keys stay valid.
func (c *Client) RemoveApp(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/apps/"+url.PathEscape(name), nil, nil, nil)
}

// Audit returns the rows of the audit log that a query asks for, the newest first. The parameters
// are those of GET /audit; an empty value filters nothing.
func (c *Client) Audit(ctx context.Context, query url.Values) iter.Seq2[AuditRow, error] {
	return func(yield func(AuditRow, error) bool) {
		query = maps.Clone(query)
		for {
			var page AuditPage
			if err := c.call(ctx, http.MethodGet, "/audit", query, nil, &page); err != nil {
				yield(AuditRow{}, err)
				return
			}
			for _, row := range page.Results {
				if !yield(row, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.Set("cursor", page.Next)
		}
	}
}

// Payments returns the payments of the paid gateway, the newest first. query has limit, the number of
// payments of one request.
func (c *Client) Payments(ctx context.Context, query url.Values) iter.Seq2[Payment, error] {
	return func(yield func(Payment, error) bool) {
		query = maps.Clone(query)
		for {
			var page PaymentPage
			if err := c.call(ctx, http.MethodGet, "/payments", query, nil, &page); err != nil {
				yield(Payment{}, err)
				return
			}
			for _, row := range page.Results {
				if !yield(row, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.Set("cursor", page.Next)
		}
	}
}

// VerifyAudit walks through the whole audit log. A broken row is no error.
func (c *Client) VerifyAudit(ctx context.Context) (v AuditCheck, err error) {
	return v, c.call(ctx, http.MethodGet, "/audit/verify", nil, nil, &v)
}

// Links returns the one-time links that can be used, by the time at which they expire.
func (c *Client) Links(ctx context.Context) (links []OpenLink, err error) {
	return links, c.call(ctx, http.MethodGet, "/links", nil, nil, &links)
}

// RevokeLink ends a one-time link.
func (c *Client) RevokeLink(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/links/"+url.PathEscape(id), nil, nil, nil)
}

// AddContent imports the content of r as a file. The node keeps its blocks for a limited
// time; pin the CID to keep them.
func (c *Client) AddContent(ctx context.Context, r io.Reader) (added Content, err error) {
	resp, err := c.send(ctx, http.MethodPost, "/content", nil, io.NopCloser(r))
	if err != nil {
		return added, err
	}
	return added, answered(resp, &added)
}

// OpenContent returns the bytes and the size of the file that a CID names. It reads with
// the rights of user; an empty user is the operator, who may read everything. A file that
// breaks off ends in io.ErrUnexpectedEOF, never in io.EOF. The caller closes it.
func (c *Client) OpenContent(ctx context.Context, user, cid string) (body io.ReadCloser, size int64, err error) {
	resp, err := c.send(ctx, http.MethodGet, "/content/"+url.PathEscape(cid), as(user), nil)
	if err != nil {
		return nil, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, 0, answered(resp, nil)
	}
	return resp.Body, resp.ContentLength, nil
}

// Scrub verifies every stored block of the node now, and has damaged ones fetched again.
// It takes as long as reading the disk; only ctx limits it.
func (c *Client) Scrub(ctx context.Context) (s Scrubbed, err error) {
	resp, err := c.send(ctx, http.MethodPost, "/scrub", nil, nil)
	if err != nil {
		return s, err
	}
	return s, answered(resp, &s)
}

// StateHash returns the hash of the node's replicated state and the index of its newest
// entry. At one index all nodes have the same hash. It takes as long as reading the state;
// only ctx limits it.
func (c *Client) StateHash(ctx context.Context) (h StateHash, err error) {
	resp, err := c.send(ctx, http.MethodGet, "/state/hash", nil, nil)
	if err != nil {
		return h, err
	}
	return h, answered(resp, &h)
}

// CheckState makes all members compare their replicated state and waits for all reports;
// only ctx limits it.
func (c *Client) CheckState(ctx context.Context) (s StateCheck, err error) {
	resp, err := c.send(ctx, http.MethodPost, "/state/checks", nil, nil)
	if err != nil {
		return s, err
	}
	return s, answered(resp, &s)
}

// StateChecks returns the newest comparisons of the state, oldest first.
func (c *Client) StateChecks(ctx context.Context) (checks []StateCheck, err error) {
	return checks, c.call(ctx, http.MethodGet, "/state/checks", nil, nil, &checks)
}

// as returns the query that names an account; it is empty for the account of the operator.
func as(user string) url.Values {
	if user == "" {
		return nil
	}
	return url.Values{"user": {user}}
}

// call sends in as JSON, unless it is nil, and decodes the answer into out.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any, with ...option) error {
	return c.callWithin(ctx, callTimeout, method, path, query, in, out, with...)
}

// callWithin does the work of call within a time limit. When the limit has passed, the error is
// ErrNoAnswer.
func (c *Client) callWithin(ctx context.Context, limit time.Duration, method, path string, query url.Values, in, out any, with ...option) error {
	bound, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.exchange(bound, method, path, query, in, out, with...)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w: nothing within %v from the process that runs on %s", ErrNoAnswer, limit, c.folder)
	}
	return err
}

func (c *Client) exchange(ctx context.Context, method, path string, query url.Values, in, out any, with ...option) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(data)
	}
	resp, err := c.send(ctx, method, path, query, body, with...)
	if err != nil {
		return err
	}
	return answered(resp, out)
}

// option changes a request before it is sent.
type option func(*http.Request)

// send returns the answer to a request; the caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body io.Reader, with ...option) (*http.Response, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://holdfast"+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	for _, change := range with {
		change(req)
	}
	resp, err := c.http.Do(req)
	switch {
	case err == nil:
		return resp, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, c.absent()
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the node on %s belongs to another user: %w", c.folder,
			&fs.PathError{Op: "connect", Path: filepath.Join(c.folder, admin.SocketName), Err: syscall.EACCES})
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%s is no folder: name the data folder of a node with --data or HOLDFAST_DATA", c.folder)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // the text of *url.Error repeats the socket's address
	}
	return nil, fmt.Errorf("ask the node on %s: %w", c.folder, err)
}

// absent returns the reason why no process answers on the data folder.
func (c *Client) absent() error {
	if _, err := os.Stat(c.folder); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s; name another one with --data or HOLDFAST_DATA", ErrNoFolder, c.folder)
	}
	return fmt.Errorf("%w on %s", ErrNotRunning, c.folder)
}

// answered reads and closes an answer. It decodes a success into out, unless out is nil,
// and returns any other answer as an *Error.
func answered(resp *http.Response, out any) error {
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return errorOf(resp, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	return nil
}

// errorOf parses both forms of an error body.
func errorOf(resp *http.Response, data []byte) error {
	var body struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	e := &Error{Status: resp.StatusCode, RetryAfter: RetryAfter(resp.Header, time.Now())}
	if json.Unmarshal(data, &body) != nil {
		return e
	}
	var inner struct{ Reason, Details string }
	if json.Unmarshal(body.Error, &inner) == nil {
		e.Reason, e.Detail = inner.Reason, inner.Details
	} else if json.Unmarshal(body.Error, &e.Reason) == nil {
		e.Detail = body.Message
	}
	return e
}

// RetryAfter parses the Retry-After header: seconds or a date (RFC 9110, 10.2.3). It returns 0 if
// the header is absent or malformed, or if its date is not after now.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
