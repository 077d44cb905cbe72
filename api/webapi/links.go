package webapi

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// openLinkBody is a one-time link that can still be used, without its secret.
type openLinkBody struct {
	ID      state.LinkID `json:"id"`
	Email   string       `json:"email"`
	Purpose string       `json:"purpose"`
	Expires string       `json:"expires"`
}

// openLinksBody has the one-time links that can still be used, ordered by expiry.
type openLinksBody struct {
	Results []openLinkBody `json:"results"`
}

// purposes has the JSON names of the purposes of one-time links.
var purposes = map[state.LinkPurpose]string{state.ForSignUp: "invitation", state.ForPassword: "password", state.ForSession: "session"}

// listLinks answers GET /links with the one-time links that can still be used.
func (s *surface) listLinks(c *call) error {
	all, err := s.Accounts.Links(c.ctx)
	if err != nil {
		return fmt.Errorf("list one-time links: %w", err)
	}
	body := openLinksBody{Results: []openLinkBody{}}
	for _, l := range all {
		body.Results = append(body.Results, openLinkBody{l.ID, l.Email, purposes[l.Purpose], timeText(l.Expires)})
	}
	return c.ok(body)
}

// revokeLink answers DELETE /links/{id}. When it has answered, no node accepts the one-time link.
func (s *surface) revokeLink(c *call) error {
	if err := s.Accounts.RevokeLink(c.ctx, state.LinkID(c.id())); err != nil {
		return fmt.Errorf("revoke one-time link: %w", err)
	}
	return c.done()
}
