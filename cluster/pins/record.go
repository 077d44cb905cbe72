package pins

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// MaxDelegates is the largest number of delegates of a record, as in the Pinning Service API
// 1.0.0.
const MaxDelegates = 20

// Keys of Record.Info that the Pinning Service API defines.
const (
	InfoDetails = "status_details"
	InfoSize    = "dag_size"
)

// Record is a pin with what clients may know about its content.
type Record struct {
	state.Pin
	// Delegates are multiaddrs of the nodes to which the content is allocated, without those that
	// are down if others are alive. Each ends in /p2p/ and a peer id. There are 1 to MaxDelegates
	// different ones; the addresses that most clients can dial come first.
	Delegates []string
	// Info is further information for clients. The keys are the Info constants. It may be nil.
	Info map[string]string
}

// content is what a describer has read about one root.
type content struct {
	root      *state.Root // nil if the state has no such root
	delegates []string
	info      map[state.Status]map[string]string // info of pins without origins
}

// describer makes records of pins from one view of the state. If several pins of a list need the
// same data, it reads that only once.
type describer struct {
	view      state.View
	nodes     Nodes
	refused   func(origin string) string
	down      map[state.NodeID]bool // members that are down; nil if they are not determined yet
	byText    map[string]*content
	byRoot    map[state.RootKey]*content
	byNodes   map[string][]string // delegates by the joined ids of the allocated nodes
	addresses map[state.NodeID][]string
	anyone    []string // delegates of content without an allocation
}

func newDescriber(view state.View, nodes Nodes, refused func(origin string) string) *describer {
	return &describer{
		view: view, nodes: nodes, refused: refused, byText: map[string]*content{}, byRoot: map[state.RootKey]*content{},
		byNodes: map[string][]string{}, addresses: map[state.NodeID][]string{},
	}
}

// record returns the record of a pin.
func (d *describer) record(pin state.Pin) (Record, error) {
	r, err := d.describe(pin)
	r.Info = withEnd(r.Info, pin.Until)
	return r, err
}

// describe is record without the end of the pin in Info.
func (d *describer) describe(pin state.Pin) (Record, error) {
	c, err := d.content(pin.CID)
	if err != nil {
		return Record{}, fmt.Errorf("describe pin %s: %w", pin.ID, err)
	}
	r := Record{Pin: pin, Delegates: c.delegates}
	if pin.Status == state.Failed { // holds on to nothing, and its reason is its own
		r.Info = map[string]string{InfoDetails: pin.Detail}
		if pin.Detail == "" {
			r.Info[InfoDetails] = "the content could not be fetched"
		}
		return r, nil
	}
	if len(pin.Origins) > 0 { // a reason may have remarks about them
		r.Info = infoOf(&pin, c.root)
		if pin.Status != state.Pinned && r.Info != nil && c.root.In(state.Held) == 0 {
			r.Info[InfoDetails] += d.refusals(pin.Origins, r.Info[InfoDetails])
		}
		return r, nil
	}
	info, made := c.info[pin.Status]
	if !made {
		info = infoOf(&pin, c.root)
		c.info[pin.Status] = info
	}
	r.Info = info
	return r, nil
}

// refusals returns a text about the origins that no node dials, with the reasons, or "". It
// leaves out the origins about which the text said contains a reason already.
func (d *describer) refusals(origins []string, said string) string {
	var b strings.Builder
	for i, o := range origins {
		if strings.Contains(said, o+": ") || slices.Contains(origins[:i], o) {
			continue
		}
		if why := d.refused(o); why != "" {
			b.WriteString("; " + o + ": " + why)
		}
	}
	return b.String()
}

// content returns what the state has about the root of the CID text.
func (d *describer) content(text string) (*content, error) {
	if c, ok := d.byText[text]; ok {
		return c, nil
	}
	parsed, err := cid.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("stored cid %q: %w", text, err)
	}
	key := state.RootOf(parsed)
	c, ok := d.byRoot[key]
	if !ok {
		if c, err = d.read(key); err != nil {
			return nil, err
		}
		d.byRoot[key] = c
	}
	d.byText[text] = c
	return c, nil
}

func (d *describer) read(key state.RootKey) (*content, error) {
	c := &content{info: make(map[state.Status]map[string]string, 1)}
	root, err := d.view.Root(key)
	switch {
	case errors.Is(err, state.ErrNotFound):
		c.delegates, err = d.memberAddrs()
	case err == nil:
		c.root = &root
		c.delegates, err = d.delegates(&root)
	}
	if err != nil {
		return nil, fmt.Errorf("root %s: %w", key, err)
	}
	return c, nil
}

// newContent changes c as if its root had just been created and allocated to nodes.
func (d *describer) newContent(c *content, nodes []state.NodeID) (err error) {
	fresh := state.Root{Key: c.root.Key, Status: state.Queued}
	for _, n := range nodes {
		fresh.Copies = append(fresh.Copies, state.Copy{Node: n, Phase: state.Assigned})
	}
	c.root = &fresh
	c.delegates, err = d.delegates(&fresh)
	return err
}

// delegates returns addresses of the nodes to which a root is allocated, or of any members if
// these nodes have all left.
func (d *describer) delegates(root *state.Root) ([]string, error) {
	joined := make([]byte, 0, 64*len(root.Copies))
	for _, c := range root.Copies {
		joined = append(append(joined, c.Node...), 0)
	}
	if known, ok := d.byNodes[string(joined)]; ok {
		return known, nil
	}
	all, err := d.reachable(root.Nodes())
	if err != nil {
		return nil, err
	}
	if len(all) == 0 { // all allocated nodes have left, and repair will follow
		if all, err = d.memberAddrs(); err != nil {
			return nil, err
		}
	}
	d.byNodes[string(joined)] = all
	return all, nil
}

// memberAddrs returns addresses of any members. They are the delegates of content that is
// allocated to no node, because the API requires at least one delegate.
func (d *describer) memberAddrs() ([]string, error) {
	if d.anyone != nil {
		return d.anyone, nil
	}
	members, err := d.view.Nodes()
	if err != nil {
		return nil, err
	}
	ids := make([]state.NodeID, len(members))
	for i := range members {
		ids[i] = members[i].ID
	}
	d.anyone, err = d.reachable(ids)
	return d.anyone, err
}

// reachable returns addresses of nodes, merged by interleave. If some of the nodes are alive, it
// leaves out those that are down, because clients dial one address after the other and wait for
// each.
func (d *describer) reachable(ids []state.NodeID) ([]string, error) {
	var up, down [][]string
	for _, id := range ids {
		addrs, err := d.addressesOf(id)
		switch {
		case err != nil:
			return nil, err
		case d.isDown(id):
			down = append(down, addrs)
		default:
			up = append(up, addrs)
		}
	}
	if all := interleave(up); len(all) > 0 {
		return all, nil
	}
	return interleave(down), nil
}

func (d *describer) isDown(id state.NodeID) bool {
	if d.down == nil {
		d.down = map[state.NodeID]bool{}
		for _, n := range d.nodes.Candidates() {
			d.down[n.ID] = !n.Alive
		}
	}
	return d.down[id]
}

// addressesOf returns the addresses of a node for clients, as the function public selects and orders
// them. It returns nil if the node has left the cluster.
func (d *describer) addressesOf(id state.NodeID) ([]string, error) {
	if addrs, ok := d.addresses[id]; ok {
		return addrs, nil
	}
	var addrs []string
	n, err := d.view.Node(id)
	switch {
	case err == nil:
		addrs = public(&n)
	case !errors.Is(err, state.ErrNotFound):
		return nil, err
	}
	d.addresses[id] = addrs
	return addrs, nil
}

// infoOf returns Record.Info for a pin that has not failed. root may be nil if the pin was
// deleted right after it was accepted; then infoOf returns nil.
func infoOf(pin *state.Pin, root *state.Root) map[string]string {
	if root == nil {
		return nil
	}
	info := make(map[string]string, 2)
	if text := progress(pin, root); text != "" {
		info[InfoDetails] = text
	}
	if root.Size > 0 || root.In(state.Held) > 0 {
		info[InfoSize] = strconv.FormatUint(root.Size, 10)
	}
	if len(info) == 0 {
		return nil
	}
	return info
}

// progress returns a text about the copies of a root, or "" if all copies are complete.
func progress(pin *state.Pin, root *state.Root) string {
	s, copies, held, fetching := pin.Status, len(root.Copies), root.In(state.Held), root.In(state.Fetching)
	var text string
	switch {
	case s == state.Pinned && held == copies:
		return ""
	case s == state.Pinned:
		text = fmt.Sprintf("kept on %d of %s", held, nodes(copies))
	case held > 0 && fetching > 0:
		text = fmt.Sprintf("kept on %d of %s, fetching on %d", held, nodes(copies), fetching)
	case held > 0:
		text = fmt.Sprintf("kept on %d of %s", held, nodes(copies))
	case fetching > 0:
		text = fmt.Sprintf("fetching on %d of %s", fetching, nodes(copies))
	default:
		text = "waiting for " + nodes(copies)
	}
	return text + lastReason(root, pin.Origins)
}

// lastReason returns a text with the error of the first incomplete copy that has one, or "". The
// record does not contain which copy failed last. The text has no remarks about origins other
// than the given ones.
func lastReason(root *state.Root, origins []string) string {
	for _, c := range root.Copies {
		if c.Phase != state.Held && c.Reason != "" {
			return "; last error of node " + c.Node.Short() + ": " + state.OwnReason(c.Reason, origins)
		}
	}
	return ""
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return strconv.Itoa(n) + " nodes"
}
