// Package client calls the local API of a running node through the Unix socket in the node's data
// folder. The commands of the program use it.
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

// Peer is one member of the cluster.
type Peer = admin.Peer

// Quorum states whether the cluster can commit, and which voters are missing.
type Quorum = admin.Quorum

// DrainPlan describes what the drain of a member would cause.
type DrainPlan = admin.DrainPlan

// Drain is the progress of the drain of a member.
type Drain = admin.Drain

// Leaving describes what the removal of a member would cause.
type Leaving = admin.Leaving

// User is an account of the cluster.
type User = admin.User

// UserDetail is an account with the counts of its pins, objects, keys and sessions.
type UserDetail = admin.UserDetail

// Ticket is a join ticket, with which a new node joins the cluster.
type Ticket = admin.Ticket

// Key is a new API key with its secrets.
type Key = admin.Key

// KeyRow is an API key in a list, without its secrets.
type KeyRow = admin.KeyRow

// ShareRow is a share of an account in a list, without its secrets.
type ShareRow = admin.ShareRow

// SigningKey is the key of the cluster that signs the tokens of new API keys.
type SigningKey = admin.SigningKey

// App is a registered application that may ask a user of the console for an API key.
type App = admin.App

// AuditRow is a row of the audit log.
type AuditRow = admin.AuditRow

// NewCredits describes a posting to add to the credit ledger of an account.
type NewCredits = admin.NewCredits

// Posting is a row of the credit ledger of an account.
type Posting = admin.Posting

// LedgerPage is a page of a credit ledger.
type LedgerPage = admin.LedgerPage

// PostingColumns are the column names of a ledger in CSV form.
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

// Link is a new one-time link to the console, with its secret.
type Link = admin.Link

// OpenLink is a one-time link that was neither used nor revoked and has not expired, without its
// secret.
type OpenLink = admin.OpenLink

// NewApp describes an application to register.
type NewApp = admin.NewApp

// NewKey describes an API key to create.
type NewKey = admin.NewKey

// Content is the answer to the import of a file: its CID and size.
type Content = admin.Content

// Scrubbed is the result of the verification of every stored block of the node.
type Scrubbed = admin.Scrubbed

// Collected is the result of a collection of garbage on the node.
type Collected = admin.Collected

// Kept is content that cannot be freed yet.
type Kept = admin.Kept

// Checked is the result of a check of the node.
type Checked = admin.Checked

// Difference is a difference that a check has found.
type Difference = admin.Difference

// StateHash is the hash of a node's replicated state at an index.
type StateHash = admin.StateHash

// StateCheck is the result of one comparison of the replicated state of all members.
type StateCheck = admin.StateCheck

// MinPassword is the minimum length of a password in characters.
const MinPassword = admin.MinPassword

// ErrNotRunning means that no process listens on the socket of the data folder.
var ErrNotRunning = errors.New("no node is running")

// ErrNoFolder means that the data folder does not exist, so no node can run on it.
var ErrNoFolder = errors.New("the data folder does not exist")

// Limits of calls.
const (
	callTimeout  = 60 * time.Second // for calls that transfer no file
	quickTimeout = 10 * time.Second // for calls that the node answers from memory
	dialTimeout  = 10 * time.Second
	maxAnswer    = 256 << 20 // bytes of a JSON answer; enough for a page of pins with all their metadata
)

// Client calls the local API of one node. It is safe for concurrent use.
type Client struct {
	folder string
	http   *http.Client
	quick  time.Duration // timeout of calls that the node answers from memory
}

// ErrNoAnswer means that a process listens on the socket of the data folder but does not answer
// in time. It hangs, or its machine is overloaded.
var ErrNoAnswer = errors.New("the node does not answer")

// New returns a client of the node that uses the data folder. It makes no connection yet, so it
// does not fail if no node runs.
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

// Error is an answer of the node with a status other than 2xx.
type Error struct {
	Status int    // HTTP status code
	Reason string // code for programs, such as CONFLICT
	Detail string // text for people; may be empty
	// RetryAfter is the Retry-After header of the answer; 0 without one.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	if e.Detail != "" {
		return e.Detail
	}
	return fmt.Sprintf("the node answered %d %s", e.Status, http.StatusText(e.Status))
}

// Status returns the cluster as the node sees it. The call works without a majority.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.callWithin(ctx, c.quick, http.MethodGet, "/status", nil, nil, &s)
}

// Peers returns the members of the cluster. The call works without a majority.
func (c *Client) Peers(ctx context.Context) (peers []Peer, err error) {
	return peers, c.callWithin(ctx, c.quick, http.MethodGet, "/peers", nil, nil, &peers)
}

// Quorum returns whether the cluster can commit, and which voters are missing. Without a majority
// the node takes about 2 s to answer.
func (c *Client) Quorum(ctx context.Context) (q Quorum, err error) {
	return q, c.callWithin(ctx, c.quick, http.MethodGet, "/quorum", nil, nil, &q)
}

// Leaving returns what the removal of the member with the id or name node would cause. If count
// is false, the node does not scan the roots, and Pins and Sole of the result are 0.
func (c *Client) Leaving(ctx context.Context, node string, count bool) (l Leaving, err error) {
	return l, c.call(ctx, http.MethodGet, "/peers/"+url.PathEscape(node), url.Values{"count": {strconv.FormatBool(count)}}, nil, &l)
}

// DrainPlan returns what the drain of the member with the id or name node would cause.
func (c *Client) DrainPlan(ctx context.Context, node string) (p DrainPlan, err error) {
	return p, c.call(ctx, http.MethodGet, "/peers/"+url.PathEscape(node)+"/drain", nil, nil, &p)
}

// DrainPeer begins the drain of the member with the id or name node if on is true, and cancels it
// otherwise.
func (c *Client) DrainPeer(ctx context.Context, node string, on bool) error {
	return c.call(ctx, http.MethodPut, "/peers/"+url.PathEscape(node)+"/drain", nil, admin.SetDrain{On: on}, nil)
}

// RemovePeer removes the member with the id or name node. Without force the node answers with an
// error if the member is down, or has the only copy of some content.
func (c *Client) RemovePeer(ctx context.Context, node string, force bool) error {
	return c.call(ctx, http.MethodDelete, "/peers/"+url.PathEscape(node), url.Values{"force": {strconv.FormatBool(force)}}, nil, nil)
}

// CreateTicket creates a join ticket that admits one node and expires after ttl. A ttl of 0 means
// the default of the node.
func (c *Client) CreateTicket(ctx context.Context, ttl time.Duration) (string, error) {
	var ask admin.NewTicket
	if ttl != 0 {
		ask.TTL = ttl.String()
	}
	var t admin.Ticket
	err := c.call(ctx, http.MethodPost, "/tickets", nil, ask, &t)
	return t.Ticket, err
}

// CreateUser creates an account. With an empty password nobody can sign in by password.
func (c *Client) CreateUser(ctx context.Context, email, password string) (u User, err error) {
	return u, c.call(ctx, http.MethodPost, "/users", nil, admin.NewUser{Email: email, Password: password}, &u)
}

// Users returns all accounts.
func (c *Client) Users(ctx context.Context) (users []User, err error) {
	return users, c.call(ctx, http.MethodGet, "/users", nil, nil, &users)
}

// User returns the account with the e-mail address or id who, with the counts of its pins,
// objects, keys and sessions.
func (c *Client) User(ctx context.Context, who string) (u UserDetail, err error) {
	return u, c.call(ctx, http.MethodGet, user(who), nil, nil, &u)
}

// RemoveUser removes an account and its keys. The cluster removes its pins in the background.
func (c *Client) RemoveUser(ctx context.Context, email string) error {
	return c.call(ctx, http.MethodDelete, user(email), nil, nil, nil)
}

// SetPassword changes the password of the account with an e-mail address.
func (c *Client) SetPassword(ctx context.Context, email, password string) error {
	return c.call(ctx, http.MethodPut, user(email)+"/password", nil, admin.NewPassword{Password: password}, nil)
}

// SetDisabled disables the account with an e-mail address if on is true, and enables it again
// otherwise.
func (c *Client) SetDisabled(ctx context.Context, email string, on bool) error {
	return c.call(ctx, http.MethodPut, user(email)+"/disabled", nil, admin.NewDisabled{Disabled: &on}, nil)
}

// SetQuota sets the number of bytes that an account may store without credits. math.MaxUint64
// means no limit.
func (c *Client) SetQuota(ctx context.Context, email string, bytes uint64) error {
	ask := admin.NewQuota{Unlimited: bytes == math.MaxUint64}
	if bytes != math.MaxUint64 {
		ask.AllowanceBytes = &bytes
	}
	return c.call(ctx, http.MethodPut, user(email)+"/quota", nil, ask, nil)
}

// Post adds a posting to the credit ledger of an account and returns it. If p has an id, a retry
// does not add the posting again.
func (c *Client) Post(ctx context.Context, email string, p NewCredits) (done Posting, err error) {
	return done, c.call(ctx, http.MethodPost, user(email)+"/credits", nil, p, &done)
}

// Ledger returns a page of the credit ledger of an account, the newest postings first. query may
// have the parameters cursor and limit.
func (c *Client) Ledger(ctx context.Context, email string, query url.Values) (page LedgerPage, err error) {
	return page, c.call(ctx, http.MethodGet, user(email)+"/ledger", query, nil, &page)
}

// CreateUserLink creates a one-time link that sets a new password for the account with an e-mail
// address. If there is no such account, the link is an invitation to open one.
func (c *Client) CreateUserLink(ctx context.Context, email string) (l Link, err error) {
	return l, c.call(ctx, http.MethodPost, user(email)+"/links", nil, nil, &l)
}

// CreateConsoleLink creates a one-time link that signs in to the console as the operator account.
func (c *Client) CreateConsoleLink(ctx context.Context) (l Link, err error) {
	return l, c.call(ctx, http.MethodPost, "/console/links", nil, nil, &l)
}

func user(email string) string { return "/users/" + url.PathEscape(email) }

// CreateKey creates an API key and returns it with its secrets.
func (c *Client) CreateKey(ctx context.Context, k NewKey) (key Key, err error) {
	return key, c.call(ctx, http.MethodPost, "/keys", nil, k, &key)
}

// Keys returns the keys of the account with the e-mail address user, without their secrets. An
// empty user means all keys of the cluster.
func (c *Client) Keys(ctx context.Context, user string) (keys []KeyRow, err error) {
	return keys, c.call(ctx, http.MethodGet, "/keys", as(user), nil, &keys)
}

// Key returns the key with the id jti, without its secrets. found is false if it does not exist.
// Nodes of an earlier release ignore the id and answer with all keys, so Key selects the right
// one itself.
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

// ShowKey returns the key with the id jti, with its secrets.
func (c *Client) ShowKey(ctx context.Context, jti string) (key Key, err error) {
	return key, c.call(ctx, http.MethodGet, "/keys/"+url.PathEscape(jti), nil, nil, &key)
}

// RotateSigningKey replaces the cluster key that signs the tokens of new API keys, and returns
// the new one. Existing API keys stay valid.
func (c *Client) RotateSigningKey(ctx context.Context) (key SigningKey, err error) {
	return key, c.call(ctx, http.MethodPost, "/signing-keys", nil, nil, &key)
}

// Shares returns the shares of all accounts, without their secrets.
func (c *Client) Shares(ctx context.Context) (shares []ShareRow, err error) {
	return shares, c.call(ctx, http.MethodGet, "/shares", nil, nil, &shares)
}

// RevokeKey revokes the key with the id jti. When it returns, no node accepts the key.
func (c *Client) RevokeKey(ctx context.Context, jti string) error {
	return c.call(ctx, http.MethodDelete, "/keys/"+url.PathEscape(jti), nil, nil, nil)
}

// AddApp registers an application.
func (c *Client) AddApp(ctx context.Context, v NewApp) (added App, err error) {
	return added, c.call(ctx, http.MethodPost, "/apps", nil, v, &added)
}

// Apps returns the registered applications, ordered by name.
func (c *Client) Apps(ctx context.Context) (apps []App, err error) {
	return apps, c.call(ctx, http.MethodGet, "/apps", nil, nil, &apps)
}

// RemoveApp removes an application. Its keys stay valid.
func (c *Client) RemoveApp(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/apps/"+url.PathEscape(name), nil, nil, nil)
}

// Audit returns the rows of the audit log that match query, the newest first. query has the
// parameters of GET /audit and must not be nil; an empty value does not filter. The sequence ends
// after its first error.
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

// Payments returns the payments of the paid gateway, the newest first. query must not be nil; its
// parameter limit is the number of payments per request to the node. The sequence ends after its
// first error.
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

// VerifyAudit verifies the hash chain of the whole audit log. The result reports a changed row;
// that is no error.
func (c *Client) VerifyAudit(ctx context.Context) (v AuditCheck, err error) {
	return v, c.call(ctx, http.MethodGet, "/audit/verify", nil, nil, &v)
}

// Links returns the one-time links that can still be used, ordered by expiry.
func (c *Client) Links(ctx context.Context) (links []OpenLink, err error) {
	return links, c.call(ctx, http.MethodGet, "/links", nil, nil, &links)
}

// RevokeLink revokes the one-time link with an id.
func (c *Client) RevokeLink(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/links/"+url.PathEscape(id), nil, nil, nil)
}

// Scrub verifies every stored block of the node and repairs damaged ones from other members. It
// takes as long as reading the disk, and has no time limit except ctx.
func (c *Client) Scrub(ctx context.Context) (s Scrubbed, err error) {
	resp, err := c.send(ctx, http.MethodPost, "/scrub", nil, nil)
	if err != nil {
		return s, err
	}
	return s, answered(resp, &s)
}

// Collect frees at once what the node would free later. It has no time limit except ctx.
func (c *Client) Collect(ctx context.Context) (found Collected, err error) {
	resp, err := c.send(ctx, http.MethodPost, "/gc", nil, nil)
	if err != nil {
		return found, err
	}
	return found, answered(resp, &found)
}

// Check checks the state and the blocks of the node. It takes as long as reading the state, and has
// no time limit except ctx.
func (c *Client) Check(ctx context.Context) (found Checked, err error) {
	resp, err := c.send(ctx, http.MethodPost, "/fsck", nil, nil)
	if err != nil {
		return found, err
	}
	return found, answered(resp, &found)
}

// StateHash returns the hash of the node's replicated state and the index of the newest log entry
// in it. It takes as long as reading the state, and has no time limit except ctx.
func (c *Client) StateHash(ctx context.Context) (h StateHash, err error) {
	resp, err := c.send(ctx, http.MethodGet, "/state/hash", nil, nil)
	if err != nil {
		return h, err
	}
	return h, answered(resp, &h)
}

// CheckState makes all members compare their replicated state, and waits for all reports until
// ctx ends.
func (c *Client) CheckState(ctx context.Context) (s StateCheck, err error) {
	resp, err := c.send(ctx, http.MethodPost, "/state/checks", nil, nil)
	if err != nil {
		return s, err
	}
	return s, answered(resp, &s)
}

// StateChecks returns the results of the newest comparisons of the replicated state, the oldest
// first.
func (c *Client) StateChecks(ctx context.Context) (checks []StateCheck, err error) {
	return checks, c.call(ctx, http.MethodGet, "/state/checks", nil, nil, &checks)
}

// as returns the query with which a call acts as an account. It is empty for an empty user, the
// operator.
func as(user string) url.Values {
	if user == "" {
		return nil
	}
	return url.Values{"user": {user}}
}

// call sends in as JSON unless it is nil, and decodes the answer into out unless that is nil. It
// ends after callTimeout with ErrNoAnswer.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any, with ...option) error {
	return c.callWithin(ctx, callTimeout, method, path, query, in, out, with...)
}

// callWithin works like call with another time limit.
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

// option changes an HTTP request before it is sent.
type option func(*http.Request)

// send sends a request and returns the answer, of any status. The caller closes its body. Errors:
// ErrNotRunning, ErrNoFolder, fs.ErrPermission, and those of the connection.
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

// absent returns the reason why nothing listens on the socket: ErrNoFolder or ErrNotRunning.
func (c *Client) absent() error {
	if _, err := os.Stat(c.folder); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s; name another one with --data or HOLDFAST_DATA", ErrNoFolder, c.folder)
	}
	return fmt.Errorf("%w on %s", ErrNotRunning, c.folder)
}

// answered reads and closes the body of an answer. It decodes a success into out unless that is
// nil, and returns any other answer as an *Error.
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

// errorOf returns the *Error of an answer with the body data. It parses the nested and the flat
// form of an error body.
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
