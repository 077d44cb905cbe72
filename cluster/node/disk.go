package node

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-ipfs/holdfast/cluster/gossip"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/raftlog"
	"github.com/holdfast-ipfs/holdfast/storage/volume"
	"github.com/prometheus/client_golang/prometheus"
)

// openVolumes starts the watch over the free space of the data folder's disks. Each of its
// subfolders may be on a disk of its own.
func (n *Node) openVolumes() error {
	var folders []volume.Folder
	for _, name := range []string{raftDir, stateDir, blocksDir} {
		path := n.folder.file(name)
		if err := durable.MkdirAll(path, 0o700); err != nil {
			return fmt.Errorf("data folder: %w", err)
		}
		folders = append(folders, volume.Folder{Name: name, Path: path})
	}
	// It is on the disk of the data folder, and nothing depends on its being there.
	folders = append(folders, volume.Folder{Name: datastoreDir, Path: n.folder.path})
	c := n.opts.Config.Storage
	var err error
	n.volumes, err = volume.Open(folders, volume.Options{
		Reserve: int64(c.Reserve), Percent: c.ReservePercent, Logger: n.logger, SpaceOf: n.opts.SpaceOf,
	})
	return err
}

// withRoom calls open and returns its error. While open fails because the disk of folder is full,
// withRoom waits for free space and calls open again. It stops waiting when n.volumes is closed.
func (n *Node) withRoom(folder string, open func() error) error {
	for {
		err := open()
		if !durable.IsFull(err) || !n.volumes.Full(folder) {
			return err
		}
	}
}

// roomForBlocks returns two limits in bytes: content for new blocks, and copies for the blocks
// that a compaction copies. copies is half of the free space even on an almost full disk, because
// a compaction frees more space than it uses.
func (n *Node) roomForBlocks() (content, copies int64) {
	content, free := n.volumes.Spare(blocksDir, volume.Low)
	if n.tight() {
		content = 0 // fetched content could not be reported
	}
	return content, free / 2
}

// Limits of segmentBytes.
const (
	segmentsOfReserve = 4       // a segment has at most 1/4 of the size of the reserve
	leastSegment      = 4 << 20 // least size of a segment in bytes
)

// segmentBytes returns the size in bytes at which the block store closes a segment. The size is
// the setting, or less if reserve, the reserved bytes of the disk, is small. A compaction may use
// only half of the free space for the live blocks of a segment. With larger segments it could not
// run on a full disk, and deletions would free no space.
func segmentBytes(setting, reserve uint64) int64 {
	return int64(min(setting, max(reserve/segmentsOfReserve, leastSegment)))
}

// reserveFor returns the bytes of a folder's disk that are reserved, or the largest number if the
// folder is not watched.
func (n *Node) reserveFor(folder string) uint64 {
	for _, v := range n.volumes.Volumes() {
		if slices.Contains(v.Folders, folder) {
			return v.Reserve
		}
	}
	return math.MaxUint64
}

// full returns whether a disk of this node is too full to accept new content.
func (n *Node) full() bool { return n.volumes.Level(blocksDir) >= volume.Low || n.tight() }

// tight returns whether the disk of the Raft log or of the state is almost full. Then this node
// should not be the leader.
func (n *Node) tight() bool {
	return n.volumes.Level(raftDir) == volume.Tight || n.volumes.Level(stateDir) == volume.Tight
}

// refuses returns whether the disk of the Raft log is so full that this node cannot acknowledge
// log entries.
func (n *Node) refuses() bool {
	lately, since := n.consensus.Refuses()
	return lately || since && n.volumes.Level(raftDir) == volume.Tight
}

// eligibility returns the reason why this node should not be the leader now, and the members that
// could lead instead: those that are alive and have enough disk space, by free space in
// descending order. unfit is "" if this node can lead.
func (n *Node) eligibility() (unfit string, heirs []state.NodeID) {
	table := n.heard.Load()
	if table == nil || !n.tight() {
		return "", nil
	}
	var able []gossip.Peer
	for _, p := range table.All() {
		if p.Node != n.self.ID && p.Heard && p.State == gossip.Alive && !p.Sample.Tight {
			able = append(able, p)
		}
	}
	slices.SortStableFunc(able, func(a, b gossip.Peer) int { return cmp.Compare(b.Sample.FreeBytes, a.Sample.FreeBytes) })
	for _, p := range able {
		heirs = append(heirs, p.Node)
	}
	return "a disk of its Raft log or state is nearly full", heirs
}

// tightElsewhere returns whether another member should not be the leader, because in its newest
// sample a disk is almost full or it refuses log entries. Without a sample it returns false.
func (n *Node) tightElsewhere(id state.NodeID) bool {
	table := n.heard.Load()
	if table == nil {
		return false
	}
	sample, _, heard := table.Get(id)
	return heard && (sample.Tight || sample.Refuses)
}

// refusedByFullDisk returns whether err means that a full disk refused a write of the Raft log
// and that the log is unchanged.
func refusedByFullDisk(err error) bool { return errors.Is(err, raftlog.ErrNoSpace) }

// volumeCollectors returns the metrics of the disks, per folder. Folders on the same disk have
// the same values.
func (n *Node) volumeCollectors() []prometheus.Collector {
	var all []prometheus.Collector
	for _, folder := range []string{raftDir, stateDir, blocksDir} {
		gauge := func(name, help string, value func(volume.Volume) float64) {
			all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Namespace: "holdfast", Subsystem: "volume", Name: name, Help: help, ConstLabels: prometheus.Labels{"folder": folder},
			}, func() float64 {
				for _, v := range n.volumes.Volumes() {
					if slices.Contains(v.Folders, folder) {
						return value(v)
					}
				}
				return 0
			}))
		}
		gauge("free_bytes", "Bytes free on the disk of a folder of the node, the ballast included.", func(v volume.Volume) float64 { return float64(v.Free) })
		gauge("reserve_bytes", "Bytes of that disk that new content may not use.", func(v volume.Volume) float64 { return float64(v.Reserve) })
		gauge("level", "How full that disk is: 0 roomy, 1 low (no new content), 2 tight (half of the reserve is used).", func(v volume.Volume) float64 { return float64(v.Level) })
	}
	return all
}
