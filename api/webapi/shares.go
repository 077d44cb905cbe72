package webapi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sharesBody is a page of the shares of an account.
type sharesBody struct {
	Results []web.Share `json:"results"`
	Next    string      `json:"next,omitempty"` // cursor of the next page
}

// listShares answers GET /shares without secrets, ordered by the creation of the bucket and then
// by id.
func (s *surface) listShares(c *call) error {
	limit, err := c.limit()
	if err != nil {
		return err
	}
	text, err := c.cursor()
	if err != nil {
		return err
	}
	after, err := placeOf(text)
	if err != nil {
		return err
	}
	page, err := s.Accounts.Shares(c.ctx, c.who.Account, c.query.Get("bucket"), after, limit)
	if err != nil {
		return fmt.Errorf("list shares: %w", err)
	}
	body := sharesBody{Results: []web.Share{}}
	for i := range page.Shares {
		body.Results = append(body.Results, web.ShareOf(&page.Shares[i], timeForm))
	}
	if page.More {
		last := page.Shares[len(page.Shares)-1].Place()
		body.Next = cursorOf(strconv.FormatUint(uint64(last.Born), 10) + "/" + string(last.ID))
	}
	return c.ok(body)
}

// placeOf parses the position in a cursor of listShares. It returns the zero SharePlace for "",
// and errCursor for malformed text.
func placeOf(text string) (state.SharePlace, error) {
	if text == "" {
		return state.SharePlace{}, nil
	}
	born, id, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(born, 10, 64)
	if err != nil || !state.ValidShareID(state.ShareID(id)) {
		return state.SharePlace{}, errCursor
	}
	return state.SharePlace{Born: state.Incarnation(n), ID: state.ShareID(id)}, nil
}

// createShare answers POST /shares with the new share and its secrets. Without a share_id in the
// body, the server chooses the id.
func (s *surface) createShare(c *call) error {
	bucket, err := c.text("bucket")
	if err != nil {
		return err
	}
	asked, err := web.ReadShare(c.fields)
	if err != nil {
		return err //nolint:wrapcheck // names the member
	}
	id, given, err := c.fields.Text("share_id")
	if err != nil {
		return err //nolint:wrapcheck // names the member
	}
	if !given {
		id = string(accounts.NewShareID())
	}
	if asked.Read && !c.who.May(state.ScopeRead) {
		return forbidden("the token does not have the scope %s, so it makes no share that reads", state.ScopeRead)
	}
	if !c.who.MayShareUntil(asked.Expires) {
		return forbidden("the API key ends at %s, so a share that it makes needs an expires_at that is not later", c.who.Expires.Time().UTC().Format(timeForm))
	}
	asked.ID, asked.Bucket = state.ShareID(id), bucket
	share, err := s.Accounts.CreateShare(c.ctx, c.who.Account, asked)
	if err != nil {
		return fmt.Errorf("create share: %w", err)
	}
	return c.created(web.ShareOf(&share, timeForm))
}

// revokeShare answers DELETE /shares/{bucket}/{id}. When it has answered, no node accepts the
// share.
func (s *surface) revokeShare(c *call) error {
	if err := s.Accounts.RevokeShare(c.ctx, c.who.Account, c.bucket(), state.ShareID(c.id())); err != nil {
		return fmt.Errorf("revoke share: %w", err)
	}
	return c.done()
}
