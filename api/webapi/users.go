package webapi

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// usageBody has the number of bytes that an account uses, and the number that it may use.
type usageBody struct {
	Used      uint64  `json:"used_bytes"`      // sum of the next three fields
	Stored    uint64  `json:"stored_bytes"`    // bytes of complete content
	Coming    uint64  `json:"coming_bytes"`    // bytes of content that is being fetched
	Records   uint64  `json:"records_bytes"`   // bytes of names, origins and metadata
	Allowance *uint64 `json:"allowance_bytes"` // bytes that are free of charge; null: no limit
	Credits   uint64  `json:"credits"`
}

// ends returns the time at which the cluster begins to delete the newest content of an account
// because its credits are used up, formatted with timeForm. It returns "" if that will not
// happen.
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

// holdingsBody has the counts of the pins, buckets, objects, keys and sessions of an account.
type holdingsBody struct {
	Pins     map[string]uint64 `json:"pins"` // by status
	Buckets  uint64            `json:"buckets"`
	Objects  uint64            `json:"objects"`  // without old versions
	Versions uint64            `json:"versions"` // old versions and delete markers
	Uploads  uint64            `json:"uploads"`  // open multipart uploads
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
	Ends string       `json:"content_ends,omitempty"` // result of surface.ends
	Has  holdingsBody `json:"has"`
}

// usage answers GET /usage with the quota, the storage and the counts of the caller's account.
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

// userBody is an account in a list.
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

// oneUser is the answer to GET /users/{id}: an account with the counts of its pins, objects, keys
// and sessions.
type oneUser struct {
	userBody
	Admin bool         `json:"admin"`
	Ends  string       `json:"content_ends,omitempty"` // result of surface.ends
	Has   holdingsBody `json:"has"`
}

// usersBody is a page of accounts.
type usersBody struct {
	Count   int        `json:"count"` // number of matching accounts on all pages
	Results []userBody `json:"results"`
	Next    string     `json:"next,omitempty"` // cursor of the next page
}

// listUsers answers GET /users, ordered by e-mail address.
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

// createUser answers POST /users. The administrator chooses the first password, which the user
// should change.
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

// user returns the account with the id in the path.
func (s *surface) user(c *call) (accounts.Holdings, error) {
	has, err := s.Accounts.Holdings(c.ctx, c.id())
	if err != nil {
		return accounts.Holdings{}, fmt.Errorf("show account: %w", err)
	}
	return has, nil
}

// getUser answers GET /users/{id} with an account and its counts, for administrators.
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

// others returns the account with the id in the path. It returns a 403 error for the account of
// the caller, so that the last administrator is not locked out by mistake.
func (s *surface) others(c *call) (accounts.Holdings, error) {
	has, err := s.user(c)
	if err == nil && has.ID == c.who.Account {
		err = forbidden("another administrator can do that to your account")
	}
	return has, err
}

// removeUser answers DELETE /users/{id}: it removes an account other than that of the caller,
// with everything that belongs to it.
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

// setAllowance answers PUT /users/{id}/allowance. The value null for bytes means no limit.
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

// setAdmin answers PUT /users/{id}/admin: it grants or removes the rights of an administrator.
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

// setDisabled answers PUT /users/{id}/disabled: it disables an account, or enables it again.
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
