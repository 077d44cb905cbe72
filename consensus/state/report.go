package state

import (
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// CopyReport is a node's report about its copy of one root.
type CopyReport struct {
	Root   RootKey
	Born   uint64 // Born of the root's record that the node has read; if the record is another one now, the report is ignored
	Phase  Phase
	Size   uint64 // bytes of the blocks, for Held
	Blocks uint64 // number of the blocks, for Held
	Reason string // text for people; set for GaveUp, and after a failed attempt
	// Seen is set with GaveUp: PinnedAt of the record that the node has read. Pins that were
	// added later may have origins that the node has not tried. 0 means not reported.
	Seen uint64
}

// Code encodes or decodes the report as a part of a command, without Seen.
func (v *CopyReport) Code(c *codec.Coder) {
	codec.String(c, &v.Root, MaxCIDLen)
	codec.Uint(c, &v.Born)
	codec.Uint(c, &v.Phase)
	codec.Uint(c, &v.Size)
	codec.Uint(c, &v.Blocks)
	codec.String(c, &v.Reason, MaxReasonLen)
}

// ReportCopies contains reports of one node about its copies. Apply ignores outdated reports.
type ReportCopies struct {
	Node  NodeID
	Items []CopyReport
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ReportCopies) Code(c *codec.Coder) {
	codec.String(c, &v.Node, MaxIDLen)
	codec.List(c, &v.Items, MaxReports, func(c *codec.Coder, v *CopyReport) { v.Code(c) })
	if c.More() {
		for i := range v.Items {
			codec.Uint(c, &v.Items[i].Seen)
		}
	}
}

func (v *ReportCopies) apply(tx Tx, e *entry) (Result, error) {
	for _, item := range v.Items {
		if item.Phase == 0 || item.Phase > phaseLimit {
			return Result{}, Errorf(CodeInvalid, "unknown phase %d", item.Phase)
		}
	}
	for _, item := range v.Items {
		if err := report(tx, v.Node, item, e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

func report(tx Tx, node NodeID, item CopyReport, e *entry) error {
	root, err := get[Root](tx, rootKey(item.Root))
	if err != nil || root == nil || root.Born != item.Born || root.Status == Failed {
		return err
	}
	own := root.Copy(node)
	if own == nil {
		return nil
	}
	phase := item.Phase
	if phase == GaveUp && (root.Links > 0 || own.Phase != Held && root.In(Held) > 0 || item.Seen > 0 && item.Seen < root.PinnedAt()) {
		// A node holds it, an object needs it, or a new pin was added: the node must not
		// give up.
		phase = Assigned
	}
	if own.Phase == phase && own.Reason == item.Reason {
		return nil
	}
	if err := setPhase(tx, root, own, phase, item.Reason); err != nil {
		return err
	}
	if phase == Held {
		news := root.Size != item.Size
		root.Size, root.Blocks = item.Size, item.Blocks
		if news {
			if gone, err := letGoTooLarge(tx, root, e); err != nil || gone {
				return err
			}
		}
		for i := range root.Copies {
			if c := &root.Copies[i]; c.Phase == GaveUp { // now there is a source
				if err := setPhase(tx, root, c, Assigned, c.Reason); err != nil {
					return err
				}
			}
		}
	}
	return rejudge(tx, root, e)
}

func setPhase(tx Tx, root *Root, c *Copy, phase Phase, reason string) error {
	delta := int64(0)
	if phase == Held {
		delta++
	}
	if c.Phase == Held {
		delta--
	}
	if delta != 0 {
		if err := count(tx, heldKey(c.Node), delta); err != nil {
			return err
		}
	}
	c.Phase, c.Reason = phase, reason
	return tx.Set(part(wantedOn(c.Node), root.Key), []byte{byte(phase)})
}

// Placement is a new allocation of one root to nodes.
type Placement struct {
	Root  RootKey
	Born  uint64
	Nodes []NodeID // the complete new allocation
	Held  []NodeID // the nodes that held the root when Nodes was chosen
}

// Code encodes or decodes the placement as a part of a command, without Held.
func (v *Placement) Code(c *codec.Coder) {
	codec.String(c, &v.Root, MaxCIDLen)
	codec.Uint(c, &v.Born)
	codec.Strings(c, &v.Nodes, MaxCopies, MaxIDLen)
}

// takes returns whether the placement would remove the root from a node that has become a holder
// after Nodes was chosen.
func (v *Placement) takes(root *Root) bool {
	return slices.ContainsFunc(root.Copies, func(c Copy) bool {
		return c.Phase == Held && !slices.Contains(v.Nodes, c.Node) && !slices.Contains(v.Held, c.Node)
	})
}

// PlaceRoots changes the allocation of roots, for repair. It ignores nodes that are not members,
// and placements without nodes. It also ignores a placement that would remove a node that has
// become a holder since the placement was chosen: a put may have been acknowledged because of
// that node, and the copies on the other nodes may be lost.
type PlaceRoots struct {
	Items []Placement
	// At is the log index of the state from which the placements were computed. 0 means that
	// neither At nor Held is set.
	At uint64
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *PlaceRoots) Code(c *codec.Coder) {
	codec.List(c, &v.Items, MaxReports, func(c *codec.Coder, v *Placement) { v.Code(c) })
	if v.At == 0 && (!c.Decoding() || !c.More()) {
		return
	}
	if codec.Uint(c, &v.At); v.At == 0 {
		c.Fail("placements that were chosen by no state")
	}
	for i := range v.Items {
		codec.Strings(c, &v.Items[i].Held, MaxCopies, MaxIDLen)
	}
}

func (v *PlaceRoots) apply(tx Tx, e *entry) (Result, error) {
	for _, item := range v.Items {
		root, err := get[Root](tx, rootKey(item.Root))
		if err != nil {
			return Result{}, err
		}
		if root == nil || root.Born != item.Born || root.Status == Failed || v.At > 0 && item.takes(root) {
			continue
		}
		nodes, err := onlyMembers(tx, item.Nodes)
		if err != nil {
			return Result{}, err
		}
		if len(nodes) == 0 {
			continue
		}
		e.fx.touch(root) // the nodes that lose it
		if err := allocate(tx, root, nodes); err != nil {
			return Result{}, err
		}
		if err := unmarkSurplus(tx, root); err != nil {
			return Result{}, err
		}
		if err := rejudge(tx, root, e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

// unmarkSurplus removes the mark of a root with surplus copies if the root has none any more.
func unmarkSurplus(tx Tx, root *Root) error {
	_, full, err := copiesIn(tx)
	if err != nil || len(root.Copies) > full {
		return err
	}
	return tx.Delete(surplusKey(root.Key))
}

// SettleRoots continues to change the status of pins to that of their root, for pins that did not
// fit into an earlier entry.
type SettleRoots struct{ Roots []RootKey }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SettleRoots) Code(c *codec.Coder) { codec.Strings(c, &v.Roots, MaxReports, MaxCIDLen) }

func (v *SettleRoots) apply(tx Tx, e *entry) (Result, error) {
	for _, k := range v.Roots {
		if e.settle == 0 {
			e.fx.Settling = true
			break
		}
		if err := settle(tx, k, e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}
