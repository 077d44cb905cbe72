package node

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// Names of files and folders in the data folder. Other programs use SecretFile and SocketFile.
const (
	SecretFile   = "cluster.secret"
	SocketFile   = "holdfast.sock"
	IdentityFile = "identity.key"
	membersFile  = "members.json"
	lockFile     = "lock"
	stateDir     = "state"
	raftDir      = "raft"
	blocksDir    = "blocks"
	nodeMetaFile = "notes"
	// settledFile stores the settlements of payments until the state has their outcome.
	settledFile = "settlements"
	// datastoreDir stores data of the IPFS peer that it can get again from the network.
	datastoreDir = "datastore"
	// formatFile stores the format number of the data folder. The number also covers each file
	// that has no version number of its own. A release that changes such a file must increase
	// folderFormat.
	formatFile = "format"
	// newFile marks a folder whose identity this node created and which belongs to no cluster
	// yet. See mayFound.
	newFile = "new"
)

// secretLen is the length in bytes of the cluster secret that a founding node creates. A secret
// from the settings may have another length, see config.ParseSecret.
const secretLen = 32

// folder is the data folder of one node. The node locks it against a second process.
type folder struct {
	path string
}

func (f folder) file(name ...string) string {
	return filepath.Join(append([]string{f.path}, name...)...)
}

// folderFormat is the newest format of a data folder that this release knows.
const folderFormat = 1

// formatForm is the format string for the content of formatFile.
const formatForm = "holdfast folder %d\n"

// checkFormat returns an error that wraps durable.ErrNewer if a newer release has written the
// folder. If formatFile is missing, checkFormat creates it.
func (f folder) checkFormat() error {
	path := f.file(formatFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err := durable.WriteFile(path, fmt.Appendf(nil, formatForm, folderFormat), 0o600)
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return nil // a full disk must not prevent the start; without the file the format is 1
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("read the format of the folder: %w", err)
	}
	var found uint64
	if _, err := fmt.Sscanf(string(b), formatForm, &found); err != nil {
		return fmt.Errorf("%s is damaged: it says %q; if no newer release ever ran on this folder, remove the file", path, b[:min(len(b), 64)])
	}
	if found > folderFormat {
		return durable.Newer(path, found, folderFormat)
	}
	return nil
}

// narrow removes the permissions of other users of the machine on the node's own files and
// folders. Such permissions may exist in a folder that was copied, restored from a backup or
// created beforehand. An error is only logged, so that the node starts nevertheless. narrow does
// not change the settings file, which belongs to the operator, and no file behind a symbolic
// link.
func (f folder) narrow(log *slog.Logger) {
	var taken []string
	for _, name := range []string{
		SecretFile, IdentityFile, membersFile, rebuildFile, restoringFile, removedFile, newFile, formatFile, nodeMetaFile, settledFile, waitingFile, lockFile, stateDir, raftDir, blocksDir, datastoreDir, asideDir,
	} {
		path := f.file(name)
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink != 0 && !isFolder(path) {
			continue
		}
		switch narrowed, err := durable.Narrow(path); {
		case err != nil:
			log.Warn("other users can read a private file of this node, and it cannot change the mode", "path", path, "err", err)
		case narrowed:
			taken = append(taken, path)
		}
	}
	if len(taken) > 0 { // one line, for of many with one message some would be left out
		log.Warn("other users could read private files of this node: it has changed their modes", "paths", taken)
	}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// needs returns an error that contains advice if the file with the name is missing. Every member
// needs the file.
func (f folder) needs(name, advice string) error {
	_, err := os.Stat(f.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing, and this folder belongs to a member of a cluster: %s", f.file(name), advice)
	}
	return err
}

// Advice in the errors about a lost or damaged identity or cluster secret.
const (
	identityAdvice = "put it back from a backup, or remove this member and start on an empty data folder"
	secretAdvice   = "copy it from another member, where it is the same, or from a backup"
)

// identity returns the private key of the node. The first start creates it.
func (f folder) identity() ([]byte, error) {
	key, err := os.ReadFile(f.file(IdentityFile))
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = peer.NewKey(); err != nil {
			return nil, fmt.Errorf("make identity: %w", err)
		}
		if err := durable.WriteFile(f.file(newFile), nil, 0o600); err != nil {
			return nil, err
		}
		return key, durable.WriteFile(f.file(IdentityFile), key, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	if _, err := peer.IDOf(key); err != nil {
		return nil, fmt.Errorf("%s is damaged: %s: %w", f.file(IdentityFile), identityAdvice, err)
	}
	return key, nil
}

// mayFound returns an error if the folder contains an identity but no newFile. Somebody has
// probably copied the identity of a member to a new disk. If this node founded a cluster of its
// own, it would be ready and answer requests that are meant for the other cluster.
func (f folder) mayFound() error {
	_, err := os.Stat(f.file(newFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s was here before this start, and nothing says of which cluster it is: to come back into that one, name a member with --join; for a new cluster, start on an empty data folder", f.file(IdentityFile))
	}
	return err
}

// secret reads the cluster secret; nil means that this node has none yet.
func (f folder) secret() ([]byte, error) {
	text, err := os.ReadFile(f.file(SecretFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cluster secret: %w", err)
	}
	secret, err := config.ParseSecret(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %s: %w", f.file(SecretFile), secretAdvice, err)
	}
	return secret, nil
}

func (f folder) writeSecret(secret []byte) error {
	return durable.WriteFile(f.file(SecretFile), []byte(hex.EncodeToString(secret)+"\n"), 0o600)
}

func newSecret() []byte {
	secret := make([]byte, secretLen)
	_, _ = rand.Read(secret) // never fails, see crypto/rand
	return secret
}

// errNoSecret is the error for joining by an address without a secret.
var errNoSecret = fmt.Errorf("%w: joining by an address needs the cluster secret: --secret-file FILE or HOLDFAST_SECRET, or join by a ticket of `holdfast token`", ErrNoWayIn)

// seed is the content of membersFile: what a node knows about its cluster before it has the
// replicated state.
type seed struct {
	ClusterID string       `json:"cluster_id"`
	Founder   bool         `json:"founder,omitempty"` // this node founds the cluster
	Members   []seedMember `json:"members"`
}

type seedMember struct {
	ID           string   `json:"id"`
	ClusterAddrs []string `json:"cluster_addrs"`
}

// nodes returns the members as node records that have only an id and addresses. A nil seed has no
// members.
func (s *seed) nodes() []state.Node {
	if s == nil {
		return nil
	}
	nodes := make([]state.Node, len(s.Members))
	for i, m := range s.Members {
		nodes[i] = state.Node{ID: state.NodeID(m.ID), ClusterAddrs: m.ClusterAddrs}
	}
	return nodes
}

// equal returns whether two seeds are equal.
func (s *seed) equal(o *seed) bool {
	return s.ClusterID == o.ClusterID && s.Founder == o.Founder &&
		slices.EqualFunc(s.Members, o.Members, func(a, b seedMember) bool {
			return a.ID == b.ID && slices.Equal(a.ClusterAddrs, b.ClusterAddrs)
		})
}

func newSeed(clusterID string, nodes []state.Node) *seed {
	s := &seed{ClusterID: clusterID}
	for _, n := range nodes {
		s.Members = append(s.Members, seedMember{ID: string(n.ID), ClusterAddrs: n.ClusterAddrs})
	}
	return s
}

// errSeedUnread means that membersFile exists but has no valid content. The node belongs to a
// cluster, but it is unknown to which.
var errSeedUnread = errors.New("the file cannot be read")

// seed reads membersFile, which a node writes when it joins or founds a cluster. It returns nil
// without an error if the file does not exist. The error wraps errSeedUnread if the content is
// not valid.
func (f folder) seed() (*seed, error) {
	b, err := os.ReadFile(f.file(membersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read members: %w", err)
	}
	var s seed
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", f.file(membersFile), errSeedUnread, err)
	}
	if s.ClusterID == "" {
		return nil, fmt.Errorf("read %s: %w: it names no cluster", f.file(membersFile), errSeedUnread)
	}
	return &s, nil
}

func (f folder) writeSeed(s *seed) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode members: %w", err)
	}
	return durable.WriteFile(f.file(membersFile), append(b, '\n'), 0o600)
}
