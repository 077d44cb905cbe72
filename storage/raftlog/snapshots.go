package raftlog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

const (
	metaFile      = "meta.json"
	checkpointDir = "checkpoint"
	streamFile    = "stream"
	tmpSuffix     = ".tmp"
	rottenSuffix  = ".rotten"
	filePerm      = 0o600

	// maxMetaBytes is the maximum size of a snapshot's description.
	maxMetaBytes = 4 << 20
	// snapshotVersion is the version of Raft's snapshot format that this release writes and
	// reads.
	snapshotVersion = 1
)

var snapshotID = regexp.MustCompile(`^[0-9]{20}-[0-9]{20}-[0-9]{13,}$`)

var _ raft.SnapshotStore = (*Snapshots)(nil)

// Snapshots is Raft's snapshot store. A snapshot is the folder
//
//	<index>-<term>-<milliseconds>/
//	    meta.json     Raft's description of the snapshot, with a checksum
//	    checkpoint/   a checkpoint of storage/kv that this node has made; or
//	    stream        the archive of a checkpoint that a leader has sent
//
// The folder is complete or does not exist. Methods may be called concurrently.
type Snapshots struct {
	dir    string
	retain int
	log    *slog.Logger

	// mu guards reading. It also ensures that no snapshot is removed between its listing and
	// its opening.
	mu      sync.Mutex
	reading map[string]int // number of open readers by id; such snapshots are not removed

	// verifying is held by Verify, which creates a temporary folder.
	verifying sync.Mutex
}

// OpenSnapshots opens the snapshots in dir, or creates the folder. It removes incomplete
// snapshots that crashes have left. The store keeps the newest retain snapshots; retain is at
// least 1.
func OpenSnapshots(dir string, retain int, logger *slog.Logger) (*Snapshots, error) {
	if retain < 1 {
		return nil, fmt.Errorf("raftlog: snapshots: cannot retain %d", retain)
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if err := durable.MkdirAll(dir, dirPerm); err != nil {
		return nil, fmt.Errorf("raftlog: snapshots: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("raftlog: snapshots: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), tmpSuffix) {
			continue
		}
		logger.Info("removing unfinished snapshot", "folder", e.Name())
		if err := durable.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return nil, fmt.Errorf("raftlog: snapshots: %w", err)
		}
	}
	return &Snapshots{dir: dir, retain: retain, log: logger, reading: make(map[string]int)}, nil
}

// Create starts a snapshot. The returned sink is a *Sink.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("raftlog: create snapshot: version %d is not supported", version)
	}
	for at := time.Now().UnixMilli(); ; at++ {
		id := fmt.Sprintf("%020d-%020d-%013d", index, term, at)
		if _, err := os.Stat(filepath.Join(s.dir, id)); err == nil {
			continue // two in one millisecond
		}
		tmp := filepath.Join(s.dir, id+tmpSuffix)
		err := os.Mkdir(tmp, dirPerm)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("raftlog: create snapshot: %w", err)
		}
		return &Sink{store: s, tmp: tmp, meta: raft.SnapshotMeta{
			Version: version, ID: id, Index: index, Term: term,
			Configuration: configuration.Clone(), ConfigurationIndex: configurationIndex,
		}}, nil
	}
}

// List returns the descriptions of the snapshots, newest first. A snapshot with a damaged
// description is logged and left out.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, fmt.Errorf("raftlog: list snapshots: %w", err)
	}
	var metas []*raft.SnapshotMeta
	for _, id := range ids {
		meta, err := s.readMeta(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since
		}
		if errors.Is(err, durable.ErrNewer) {
			return nil, fmt.Errorf("raftlog: list snapshots: %w", err)
		}
		if err != nil {
			s.log.Error("snapshot is not readable", "snapshot", id, "err", err)
			continue
		}
		metas = append(metas, meta)
		if len(metas) == s.retain {
			break
		}
	}
	return metas, nil
}

// ids returns the names of the snapshot folders, newest first. The names sort by index and
// term.
func (s *Snapshots) ids() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && snapshotID.MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(b, a) })
	return ids, nil
}

// Open returns the description of a snapshot, with its exact Size, and its archive stream,
// which kv.Store.Restore reads. The snapshot is not removed before the caller closes the
// stream.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if !snapshotID.MatchString(id) {
		return nil, nil, fmt.Errorf("raftlog: open snapshot: %q is not one", id)
	}
	s.mu.Lock()
	s.reading[id]++
	s.mu.Unlock()
	meta, stream, err := s.open(id)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("raftlog: open snapshot %s: %w", id, err), s.release(id))
	}
	return meta, &snapshotReader{ReadCloser: stream, release: func() error { return s.release(id) }}, nil
}

func (s *Snapshots) open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, err := s.readMeta(id)
	if err != nil {
		return nil, nil, err
	}
	folder := filepath.Join(s.dir, id, checkpointDir)
	if exists(folder) {
		size, err := kv.ArchiveSize(folder)
		if err != nil {
			return nil, nil, err
		}
		if size != meta.Size {
			return nil, nil, fmt.Errorf("%w: archive of %d bytes, described as %d", ErrCorrupt, size, meta.Size)
		}
		return meta, streamArchive(folder), nil
	}
	f, err := os.Open(filepath.Join(s.dir, id, streamFile))
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != meta.Size {
		err = fmt.Errorf("%w: stream of %d bytes, described as %d", ErrCorrupt, info.Size(), meta.Size)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return meta, f, nil
}

// Verify reads a snapshot completely, as if it were sent to another member. For a checkpoint it
// calls check with a function that reads the checkpoint, and check decides whether the content is
// as expected. A stream from a leader was checked when it arrived, so Verify checks only its
// checksums. If Verify returns an error, rotten is true if the snapshot itself is damaged, and
// false if it could not be read now.
func (s *Snapshots) Verify(id string, check func(get kv.Getter) error) (rotten bool, err error) {
	s.verifying.Lock()
	defer s.verifying.Unlock()
	_, stream, err := s.Open(id)
	if err != nil {
		return errors.Is(err, ErrCorrupt), err
	}
	if folder := filepath.Join(s.dir, id, checkpointDir); exists(folder) {
		err = kv.VerifyCheckpoint(folder, filepath.Join(s.dir, id+".verify"+tmpSuffix), s.log, check)
	} else {
		err = kv.VerifyArchive(stream)
	}
	rotten = errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrBadArchive)
	if err = errors.Join(err, stream.Close()); err != nil {
		return rotten, fmt.Errorf("raftlog: verify snapshot %s: %w", id, err)
	}
	return false, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// SetAside removes a snapshot from the list. Its folder stays on the disk under another name, so
// that somebody can inspect it, until another snapshot is set aside.
func (s *Snapshots) SetAside(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !snapshotID.MatchString(id) {
		return fmt.Errorf("raftlog: set snapshot aside: %q is not one", id)
	}
	earlier, err := filepath.Glob(filepath.Join(s.dir, "*"+rottenSuffix))
	if err != nil {
		return fmt.Errorf("raftlog: set snapshot aside: %w", err)
	}
	for _, path := range earlier {
		if err := durable.RemoveAll(path); err != nil {
			return fmt.Errorf("raftlog: set snapshot aside: %w", err)
		}
	}
	dir := filepath.Join(s.dir, id)
	if err := durable.Rename(dir, dir+rottenSuffix); err != nil {
		return fmt.Errorf("raftlog: set snapshot aside: %w", err)
	}
	return nil
}

func (s *Snapshots) release(id string) error {
	s.mu.Lock()
	if s.reading[id]--; s.reading[id] == 0 {
		delete(s.reading, id)
	}
	s.mu.Unlock()
	return s.reap()
}

// reap removes all but the newest retain snapshots, except those that are being read.
// Unreadable snapshots do not count, so they cannot displace good ones.
func (s *Snapshots) reap() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, err := s.ids()
	if err != nil {
		return fmt.Errorf("raftlog: remove old snapshots: %w", err)
	}
	kept := 0
	for _, id := range ids {
		if kept < s.retain {
			if _, err := s.readMeta(id); err == nil {
				kept++
			}
			continue
		}
		if s.reading[id] > 0 {
			continue
		}
		s.log.Debug("removing old snapshot", "snapshot", id)
		// The name goes first, so that a crash half way leaves no half snapshot.
		dir := filepath.Join(s.dir, id)
		if err := durable.Rename(dir, dir+tmpSuffix); err != nil {
			return fmt.Errorf("raftlog: remove old snapshots: %w", err)
		}
		if err := durable.RemoveAll(dir + tmpSuffix); err != nil {
			return fmt.Errorf("raftlog: remove old snapshots: %w", err)
		}
	}
	return nil
}

// snapshotReader is the stream of a snapshot. Until it is closed, its snapshot is not removed.
type snapshotReader struct {
	io.ReadCloser
	release func() error
	once    sync.Once
}

func (r *snapshotReader) Close() error {
	var err error
	r.once.Do(func() { err = errors.Join(r.ReadCloser.Close(), r.release()) })
	return err
}

// streamArchive builds the archive of a checkpoint folder while the caller reads it. Close
// waits for the goroutine that writes the archive.
func streamArchive(folder string) io.ReadCloser {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(kv.WriteArchive(w, folder)) // always nil; EOF if no error
	}()
	return &archiveReader{PipeReader: r, done: done}
}

type archiveReader struct {
	*io.PipeReader
	done chan struct{}
}

func (r *archiveReader) Close() error {
	err := r.PipeReader.Close()
	<-r.done
	return err
}

// storedMeta is the file meta.json: the description as JSON text and the CRC32C
// of exactly that text.
type storedMeta struct {
	CRC32C string          `json:"crc32c"`
	Meta   json.RawMessage `json:"meta"`
}

type metaFields struct {
	Version            int           `json:"version"`
	ID                 string        `json:"id"`
	Index              uint64        `json:"index"`
	Term               uint64        `json:"term"`
	ConfigurationIndex uint64        `json:"configuration_index"`
	Servers            []serverField `json:"servers"`
	Size               int64         `json:"size"`
}

type serverField struct {
	Suffrage int    `json:"suffrage"` // raft.ServerSuffrage
	ID       string `json:"id"`
	Address  string `json:"address"`
}

func encodeMeta(m *raft.SnapshotMeta) ([]byte, error) {
	fields := metaFields{
		Version: int(m.Version), ID: m.ID, Index: m.Index, Term: m.Term,
		ConfigurationIndex: m.ConfigurationIndex, Servers: []serverField{}, Size: m.Size,
	}
	for _, s := range m.Configuration.Servers {
		fields.Servers = append(fields.Servers, serverField{int(s.Suffrage), string(s.ID), string(s.Address)})
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return json.Marshal(storedMeta{fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli())), text})
}

func decodeMeta(raw []byte) (*raft.SnapshotMeta, error) {
	var stored storedMeta
	if err := json.Unmarshal(raw, &stored); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if fmt.Sprintf("%08x", crc32.Checksum(stored.Meta, castagnoli())) != stored.CRC32C {
		return nil, fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	var fields metaFields
	if err := json.Unmarshal(stored.Meta, &fields); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if fields.Version > snapshotVersion {
		return nil, durable.Newer("snapshot "+fields.ID, uint64(fields.Version), snapshotVersion)
	}
	m := &raft.SnapshotMeta{
		Version: raft.SnapshotVersion(fields.Version), ID: fields.ID, Index: fields.Index, Term: fields.Term,
		ConfigurationIndex: fields.ConfigurationIndex, Size: fields.Size,
	}
	for _, s := range fields.Servers {
		m.Configuration.Servers = append(m.Configuration.Servers, raft.Server{
			Suffrage: raft.ServerSuffrage(s.Suffrage), ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address),
		})
	}
	return m, nil
}

func (s *Snapshots) readMeta(id string) (*raft.SnapshotMeta, error) {
	f, err := os.Open(filepath.Join(s.dir, id, metaFile))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxMetaBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	meta, err := decodeMeta(raw)
	if err != nil {
		return nil, err
	}
	if meta.ID != id {
		return nil, fmt.Errorf("%w: describes %q", ErrCorrupt, meta.ID)
	}
	return meta, nil
}
