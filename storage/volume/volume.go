// Package volume watches the file systems of a node's folders. It reports early that one
// fills, and keeps a reserve on each for the writes that must go on.
//
// Imports: storage/durable.
// Never:   the content of the folders, raft, libp2p, cluster.
//
// New content may not use the reserve of a file system. When half of it is gone, at
// Tight, only the Raft log, deletions and garbage collection go on. A part of the
// reserve is the ballast, a file without content. If another program fills the disk
// completely, the ballast is removed so that necessary writes find room, and created
// again later.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// Level is how full a file system is.
type Level int

// The levels, from best to worst.
const (
	// Roomy: everything goes.
	Roomy Level = iota
	// Low: no new content. The reserve has been reached.
	Low
	// Tight: only what frees space, and the Raft log. Half of the reserve is used.
	Tight
)

func (l Level) String() string {
	switch l {
	case Roomy:
		return "roomy"
	case Low:
		return "low"
	}
	return "tight"
}

const (
	// DefaultReserve is the reserve of a file system, in bytes, if that is less
	// than DefaultPercent of it.
	DefaultReserve = 1 << 30
	// DefaultPercent is the reserve as a part of the file system.
	DefaultPercent = 5
	// smallestReserve is what the percentage may not go below: the logs of the
	// stores alone take some 20 MiB each.
	smallestReserve = 64 << 20
	// DefaultEvery is how often free space is measured.
	DefaultEvery = 250 * time.Millisecond

	// tightPart of the reserve is where Tight begins, ballastPart of it is in
	// the ballast, and backPart of it more must be free before a level is left,
	// so that one does not come and go with every file.
	tightPart   = 2
	ballastPart = 3
	backPart    = 8
	// maxBallast bounds the ballast.
	maxBallast = 64 << 20
	// letGoPart of the ballast is how little may be free before it goes.
	letGoPart = 4
	// fewFiles is how few more files there may be before a file system counts
	// as Tight, whatever its bytes.
	fewFiles = 64

	ballastFile = "ballast"
	filePerm    = 0o600
)

// Folder is a folder to watch. It must exist.
type Folder struct {
	Name string // for people and for the other methods
	Path string
}

// Options are the settings of a Watch. The zero value is good.
type Options struct {
	// Reserve in bytes and Percent of the file system: the smaller counts.
	Reserve int64
	Percent int
	Every   time.Duration // between two measurements
	Logger  *slog.Logger
	// SpaceOf measures; nil is durable.SpaceOf.
	SpaceOf func(path string) (durable.Space, error)
}

// Volume is a file system as it was when it was last measured.
type Volume struct {
	Folders []string // names of those that lie on it
	Level   Level
	Free    uint64 // bytes, with the ballast
	Total   uint64
	Reserve uint64
}

// Watch watches the file systems of some folders. Its methods may be called
// concurrently.
type Watch struct {
	opts    Options
	log     *slog.Logger
	closing chan struct{}

	// mu guards volumes and what they point to, and closed. It is held while a
	// ballast is made or removed, not while free space is measured.
	mu      sync.Mutex
	volumes []*volume
	closed  bool
}

// volume is one file system.
type volume struct {
	Volume
	path    string // of one folder on it
	files   bool   // has too few inodes left
	ballast uint64 // bytes; 0: there is none
	quiet   bool   // the log already says that there can be no ballast
}

// Open measures the folders, finds which of them share a file system, and creates the
// ballasts. It starts no goroutine.
func Open(folders []Folder, o Options) (*Watch, error) {
	if o.Reserve <= 0 {
		o.Reserve = DefaultReserve
	}
	if o.Percent <= 0 {
		o.Percent = DefaultPercent
	}
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.SpaceOf == nil {
		o.SpaceOf = durable.SpaceOf
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Watch{opts: o, log: o.Logger, closing: make(chan struct{})}
	devices := map[uint64]*volume{}
	for _, f := range folders {
		s, err := o.SpaceOf(f.Path)
		if err != nil {
			return nil, fmt.Errorf("volume: open %s: %w", f.Name, err)
		}
		v := devices[s.Device]
		if v == nil {
			v = &volume{path: f.Path}
			if v.ballast, err = durable.Allocated(v.file()); err != nil {
				return nil, fmt.Errorf("volume: open %s: %w", f.Name, err)
			}
			devices[s.Device] = v
			w.volumes = append(w.volumes, v)
		}
		v.Folders = append(v.Folders, f.Name)
	}
	return w, w.Measure()
}

func (v *volume) file() string { return filepath.Join(v.path, ballastFile) }

// Run measures until ctx ends, then returns nil. When it ends, every call that waits in
// Full returns, so that shutdown is not blocked.
func (w *Watch) Run(ctx context.Context) error {
	defer func() { _ = w.Close() }()
	every := time.NewTicker(w.opts.Every)
	defer every.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		err := w.Measure()
		if err != nil && !failing {
			w.log.ErrorContext(ctx, "cannot read the free space of the disk", "err", err)
		}
		failing = err != nil
	}
}

// Measure is one pass of Run: it updates the levels and creates or removes ballasts.
func (w *Watch) Measure() error {
	var errs []error
	for _, v := range w.volumes { // path and the slice never change
		s, err := w.opts.SpaceOf(v.path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w.mu.Lock()
		w.take(v, s)
		w.mu.Unlock()
	}
	return errors.Join(errs...)
}

// take stores a measurement. The caller holds mu.
func (w *Watch) take(v *volume, s durable.Space) {
	v.Total = s.Total
	v.Reserve = uint64(w.opts.Reserve)
	if part := max(s.Total/100*uint64(w.opts.Percent), smallestReserve); part < v.Reserve {
		v.Reserve = part
	}
	v.files = s.Files > 0 && s.FreeFiles < fewFiles
	if has, err := durable.Allocated(v.file()); err == nil && has < v.ballast {
		// Somebody else took it, or part of it: what it had is free already, and counted.
		w.log.Warn("the ballast file is missing or smaller than before", "file", v.file(), "bytes", has, "was", v.ballast)
		if v.ballast = has; has == 0 || os.Remove(v.file()) == nil {
			v.ballast = 0 // it is created again when there is space
		}
	}
	switch {
	case w.closed:
	case v.ballast > 0 && s.Free < v.ballast/letGoPart:
		s.Free += w.letGo(v)
	case v.ballast == 0 && s.Free > v.Reserve+v.Reserve/backPart:
		if w.load(v) {
			s.Free -= v.ballast
		}
	}
	v.Free = s.Free + v.ballast
	if next := v.level(); next != v.Level {
		say := w.log.Warn
		if next < v.Level {
			say = w.log.Info
		}
		say("disk space", "folders", v.Folders, "level", next, "was", v.Level, "free", v.Free, "reserve", v.Reserve, "total", v.Total)
		v.Level = next
	}
}

// level is what the measured numbers amount to, after the level before.
func (v *volume) level() Level {
	if v.files {
		return Tight
	}
	margin := v.Reserve / backPart
	tight, low := v.Reserve/tightPart, v.Reserve
	if v.Level == Tight {
		tight += margin
	}
	if v.Level >= Low {
		low += margin
	}
	switch {
	case v.Free < tight:
		return Tight
	case v.Free < low:
		return Low
	}
	return Roomy
}

// load makes the ballast. A file system that cannot do that goes without. The
// caller holds mu.
func (w *Watch) load(v *volume) bool {
	size := min(v.Reserve/ballastPart, maxBallast)
	f, err := os.OpenFile(v.file(), os.O_WRONLY|os.O_CREATE, filePerm)
	if err == nil {
		err = errors.Join(durable.Allocate(f, int64(size)), f.Close())
	}
	if err != nil {
		if !v.quiet {
			w.log.Warn("cannot create the ballast file on this disk", "file", v.file(), "err", err)
		}
		v.quiet = true
		_ = os.Remove(v.file()) // the rest of it is of no use
		return false
	}
	v.ballast = size
	if has, err := durable.Allocated(v.file()); err == nil {
		v.ballast = min(size, has) // not what this file system keeps no account of
	}
	return true
}

// letGo removes the ballast and returns what that frees. The caller holds mu.
func (w *Watch) letGo(v *volume) uint64 {
	if v.ballast == 0 {
		return 0
	}
	if err := os.Remove(v.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.log.Error("cannot delete the ballast file", "file", v.file(), "err", err)
		return 0
	}
	w.log.Warn("disk is full: deleting the ballast file", "file", v.file(), "bytes", v.ballast)
	freed := v.ballast
	v.ballast = 0
	return freed
}

func (w *Watch) find(folder string) *volume {
	for _, v := range w.volumes {
		if slices.Contains(v.Folders, folder) {
			return v
		}
	}
	return nil
}

// Level returns how full the file system of a folder was when last measured.
func (w *Watch) Level(folder string) Level {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.find(folder); v != nil {
		return v.Level
	}
	return Roomy
}

// Spare measures how many bytes can be written to the file system of folder before it
// reaches the level until, and how many are free in all, without the ballast. For a folder
// that cannot be measured it returns the largest number, because a write will tell.
func (w *Watch) Spare(folder string, until Level) (spare, free int64) {
	v := w.find(folder)
	if v == nil {
		return math.MaxInt64, math.MaxInt64
	}
	s, err := w.opts.SpaceOf(v.path)
	if err != nil {
		return math.MaxInt64, math.MaxInt64
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	keep := v.Reserve
	if until == Tight {
		keep /= tightPart
	}
	// Measure ends the level; a few free bytes do not.
	if all := s.Free + v.ballast; all >= keep && v.Level < until {
		spare = int64(min(all-keep, math.MaxInt64))
	}
	return spare, int64(min(s.Free, math.MaxInt64))
}

// Volumes returns the file systems, in the order of the folders.
func (w *Watch) Volumes() []Volume {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Volume, len(w.volumes))
	for i, v := range w.volumes {
		all[i] = v.Volume
		all[i].Folders = slices.Clone(v.Folders)
	}
	return all
}

// Full handles a write that found the disk full, before its retry. It removes the ballast;
// without a ballast it waits for room or for Close. It reports whether there may be room.
func (w *Watch) Full(folder string) bool {
	v := w.find(folder)
	if v == nil {
		return false
	}
	w.mu.Lock()
	freed := w.letGo(v)
	w.mu.Unlock()
	if freed > 0 {
		return true
	}
	w.log.Error("disk is full: writes wait for room", "folder", folder)
	every := time.NewTicker(w.opts.Every)
	defer every.Stop()
	for first := true; ; first = false {
		select {
		case <-w.closing:
			return false
		case <-every.C:
		}
		s, err := w.opts.SpaceOf(v.path)
		w.mu.Lock()
		enough := v.Reserve / ballastPart
		w.mu.Unlock()
		if first { // the ballast may have gone for another write that met the same end
			enough = min(enough, maxBallast) / letGoPart
		}
		if err != nil || s.Free >= enough && (s.Files == 0 || s.FreeFiles >= fewFiles) {
			w.log.Info("disk has room again", "folder", folder)
			return true
		}
	}
}

// Close ends every wait in Full. The ballasts stay.
func (w *Watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.closing)
	}
	return nil
}
