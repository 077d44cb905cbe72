package dag

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/spaolacci/murmur3"
	"google.golang.org/protobuf/encoding/protowire"
)

// Layout of folders, which is that of boxo. TestFoldersAreThoseOfBoxo compares both. boxo's package
// hamt is not used to make folders, because it keeps a node for each entry in memory.
const (
	// maxFolderBlock is the size of a folder in bytes from which on it is sharded.
	maxFolderBlock = 256 << 10
	shardFanout    = 256
	shardBits      = 8 // of the hash of a name that one level of a sharded folder uses
	hashBits       = 64
)

// Fields of the messages of dag-pb, besides those in shard.go.
const (
	linkHash   = 1
	linkTsize  = 3
	nodeData   = 1
	folderData = 2 // bytes of the message Data of a folder: its type
)

// directory stores a folder with entries that are sorted by name.
func (t *folderImport) directory(entries []Entry) (ipld.Node, error) {
	if t.layout.folderSize(entries) > maxFolderBlock {
		hashed := make([]hashedEntry, len(entries))
		for i := range entries {
			hashed[i] = hashedEntry{murmur3.Sum64([]byte(entries[i].Name)), &entries[i]}
		}
		slices.SortFunc(hashed, func(a, b hashedEntry) int { return cmp.Compare(a.hash, b.hash) })
		return t.shard(hashed, 0)
	}
	n := unixfs.EmptyDirNode()
	if err := n.SetCidBuilder(t.layout.builder); err != nil {
		return nil, err
	}
	for i := range entries {
		if err := n.AddRawLink(entries[i].Name, entries[i].link()); err != nil {
			return nil, err
		}
	}
	return n, t.sink.Add(t.ctx, n)
}

// folderSize returns the size in bytes that decides whether a folder is sharded.
func (l *Layout) folderSize(entries []Entry) (size int) {
	if l.wholeBlock {
		size = protowire.SizeTag(nodeData) + protowire.SizeBytes(folderData)
	}
	for i := range entries {
		name, hash := len(entries[i].Name), entries[i].CID.ByteLen()
		if !l.wholeBlock {
			size += name + hash
			continue
		}
		link := protowire.SizeTag(linkHash) + protowire.SizeBytes(hash) + protowire.SizeTag(linkName) + protowire.SizeBytes(name) +
			protowire.SizeTag(linkTsize) + protowire.SizeVarint(entries[i].size)
		size += protowire.SizeTag(nodeLinks) + protowire.SizeBytes(link)
	}
	return size
}

func (e *Entry) link() *ipld.Link { return &ipld.Link{Size: e.size, Cid: e.CID} }

type hashedEntry struct {
	hash uint64 // of the name
	*Entry
}

// shard stores a node of a sharded folder with entries that are sorted by hash and have the same
// first bits. It calls itself at most hashBits/shardBits times.
func (t *folderImport) shard(entries []hashedEntry, bits int) (ipld.Node, error) {
	if bits == hashBits {
		return nil, fmt.Errorf("%w: the names %q and %q have the same hash", ErrTooLarge, entries[0].Name, entries[1].Name)
	}
	n := new(merkledag.ProtoNode)
	if err := n.SetCidBuilder(t.layout.builder); err != nil {
		return nil, err
	}
	var used [shardFanout / 8]byte // a bit for each place, the lowest at the end
	for len(entries) > 0 {
		place := placeOf(entries[0].hash, bits, shardBits)
		same := 1
		for same < len(entries) && placeOf(entries[same].hash, bits, shardBits) == place {
			same++
		}
		used[len(used)-1-place/8] |= 1 << (place % 8)
		name, link := entries[0].Name, entries[0].link()
		if same > 1 {
			child, err := t.shard(entries[:same], bits+shardBits)
			if err != nil {
				return nil, err
			}
			if link, err = ipld.MakeLink(child); err != nil {
				return nil, err
			}
			name = ""
		}
		if err := n.AddRawLink(placeName(place, shardFanout)+name, link); err != nil {
			return nil, err
		}
		entries = entries[same:]
	}
	first := slices.IndexFunc(used[:], func(b byte) bool { return b != 0 })
	data, err := unixfs.HAMTShardData(used[first:], shardFanout, hashTypeUsual)
	if err != nil {
		return nil, err
	}
	n.SetData(data)
	return n, t.sink.Add(t.ctx, n)
}

// placeOf returns the place that a hash has in a node of a sharded folder. skip is the number of
// bits that the nodes above have used, and use the number of bits of this node.
func placeOf(hash uint64, skip, use int) int {
	return int(hash << skip >> (hashBits - use))
}

// placeName returns the prefix of the name of a link at a place of a node.
func placeName(place, fanout int) string {
	return fmt.Sprintf("%0*X", len(fmt.Sprintf("%X", fanout-1)), place)
}
