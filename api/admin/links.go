package admin

import (
	"net/http"
	"net/url"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Link is a new one-time link to the console, with its secret.
type Link struct {
	URL     string `json:"url"`
	Purpose string `json:"purpose"` // invitation, password or session
	Email   string `json:"email"`
	Expires string `json:"expires"`
}

// OpenLink is a one-time link that was neither used nor revoked and has not expired, without its
// secret.
type OpenLink struct {
	ID      string `json:"id"`
	Purpose string `json:"purpose"` // invitation, password or session
	Email   string `json:"email"`
	Expires string `json:"expires"`
}

// purposes has the JSON names of the purposes of one-time links.
var purposes = map[state.LinkPurpose]string{state.ForSignUp: "invitation", state.ForPassword: "password", state.ForSession: "session"}

// createUserLink answers POST /users/{email}/links. The link lets its user set a new password for
// the account; if there is no account, it is an invitation to open one.
func (p *operator) createUserLink(_ http.ResponseWriter, r *http.Request) (any, error) {
	base, err := p.consoleBase()
	if err != nil {
		return nil, err
	}
	l, err := p.opts.Accounts.CreateLink(r.Context(), r.PathValue("email"))
	return linkOf(base, l), err
}

// createConsoleLink answers POST /console/links: it creates a link that signs in to the console
// as the operator account, which local commands use.
func (p *operator) createConsoleLink(_ http.ResponseWriter, r *http.Request) (any, error) {
	base, err := p.consoleBase()
	if err != nil {
		return nil, err
	}
	l, err := p.opts.Accounts.CreateOperatorLink(r.Context())
	return linkOf(base, l), err
}

// links answers GET /links with the one-time links that can still be used.
func (p *operator) links(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := p.opts.Accounts.Links(r.Context())
	links := make([]OpenLink, len(all))
	for i, l := range all {
		links[i] = OpenLink{string(l.ID), purposes[l.Purpose], l.Email, l.Expires.UTC().Format(timeForm)}
	}
	return links, err
}

// revokeLink answers DELETE /links/{id}: the one-time link can no longer be used.
func (p *operator) revokeLink(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, p.opts.Accounts.RevokeLink(r.Context(), state.LinkID(r.PathValue("id")))
}

// consoleBase returns the origin with which links to the console begin: the configured URL of the
// console, or else the address of this node's listener. It returns a 400 error if the node has
// neither.
func (p *operator) consoleBase() (string, error) {
	a := p.opts.Addrs
	switch {
	case a.ConsoleURL != "":
		return a.ConsoleURL, nil
	case a.Console == "":
		return "", web.BadRequest("the console of this node is off: set console.listen or console.url")
	case a.TLS:
		return "https://" + a.Console, nil
	}
	return "http://" + a.Console, nil
}

func linkOf(base string, l accounts.Link) Link {
	return Link{
		URL: base + "/link?" + url.Values{"t": {l.Token}}.Encode(), Purpose: purposes[l.Purpose], Email: l.Email, Expires: l.Expires.UTC().Format(timeForm),
	}
}
