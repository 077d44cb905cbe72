// Package volume watches the free space of the file systems of a node's folders. It reports early
// when a file system is filling up, and keeps a reserve on each for writes that must continue.
//
// Imports: storage/durable.
// Never:   access to the content of the folders; imports of raft, libp2p or cluster.
//
// New content may not use the reserve of a file system. When half of the reserve is used (level
// Tight), only the Raft log, deletions and garbage collection may write. A part of the reserve is
// the ballast, a file whose content has no meaning. If another program fills the disk completely,
// the ballast is removed so that necessary writes find space, and is created again later.
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
	// Roomy means that all writes are allowed.
	Roomy Level = iota
	// Low means that new content is refused. The free space is below the reserve.
	Low
	// Tight means that only the Raft log and operations that free space may write. Half of the
	// reserve is used.
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
	// DefaultReserve is the reserve of a file system, in bytes. DefaultPercent applies instead
	// if that is less.
	DefaultReserve = 1 << 30
	// DefaultPercent is the reserve in percent of the file system.
	DefaultPercent = 5
	// smallestReserve is the lower bound of the reserve that the percentage gives, because the
	// logs of the stores alone take some 20 MiB each.
	smallestReserve = 64 << 20
	// DefaultEvery is the interval between two measurements of free space.
	DefaultEvery = 250 * time.Millisecond

	// tightPart, ballastPart and backPart are divisors of the reserve. A file system is Tight if
	// less than 1/tightPart of the reserve is free. The ballast has 1/ballastPart of the reserve. A
	// level ends only when 1/backPart of the reserve more is free than at its start, so that the
	// level does not change with every file.
	tightPart   = 2
	ballastPart = 3
	backPart    = 8
	// maxBallast is the largest size of the ballast in bytes.
	maxBallast = 64 << 20
	// letGoPart is a divisor of the size of the ballast: when less free space is left than
	// 1/letGoPart of the ballast, the ballast is removed.
	letGoPart = 4
	// fewFiles is the number of further files below which a file system counts as Tight,
	// however many bytes are free.
	fewFiles = 64

	// BallastFile is the name of the ballast in a watched folder.
	BallastFile = "ballast"
	filePerm    = 0o600
)

// Folder is a folder to watch. It must exist.
type Folder struct {
	Name string // name of the folder in logs, and the argument of the methods of Watch
	Path string
}

// Options are the settings of a Watch. The zero value has working defaults.
type Options struct {
	// Reserve is in bytes and Percent is a part of the file system. The smaller one applies.
	Reserve int64
	Percent int
	Every   time.Duration // interval between two measurements
	Logger  *slog.Logger
	// SpaceOf measures a file system; nil means durable.SpaceOf.
	SpaceOf func(path string) (durable.Space, error)
}

// Volume is a file system as it was at the last measurement.
type Volume struct {
	Folders []string // names of the watched folders on it
	Level   Level
	Free    uint64 // free bytes, including the ballast
	Total   uint64
	Reserve uint64
}

// Watch watches the file systems of some folders. Its methods may be called
// concurrently.
type Watch struct {
	opts    Options
	log     *slog.Logger
	closing chan struct{}

	// mu guards volumes, the values that they point to, and closed. It is held while a ballast
	// is created or removed, but not while free space is measured.
	mu      sync.Mutex
	volumes []*volume
	closed  bool
}

// volume is one file system.
type volume struct {
	Volume
	path    string // path of one folder on it
	files   bool   // fewer than fewFiles files can still be created
	ballast uint64 // size in bytes; 0 means that there is no ballast
	quiet   bool   // it was already logged that the ballast cannot be created
}

// Open measures the folders, finds which of them share a file system, and creates the ballast
// files. It starts no goroutine.
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

func (v *volume) file() string { return filepath.Join(v.path, BallastFile) }

// Run measures until ctx ends, then returns nil. At the end every call that waits in Full
// returns, so that shutdown is not blocked.
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

// Measure does one measurement: it updates the levels, and creates or removes ballast files.
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

// level returns the level for the measured figures. It depends on the previous level.
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

// load creates the ballast of a volume. If the file system cannot reserve the space, there is no
// ballast. The caller holds mu.
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

// letGo removes the ballast and returns the number of freed bytes. The caller holds mu.
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

// Level returns the level of the file system of a folder at the last measurement.
func (w *Watch) Level(folder string) Level {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.find(folder); v != nil {
		return v.Level
	}
	return Roomy
}

// Spare measures the free space of the file system of folder. spare is the number of bytes that can
// be written before the file system reaches the level until. free is the number of free bytes in
// all, without the ballast. If the folder cannot be measured, both are the largest number, because
// the write itself will then return the error.
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

// Volumes returns each file system once, in the order in which the watched folders first name it.
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

// Full is called when a write has found the disk full, before the write is tried again. It removes
// the ballast. If there is no ballast, it waits for free space or for Close. It returns whether
// there may be space now.
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
