package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// isTerminal reports whether w is a terminal. Output for users, such as a progress bar, is only
// for terminals.
func isTerminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// palette adds terminal colours to text if it is true, and returns text unchanged if it is false.
type palette bool

// paletteOf returns the palette for w. It colours text if w is a terminal and environ has neither
// a NO_COLOR that is not empty nor TERM=dumb.
func paletteOf(w io.Writer, environ []string) palette {
	refused := slices.ContainsFunc(environ, func(entry string) bool {
		value, found := strings.CutPrefix(entry, "NO_COLOR=")
		return found && value != "" || entry == "TERM=dumb"
	})
	return palette(isTerminal(w) && !refused)
}

func (p palette) paint(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p palette) bold(text string) string   { return p.paint("1", text) }
func (p palette) dim(text string) string    { return p.paint("2", text) }
func (p palette) red(text string) string    { return p.paint("31", text) }
func (p palette) green(text string) string  { return p.paint("32", text) }
func (p palette) yellow(text string) string { return p.paint("33", text) }
func (p palette) cyan(text string) string   { return p.paint("36", text) }

// state colours the state of a pin or a member by its severity. padded may have spaces around the
// state.
func (p palette) state(padded string) string {
	switch strings.TrimSpace(padded) {
	case "pinned", "alive":
		return p.green(padded)
	case "failed", "down":
		return p.red(padded)
	case "queued", "pinning", "suspect", "draining":
		return p.yellow(padded)
	}
	return padded
}

// table is a table of text with aligned columns.
type table struct {
	head []string
	rows [][]string
	// right has the indexes of the columns that are aligned to the right, as numbers are. states
	// is the index of the column whose cells palette.state colours; -1 means none.
	right  []int
	states int
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table to w, with a dimmed head.
func (t *table) write(w io.Writer, p palette) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	line := func(row []string, paint func(i int, padded string) string) {
		var b strings.Builder
		for i, cell := range row {
			gap := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			switch {
			case slices.Contains(t.right, i):
				cell = gap + cell
			case i < len(row)-1:
				cell += gap
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(paint(i, cell))
		}
		_, _ = fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	line(t.head, func(_ int, padded string) string { return p.dim(padded) })
	for _, row := range t.rows {
		line(row, func(i int, padded string) string {
			if i == t.states {
				return p.state(padded)
			}
			return padded
		})
	}
}

// byteUnits are the units of humanBytes. Each one is 1024 times the unit before it.
var byteUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// humanBytes returns a number of bytes with a unit, such as 9.8 MiB, rounded to about three
// digits.
func humanBytes[N int | int64 | uint64](n N) string {
	value, unit := float64(n), 0
	for value >= 1000 && unit < len(byteUnits)-1 {
		value /= 1024
		unit++
	}
	if unit == 0 || value >= 100 {
		return strconv.FormatFloat(value, 'f', 0, 64) + " " + byteUnits[unit]
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + byteUnits[unit]
}

// sizeFor formats a number of bytes: with a unit if w is a terminal, as plain digits otherwise.
func sizeFor(w io.Writer, n uint64) string {
	if isTerminal(w) {
		return humanBytes(n)
	}
	return strconv.FormatUint(n, 10)
}

// humanTime returns a duration rounded for users, such as 3.2 ms, 1.5 s or 2m10s.
func humanTime(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// redrawEvery is the shortest interval between two updates of a progress bar.
const redrawEvery = 100 * time.Millisecond

// newBar returns a progress bar on standard error for a transfer of size bytes. It shows nothing
// if standard error is not a terminal. With size -1 the total is unknown. With size 0 the caller
// sets the total later.
func (a *app) newBar(size int64, what string) *progressbar.ProgressBar {
	return a.progress(size, what, progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetPredictTime(size >= 0))
}

// newSpinner returns a progress indicator for work of unknown size. The caller describes the
// state of the work with Describe.
func (a *app) newSpinner(what string) *progressbar.ProgressBar {
	return a.progress(-1, what, progressbar.OptionSetElapsedTime(true))
}

func (a *app) progress(size int64, what string, more ...progressbar.Option) *progressbar.ProgressBar {
	return progressbar.NewOptions64(size, append(more,
		progressbar.OptionSetVisibility(isTerminal(a.stderr)),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(a.stderr),
		progressbar.OptionThrottle(redrawEvery),
		progressbar.OptionFullWidth(),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSpinnerType(spinner),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░"}),
	)...)
}

// spinner is the number of the animation in the progress library: a small rotating circle of
// dots.
const spinner = 14
