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

// memberData is the data of the page of a member.
type memberData struct {
	members.Peer
	Leads bool // the member is the leader
	Self  bool // the member is the node that renders the page
	Effects
	Error string
}

// Effects has the consequences of a change of a member that the user asked to see. A nil field
// was not requested.
type Effects struct {
	Leaving *members.Leaving   // consequences of the removal
	Plan    *members.DrainPlan // consequences of the drain
}

// Gone reports whether the member is not reachable, so that it can be removed only with force.
func (d memberData) Gone() bool { return d.State != "alive" && d.State != members.Draining && !d.Self }

// Draining reports whether the member is being drained.
func (d memberData) Draining() bool { return d.Drain != nil }

// Lost reports whether the cluster could not commit without the member.
func (d memberData) Lost() bool {
	return d.Leaving != nil && d.Leaving.Votes > 0 && d.Leaving.Answer <= d.Leaving.Votes/2
}

// memberPath returns the path of the page of a member.
func memberPath(id state.NodeID) string { return "/cluster/nodes/" + url.PathEscape(string(id)) }

// memberPage serves GET /cluster/nodes/{id}, also while the cluster has no majority.
func (s *surface) memberPage(c *call) error { return s.showMember(c, http.StatusOK, Effects{}, "") }

func (s *surface) showMember(c *call, status int, effects Effects, problem string) error {
	all, err := s.Members.Status(c.ctx)
	if err != nil {
		return err
	}
	id := state.NodeID(c.r.PathValue("id"))
	at := slices.IndexFunc(all.Peers, func(p members.Peer) bool { return p.ID == id })
	if at < 0 {
		return state.ErrNotFound
	}
	d := memberData{Peer: all.Peers[at], Leads: all.Leader == id, Self: all.Node.ID == id, Effects: effects, Error: problem}
	title := d.Name
	if title == "" {
		title = short(string(id))
	}
	return s.show(c, status, "member", title, "cluster", d)
}

// leavingPage serves GET /cluster/nodes/{id}/remove. It shows the consequences of the removal and
// the form for it. To find the consequences, the node scans the placement of all content.
func (s *surface) leavingPage(c *call) error {
	leaving, err := s.Members.Leaving(c.ctx, c.r.PathValue("id"), true)
	if err != nil {
		return fmt.Errorf("remove member: %w", err)
	}
	return s.showMember(c, http.StatusOK, Effects{Leaving: &leaving}, "")
}

// removeMember serves POST /cluster/nodes/{id}/remove: it removes a member from the cluster. The
// form must confirm the removal.
func (s *surface) removeMember(c *call) error {
	id := state.NodeID(c.r.PathValue("id"))
	if c.r.PostForm.Get("sure") == "" {
		return web.BadRequest("the removal was not confirmed")
	}
	err := s.Members.Remove(c.ctx, id, c.r.PostForm.Get("force") != "")
	if problem := refusal(err, state.CodeConflict, state.CodeInvalid); problem != "" {
		return s.showMember(c, http.StatusConflict, Effects{}, problem)
	}
	if err != nil {
		return fmt.Errorf("remove member: %w", err)
	}
	return c.redirect("/cluster")
}

// drainPage serves GET /cluster/nodes/{id}/drain. It shows the consequences of the drain and the
// form for it.
func (s *surface) drainPage(c *call) error {
	plan, err := s.Members.DrainPlan(c.ctx, c.r.PathValue("id"))
	if err != nil {
		return fmt.Errorf("drain member: %w", err)
	}
	return s.showMember(c, http.StatusOK, Effects{Plan: &plan}, "")
}

// drainMember serves POST /cluster/nodes/{id}/drain, which begins the drain. With the form field
// cancel it cancels the drain.
func (s *surface) drainMember(c *call) error {
	id := state.NodeID(c.r.PathValue("id"))
	err := s.Members.Drain(c.ctx, id, c.r.PostForm.Get("cancel") == "")
	if problem := refusal(err, state.CodeConflict, state.CodeInvalid); problem != "" {
		return s.showMember(c, http.StatusConflict, Effects{}, problem)
	}
	if err != nil {
		return fmt.Errorf("drain member: %w", err)
	}
	return c.redirect(memberPath(id))
}
