package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// missingRows is the number of rows on a page of missing copies.
const missingRows = 100

// column is a column of the table of missing copies: a class of sizes or of ages.
type column struct {
	members.Class
	Short string // heading, such as "< 1 MiB"
	Long  string // the same in words, such as "below 1 MiB"
}

// columns returns the columns of the table of missing copies: by age if ages is true, else by
// size.
func columns(ages bool) (all []column) {
	classes, bound := members.SizeClasses, func(i int) (short, long string, bounded bool) {
		bytes, bounded := members.SizeBound(i)
		return bytesText(bytes), bytesText(bytes), bounded
	}
	if ages {
		classes, bound = members.AgeClasses, func(i int) (short, long string, bounded bool) {
			age, bounded := members.AgeBound(i)
			if age < time.Hour {
				return fmt.Sprintf("%d min", age/time.Minute), span(age), bounded
			}
			return fmt.Sprintf("%d h", age/time.Hour), span(age), bounded
		}
	}
	for i := range classes {
		c := column{Class: members.Class{OfAges: ages, Number: i}}
		short, long, bounded := bound(i)
		switch {
		case !bounded:
			c.Short, c.Long = "≥ "+short, long+" and more"
		case i == 0:
			c.Short, c.Long = "< "+short, "below "+long
		default:
			_, from, _ := bound(i - 1)
			c.Short, c.Long = "< "+short, "from "+from+" to below "+long
		}
		all = append(all, c)
	}
	return all
}

// heat returns the intensity of the colour of a cell with n missing copies: 0 for none, else the
// number of digits of n, at most 4.
func heat(n uint64) int {
	if n == 0 {
		return 0
	}
	return min(len(strconv.FormatUint(n, 10)), 4)
}

// missingData is the data of the page /cluster/missing.
type missingData struct {
	Node  state.NodeID // empty: the copies are not allocated to any node
	Name  string       // name of the node, or empty
	Class column
	Rows  []members.MissingCopy
	Next  string // address of the next page; empty on the last page
}

// missingAddress returns the path and query of the page with the missing copies of a node and
// class that begins after a root.
func missingAddress(node state.NodeID, class members.Class, after state.RootKey) string {
	of := "size"
	if class.OfAges {
		of = "age"
	}
	values := url.Values{"node": {string(node)}, of: {strconv.Itoa(class.Number)}}
	if after != "" {
		values.Set("from", after.Cid().String())
	}
	return "/cluster/missing?" + values.Encode()
}

// missingPage serves GET /cluster/missing: a list of contents whose copy on one node is missing.
// Of these it lists one class of sizes or ages, which is one cell of the table of missing copies.
func (s *surface) missingPage(c *call) error {
	query := c.r.URL.Query()
	d := missingData{Node: state.NodeID(query.Get("node"))}
	class := members.Class{OfAges: query.Has("age")}
	text := query.Get("size")
	if class.OfAges {
		text = query.Get("age")
	}
	var err error
	if class.Number, err = strconv.Atoi(cmp.Or(text, "0")); err != nil || !class.Known() {
		return web.BadRequest("there is no class %q of sizes or ages", text)
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
	d.Class = columns(class.OfAges)[class.Number]
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
