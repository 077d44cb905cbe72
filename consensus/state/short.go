package state

// maxCounted is the largest number of copies that ShortWithout examines for an exact count, which
// takes some tens of milliseconds.
const maxCounted = 1 << 14

// ShortWithout returns how many pinned roots have too few copies if only copies on members for
// which there returns true count. The number is exact if all other nodes together have at most
// maxCounted allocated copies. Otherwise it is an upper bound: the roots that are marked as
// short, plus all copies on these nodes.
func (v View) ShortWithout(there func(NodeID) bool) (uint64, error) {
	short, err := counter(v.r, shortCount)
	if err != nil {
		return 0, err
	}
	away, held, wanted, err := v.holdersWithout(there)
	if err != nil || len(away) == 0 {
		return short, err
	}
	if wanted > maxCounted {
		return short + held, nil
	}
	_, full, err := copiesIn(v.r)
	if err != nil {
		return 0, err
	}
	gone, seen := map[NodeID]bool{}, map[RootKey]bool{}
	for _, n := range away {
		gone[n] = true
	}
	for _, n := range away {
		err := v.WantedOn(n, "", func(k RootKey, p Phase) (bool, error) {
			if p != Held || seen[k] {
				return true, nil
			}
			seen[k] = true
			lacks, err := v.lacks(k, gone, full)
			if lacks {
				short++
			}
			return err == nil, err
		})
		if err != nil {
			return 0, err
		}
	}
	return short, nil
}

// lacks returns whether a pinned root has fewer than full complete copies, not counting those on
// the nodes in gone. It returns false for a root that is already marked as short.
func (v View) lacks(k RootKey, gone map[NodeID]bool, full int) (bool, error) {
	root, err := v.Root(k)
	if err != nil || root.Status != Pinned {
		return false, err
	}
	marked, err := v.IsShort(k)
	if err != nil || marked {
		return false, err
	}
	for _, c := range root.Copies {
		if c.Phase == Held && !gone[c.Node] {
			full--
		}
	}
	return full > 0, nil
}

// HoldersOnRecord returns the nodes with at least one recorded copy, including former members,
// whose copies remain on record until repair has replaced them.
func (v View) HoldersOnRecord() (nodes []NodeID, err error) {
	return parts[NodeID](v.r, metaKey("held/"), MaxNodes+maxFormer)
}

// maxFormer is the largest number of former members that HoldersOnRecord returns.
const maxFormer = 1024

// holdersWithout returns the nodes with recorded copies for which there returns false, how many
// copies they hold in total, and how many are allocated to them.
func (v View) holdersWithout(there func(NodeID) bool) (away []NodeID, held, wanted uint64, err error) {
	prefix := metaKey("held/")
	err = v.r.Scan(prefix, prefix.end(), false, func(k, _ []byte) (bool, error) {
		n, _, err := readPart[NodeID](k[len(prefix):])
		if err == nil && !there(n) {
			away = append(away, n)
		}
		return err == nil, err
	})
	if err != nil {
		return nil, 0, 0, err
	}
	for _, n := range away {
		h, w, err := v.CopiesOn(n)
		if err != nil {
			return nil, 0, 0, err
		}
		held, wanted = held+h, wanted+w
	}
	return away, held, wanted, nil
}
