package webapi

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// openLinkBody is a one-time link that can be used, without its secret.
type openLinkBody struct {
	ID      state.LinkID `json:"id"`
	Email   string       `json:"email"`
	Purpose string       `json:"purpose"`
	Expires string       `json:"expires"`
}

// openLinksBody has the links, the one that expires first at the top.
type openLinksBody struct {
	Results []openLinkBody `json:"results"`
}

// purposes are the names of purposes.
var purposes = map[state.LinkPurpose]string{state.ForSignUp: "invitation", state.ForPassword: "password", state.ForSession: "session"}

// listLinks answers GET /links.
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

// revokeLink answers DELETE /links/{id}: no node takes the link any more.
func (s *surface) revokeLink(c *call) error {
	if err := s.Accounts.RevokeLink(c.ctx, state.LinkID(c.id())); err != nil {
		return fmt.Errorf("revoke one-time link: %w", err)
	}
	return c.done()
}
