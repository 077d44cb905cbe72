package raftlog

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

const sinkBufferBytes = 256 << 10

var errSinkUsed = errors.New("the snapshot already has content or an end")

var _ raft.SnapshotSink = (*Sink)(nil)

// Sink receives one snapshot, either as a checkpoint folder by Adopt, or as an archive stream by
// Write. Close makes the snapshot visible, and Cancel removes it; only the first of these calls has
// an effect. One goroutine at a time may use a Sink.
type Sink struct {
	store *Snapshots
	tmp   string // path of the folder before it gets its final name
	meta  raft.SnapshotMeta

	adopted bool
	stream  *os.File
	buffer  *bufio.Writer

	ended bool
	err   error // error of the first Close, which later calls return too
}

// ID returns the id under which the snapshot can be opened after Close.
func (s *Sink) ID() string { return s.meta.ID }

// Adopt moves the checkpoint folder dir into the snapshot. The folder must be on the same file
// system as the snapshots, so that moving it is only a rename.
func (s *Sink) Adopt(dir string) error {
	if s.ended || s.adopted || s.stream != nil {
		return fmt.Errorf("raftlog: adopt checkpoint: %w", errSinkUsed)
	}
	if err := durable.Rename(dir, filepath.Join(s.tmp, checkpointDir)); err != nil {
		return fmt.Errorf("raftlog: adopt checkpoint: %w", err)
	}
	s.adopted = true
	return nil
}

// Write appends to the archive stream of the snapshot.
func (s *Sink) Write(p []byte) (int, error) {
	if s.ended || s.adopted {
		return 0, fmt.Errorf("raftlog: write snapshot: %w", errSinkUsed)
	}
	if err := s.openStream(); err != nil {
		return 0, err
	}
	n, err := s.buffer.Write(p)
	s.meta.Size += int64(n)
	if err != nil {
		err = fmt.Errorf("raftlog: write snapshot: %w", err)
	}
	return n, err
}

func (s *Sink) openStream() (err error) {
	if s.stream != nil {
		return nil
	}
	s.stream, err = os.OpenFile(filepath.Join(s.tmp, streamFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		s.stream = nil
		return fmt.Errorf("raftlog: write snapshot: %w", err)
	}
	s.buffer = bufio.NewWriterSize(s.stream, sinkBufferBytes)
	return nil
}

// Close makes the snapshot durable and then visible, and removes older snapshots that need not
// be kept any more. If Close fails, it removes the new snapshot. Both Raft and its FSM may call
// it.
func (s *Sink) Close() error {
	if s.ended {
		return s.err
	}
	s.ended = true
	if err := s.finish(); err != nil {
		s.err = errors.Join(fmt.Errorf("raftlog: close snapshot %s: %w", s.meta.ID, err), durable.RemoveAll(s.tmp))
		return s.err
	}
	if err := s.store.reap(); err != nil {
		// The new snapshot is stored; removing old ones is tried again next time.
		s.store.log.Error("cannot remove old snapshots", "err", err)
	}
	return nil
}

func (s *Sink) finish() error {
	if s.adopted {
		size, err := kv.ArchiveSize(filepath.Join(s.tmp, checkpointDir))
		if err != nil {
			return err
		}
		s.meta.Size = size
	} else if err := s.finishStream(); err != nil {
		return err
	}
	raw, err := encodeMeta(&s.meta)
	if err != nil {
		return err
	}
	// The content is durable before its description, and both before the name
	// by which List finds them.
	if err := durable.WriteFile(filepath.Join(s.tmp, metaFile), raw, filePerm); err != nil {
		return err
	}
	return durable.Rename(s.tmp, filepath.Join(s.store.dir, s.meta.ID))
}

func (s *Sink) finishStream() error {
	if err := s.openStream(); err != nil { // an empty state is a state
		return err
	}
	err := s.buffer.Flush()
	if err == nil {
		err = s.stream.Sync()
	}
	return errors.Join(err, s.stream.Close())
}

// Cancel removes the snapshot. After Close it does nothing.
func (s *Sink) Cancel() error {
	if s.ended {
		return nil
	}
	s.ended = true
	s.err = fmt.Errorf("raftlog: snapshot %s was cancelled", s.meta.ID)
	var err error
	if s.stream != nil {
		err = s.stream.Close()
	}
	if err = errors.Join(err, durable.RemoveAll(s.tmp)); err != nil {
		return fmt.Errorf("raftlog: cancel snapshot: %w", err)
	}
	return nil
}
