package webapi

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// usageBody has the bytes that an account stores, and the bytes that it may store.
type usageBody struct {
	Used      uint64  `json:"used_bytes"`
	Stored    uint64  `json:"stored_bytes"`  // bytes of complete content
	Coming    uint64  `json:"coming_bytes"`  // bytes of content that is being fetched
	Records   uint64  `json:"records_bytes"` // bytes of names, origins and metadata
	Allowance *uint64 `json:"allowance_bytes"`
	Credits   uint64  `json:"credits"`
}

// ends returns when the newest content of an account begins to end, in the form for bodies; "" if it
// does not.
func (s *surface) ends(account state.AccountID) (string, error) {
	end, ends, err := s.Ledger.ContentEnds(account)
	if err != nil || !ends {
		return "", err //nolint:wrapcheck // an error of the state
	}
	return timeText(end), nil
}

func bodyOfQuota(q *state.Quota) usageBody {
	u := usageBody{Used: q.Used(), Stored: q.Stored, Coming: q.Coming, Records: q.Records, Credits: q.Credits}
	if q.Allowance != state.Unlimited {
		u.Allowance = &q.Allowance
	}
	return u
}

// holdingsBody has the counts of everything that belongs to an account.
type holdingsBody struct {
	Pins     map[string]uint64 `json:"pins"` // by status
	Buckets  uint64            `json:"buckets"`
	Objects  uint64            `json:"objects"`
	Versions uint64            `json:"versions"`
	Uploads  uint64            `json:"uploads"`
	Keys     uint64            `json:"keys"`
	Sessions uint64            `json:"sessions"`
}

func bodyOfHoldings(h *accounts.Holdings) holdingsBody {
	counts := holdingsBody{map[string]uint64{}, h.Buckets, h.Objects, h.Versions, h.Uploads, h.Keys, h.Sessions}
	for status, n := range h.Pins {
		counts.Pins[status.String()] = n
	}
	return counts
}

// ownUsage is the answer to GET /usage.
type ownUsage struct {
	usageBody
	Ends string       `json:"content_ends,omitempty"` // when the newest content begins to end; empty: it does not
	Has  holdingsBody `json:"has"`
}

// usage answers GET /usage.
func (s *surface) usage(c *call) error {
	has, err := s.Accounts.Holdings(c.ctx, string(c.who.Account))
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	ends, err := s.ends(c.who.Account)
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	return c.ok(ownUsage{bodyOfQuota(&has.Quota), ends, bodyOfHoldings(&has)})
}

// userBody is an account.
type userBody struct {
	ID      state.AccountID `json:"id"`
	Email   string          `json:"email"`
	Created string          `json:"created"`
	Usage   usageBody       `json:"usage"`
	// Disabled is when the account was disabled; empty: it is not.
	Disabled string `json:"disabled,omitempty"`
}

func bodyOfUser(u *accounts.User) userBody {
	b := userBody{ID: u.ID, Email: u.Email, Created: timeText(u.Created.Time()), Usage: bodyOfQuota(&u.Quota)}
	if u.Disabled != 0 {
		b.Disabled = timeText(u.Disabled.Time())
	}
	return b
}

// oneUser is an account with the counts of what belongs to it.
type oneUser struct {
	userBody
	Admin bool         `json:"admin"`
	Ends  string       `json:"content_ends,omitempty"`
	Has   holdingsBody `json:"has"`
}

// usersBody is a page of accounts.
type usersBody struct {
	Count   int        `json:"count"` // of all matches
	Results []userBody `json:"results"`
	Next    string     `json:"next,omitempty"` // cursor of the next page
}

// listUsers answers GET /users, by e-mail address.
func (s *surface) listUsers(c *call) error {
	limit, err := c.limit()
	if err != nil {
		return err
	}
	after, err := c.cursor()
	if err != nil {
		return err
	}
	page, err := s.Accounts.Page(c.ctx, accounts.UserQuery{Part: c.query.Get("email"), After: after, Limit: limit})
	if err != nil {
		return fmt.Errorf("list accounts: %w", err)
	}
	body := usersBody{Count: page.Total, Results: []userBody{}}
	for i := range page.Users {
		body.Results = append(body.Results, bodyOfUser(&page.Users[i]))
	}
	if page.More {
		body.Next = cursorOf(page.Users[len(page.Users)-1].Email)
	}
	return c.ok(body)
}

// createUser answers POST /users. The first password is meant to be changed by the person.
func (s *surface) createUser(c *call) error {
	email, err := c.text("email")
	if err != nil {
		return err
	}
	password, err := c.text("password")
	if err != nil {
		return err
	}
	u, err := s.Accounts.CreateAccount(c.ctx, email, password)
	if err != nil {
		return fmt.Errorf("create account: %w", err)
	}
	return c.created(bodyOfUser(&u))
}

// user returns the account that the path names.
func (s *surface) user(c *call) (accounts.Holdings, error) {
	has, err := s.Accounts.Holdings(c.ctx, c.id())
	if err != nil {
		return accounts.Holdings{}, fmt.Errorf("show account: %w", err)
	}
	return has, nil
}

// getUser answers GET /users/{id}.
func (s *surface) getUser(c *call) error {
	has, err := s.user(c)
	if err != nil {
		return err
	}
	ends, err := s.ends(has.ID)
	if err != nil {
		return fmt.Errorf("show account: %w", err)
	}
	return c.ok(oneUser{bodyOfUser(&has.User), has.Admin, ends, bodyOfHoldings(&has)})
}

// others returns the account in the path, but refuses the account of the caller, so that nobody
// locks out the last administrator by mistake.
func (s *surface) others(c *call) (accounts.Holdings, error) {
	has, err := s.user(c)
	if err == nil && has.ID == c.who.Account {
		err = forbidden("another administrator can do that to your account")
	}
	return has, err
}

// removeUser answers DELETE /users/{id}.
func (s *surface) removeUser(c *call) error {
	has, err := s.others(c)
	if err != nil {
		return err
	}
	if err := s.Accounts.RemoveAccount(c.ctx, has.Email); err != nil {
		return fmt.Errorf("remove account: %w", err)
	}
	return c.done()
}

// setAllowance answers PUT /users/{id}/allowance. null means no limit.
func (s *surface) setAllowance(c *call) error {
	var bytes uint64 = state.Unlimited
	if string(c.fields["bytes"]) != "null" {
		n, given, err := c.fields.Whole("bytes")
		if err != nil {
			return err
		}
		if !given {
			return web.BadRequest("bytes is missing: a whole number, or null for no limit")
		}
		bytes = n
	}
	has, err := s.user(c)
	if err != nil {
		return err
	}
	if err := s.Accounts.SetAllowance(c.ctx, has.Email, bytes); err != nil {
		return fmt.Errorf("set allowance: %w", err)
	}
	return c.done()
}

// setAdmin answers PUT /users/{id}/admin.
func (s *surface) setAdmin(c *call) error {
	admin, given, err := c.fields.Bool("admin")
	if err != nil {
		return err
	}
	if !given {
		return web.BadRequest("admin is missing: true or false")
	}
	has, err := s.others(c)
	if err != nil {
		return err
	}
	if err := s.Accounts.SetAdmin(c.ctx, has.Email, admin); err != nil {
		return fmt.Errorf("set administrator: %w", err)
	}
	return c.done()
}

// setDisabled answers PUT /users/{id}/disabled.
func (s *surface) setDisabled(c *call) error {
	on, given, err := c.fields.Bool("disabled")
	if err != nil {
		return err
	}
	if !given {
		return web.BadRequest("disabled is missing: true or false")
	}
	has, err := s.others(c)
	if err != nil {
		return err
	}
	if err := s.Accounts.SetDisabled(c.ctx, has.Email, on); err != nil {
		return fmt.Errorf("disable account: %w", err)
	}
	return c.done()
}
