package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// missingRows is the number of rows on a page of missing copies.
const missingRows = 100

// sizeClass is a class of content sizes. The map of missing copies has one column for each class.
type sizeClass struct {
	Number int
	Short  string // such as "< 1 MiB"
	Long   string // such as "below 1 MiB"
}

// sizeClasses returns the columns of the map of missing copies.
func sizeClasses() (all []sizeClass) {
	for i := range members.SizeClasses {
		bytes, bounded := members.SizeBound(i)
		size := bytesText(bytes)
		switch {
		case !bounded:
			all = append(all, sizeClass{i, "≥ " + size, size + " and more"})
		case i == 0:
			all = append(all, sizeClass{i, "< " + size, "below " + size})
		default:
			from, _ := members.SizeBound(i - 1)
			all = append(all, sizeClass{i, "< " + size, "from " + bytesText(from) + " to below " + size})
		}
	}
	return all
}

// heat returns the strength of the colour for n missing copies, from 0 to 4. Each further digit of
// n adds one.
func heat(n uint64) int {
	if n == 0 {
		return 0
	}
	return min(len(strconv.FormatUint(n, 10)), 4)
}

// missingData has the values of the page of missing copies.
type missingData struct {
	Node  state.NodeID // empty for copies that are allocated to no node
	Name  string       // name of the node, if it is a member with a name
	Class sizeClass
	Rows  []members.MissingCopy
	Next  string // address of the next page; empty on the last page
}

// missingAddress returns the address of a page of missing copies.
func missingAddress(node state.NodeID, class int, after state.RootKey) string {
	values := url.Values{"node": {string(node)}, "size": {strconv.Itoa(class)}}
	if after != "" {
		values.Set("from", after.Cid().String())
	}
	return "/cluster/missing?" + values.Encode()
}

// missingPage serves GET /cluster/missing, which lists the copies that one cell of the map counts.
func (s *surface) missingPage(c *call) error {
	query := c.r.URL.Query()
	d := missingData{Node: state.NodeID(query.Get("node"))}
	class, err := strconv.Atoi(cmp.Or(query.Get("size"), "0"))
	if err != nil || class < 0 || class >= members.SizeClasses {
		return web.BadRequest("no class of sizes %q", query.Get("size"))
	}
	if len(d.Node) > state.MaxIDLen {
		return web.BadRequest("the id of a node has at most %d bytes", state.MaxIDLen)
	}
	var from state.RootKey
	if text := query.Get("from"); text != "" {
		at, err := cid.Decode(text)
		if err != nil {
			return web.BadRequest("%q is not a CID", text)
		}
		from = state.RootOf(at)
	}
	d.Class = sizeClasses()[class]
	status, err := s.Members.Status(c.ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	if i := slices.IndexFunc(status.Peers, func(p members.Peer) bool { return p.ID == d.Node }); i >= 0 {
		d.Name = status.Peers[i].Name
	}
	rows, next, err := s.Members.MissingOn(c.ctx, d.Node, class, from, missingRows)
	if err != nil {
		return fmt.Errorf("list missing copies: %w", err)
	}
	if d.Rows = rows; next != "" {
		d.Next = missingAddress(d.Node, class, next)
	}
	return s.show(c, http.StatusOK, "missing", "Missing copies", "cluster", d)
}
