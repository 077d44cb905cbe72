package client

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// journalHead is the first line of the journal of an upload, and identifies the source and the
// target. A journal is a file of JSON lines. A journalLine with the upload id follows when the
// upload has started, and one for each stored part. A crash can cut off the last line; the reader
// ignores such a line, and the client sends that part again. The client flushes the head to disk
// before it starts the upload, so that a crash cannot leave an upload without a journal.
type journalHead struct {
	Bucket   string   `json:"bucket"`
	Key      string   `json:"key"`
	Path     string   `json:"path,omitempty"`      // path of the local file
	Size     int64    `json:"size,omitempty"`      // size of the local file in bytes
	Modified int64    `json:"modified,omitempty"`  // time of the local file, Unix time in ns
	PartSize int64    `json:"part_size,omitempty"` // size of a part in bytes
	Sealed   string   `json:"sealed,omitempty"`    // encryption header of the upload
	Others   []string `json:"others,omitempty"`    // ids of uploads of this key that were open before
}

type journalLine struct {
	UploadID string `json:"upload_id,omitempty"`
	Part     int    `json:"part,omitempty"`
	ETag     string `json:"etag,omitempty"`
}

// journalState is the content of a journal that was read from disk.
type journalState struct {
	journalHead

	UploadID string         // "" if the crash came before the upload id was written
	stored   map[int]string // ETags by part number
}

// continues reports whether the upload in the journal has the source and target that head
// describes.
func (s *journalState) continues(head journalHead) bool {
	return s.UploadID != "" && s.Bucket == head.Bucket && s.Key == head.Key && s.Path == head.Path &&
		s.Size == head.Size && s.Modified == head.Modified && s.PartSize == head.PartSize && s.Sealed == head.Sealed
}

// readJournal reads the journal at path. It returns nil if the file does not exist. A journal
// without a complete head belongs to an upload that was never started: readJournal deletes the
// file and returns nil.
func readJournal(path string) (*journalState, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	s := &journalState{stored: map[int]string{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20) // 10,000 open uploads of a key are 500 KiB
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &s.journalHead) != nil || s.Bucket == "" {
		return nil, errors.Join(lines.Err(), removeJournal(path))
	}
	for lines.Scan() {
		var line journalLine
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // a crash cut the line off
		}
		if line.UploadID != "" {
			s.UploadID = line.UploadID
		}
		if line.Part > 0 && line.Part <= maxParts && line.ETag != "" {
			s.stored[line.Part] = line.ETag
		}
	}
	return s, lines.Err()
}

// journal appends lines to a journal. Methods of a nil *journal do nothing.
type journal struct {
	path string

	mu   sync.Mutex
	file *os.File
}

func createJournal(path string, head journalHead) (*journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{path: path, file: f}
	if err := errors.Join(j.write(head), f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

func appendJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString("\n") // ends a line that was cut off
	return &journal{path: path, file: f}, err
}

func (j *journal) write(line any) error {
	if j == nil {
		return nil
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err = j.file.Write(append(text, '\n'))
	return err
}

func (j *journal) started(id string) error { return j.write(journalLine{UploadID: id}) }

func (j *journal) part(number int, etag string) error {
	return j.write(journalLine{Part: number, ETag: etag})
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return j.file.Close()
}

// remove deletes the journal after its upload has ended.
func (j *journal) remove() error {
	if j == nil {
		return nil
	}
	return errors.Join(j.close(), removeJournal(j.path))
}

func removeJournal(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
