package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// memberData has the data of the page of a member.
type memberData struct {
	members.Peer
	Leads   bool
	Self    bool             // the member is the node that made the page
	Leaving *members.Leaving // effect of the removal; nil if it was not requested
	Error   string
}

// Gone reports whether the member does not answer. Such a member can be removed only with
// force.
func (d memberData) Gone() bool { return d.State != "alive" && !d.Self }

// Lost reports whether the cluster could not write without the member.
func (d memberData) Lost() bool {
	return d.Leaving != nil && d.Leaving.Votes > 0 && d.Leaving.Answer <= d.Leaving.Votes/2
}

// memberPath returns the path of the page of a member.
func memberPath(id state.NodeID) string { return "/cluster/nodes/" + url.PathEscape(string(id)) }

// memberPage serves GET /cluster/nodes/{id}, also without a majority.
func (s *surface) memberPage(c *call) error { return s.showMember(c, http.StatusOK, nil, "") }

func (s *surface) showMember(c *call, status int, leaving *members.Leaving, problem string) error {
	all, err := s.Members.Status(c.ctx)
	if err != nil {
		return err
	}
	id := state.NodeID(c.r.PathValue("id"))
	at := slices.IndexFunc(all.Peers, func(p members.Peer) bool { return p.ID == id })
	if at < 0 {
		return state.ErrNotFound
	}
	d := memberData{Peer: all.Peers[at], Leads: all.Leader == id, Self: all.Node.ID == id, Leaving: leaving, Error: problem}
	title := d.Name
	if title == "" {
		title = short(string(id))
	}
	return s.show(c, status, "member", title, "cluster", d)
}

// leavingPage serves GET /cluster/nodes/{id}/remove. It shows the effect of the removal, and
// the form for it. To find the effect, the node reads the placement of all content.
func (s *surface) leavingPage(c *call) error {
	leaving, err := s.Members.Leaving(c.ctx, c.r.PathValue("id"), true)
	if err != nil {
		return fmt.Errorf("remove member: %w", err)
	}
	return s.showMember(c, http.StatusOK, &leaving, "")
}

// removeMember serves POST /cluster/nodes/{id}/remove.
func (s *surface) removeMember(c *call) error {
	id := state.NodeID(c.r.PathValue("id"))
	if c.r.PostForm.Get("sure") == "" {
		return web.BadRequest("the removal was not confirmed")
	}
	err := s.Members.Remove(c.ctx, id, c.r.PostForm.Get("force") != "")
	if problem := refusal(err, state.CodeConflict, state.CodeInvalid); problem != "" {
		return s.showMember(c, http.StatusConflict, nil, problem)
	}
	if err != nil {
		return fmt.Errorf("remove member: %w", err)
	}
	return c.redirect("/cluster")
}
