package dag

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ipfs/go-cid"
)

// maxNotes is the largest number of notes of sources in the text that Reason returns.
const maxNotes = 5

// FetchError is the error of a failed fetch, with its progress.
type FetchError struct {
	Kind   error   // ErrNotFound, ErrStalled, ErrTooLarge and so on
	Cid    cid.Cid // the block at which it failed; undefined if there is none
	Blocks uint64  // number of blocks fetched from the sources before the failure
	Bytes  uint64
	After  time.Duration // time without progress, for ErrNotFound, ErrStalled and ErrTimeout
	Notes  []string      // notes of the sources, such as origins that are not reachable
	Err    error         // the cause; may be nil
}

// Error returns the reason and the cause.
func (e *FetchError) Error() string {
	if e.Err == nil {
		return "dag: fetch: " + e.Reason()
	}
	return fmt.Sprintf("dag: fetch: %s (%v)", e.Reason(), e.Err)
}

// Unwrap returns the kind and the cause.
func (e *FetchError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Reason returns the cause in one sentence for users, without internals.
func (e *FetchError) Reason() string {
	var s string
	switch {
	case errors.Is(e.Kind, ErrNotFound):
		s = "nobody offered the block " + e.Cid.String()
		if e.After > 0 {
			s += " within " + e.After.Round(time.Second).String()
		}
	case errors.Is(e.Kind, ErrStalled):
		s = fmt.Sprintf("the provider vanished after %d blocks (%s); no new block within %s",
			e.Blocks, size(e.Bytes), e.After.Round(time.Second))
		if e.Cid.Defined() {
			s += ", waiting for " + e.Cid.String()
		}
	case errors.Is(e.Kind, ErrTimeout):
		s = fmt.Sprintf("not complete within %s, after %d blocks (%s)", e.After.Round(time.Second), e.Blocks, size(e.Bytes))
	case errors.Is(e.Kind, ErrStore):
		s = "the node could not store or read a block"
	default:
		s = e.Kind.Error()
		if e.Err != nil {
			s = firstReason(e.Err)
		}
	}
	if len(e.Notes) > 0 {
		s += "; " + strings.Join(e.Notes[:min(len(e.Notes), maxNotes)], "; ")
	}
	return s
}

// Reason returns the text for users about an error of Fetch; "" for nil.
func Reason(err error) string {
	var fetch *FetchError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &fetch):
		return fetch.Reason()
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "out of time"
	default:
		return firstReason(err)
	}
}

// firstReason returns the first part of a long chain of causes.
func firstReason(err error) string {
	const maxReason = 300
	s, _, _ := strings.Cut(err.Error(), "\n")
	if r := []rune(s); len(r) > maxReason {
		s = string(r[:maxReason]) + "..."
	}
	return s
}

func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}

// classify returns the kind of an error, such as ErrNotFound.
func classify(err error) error {
	for _, kind := range []error{ErrNotFound, ErrTooLarge, ErrInvalidBlock, ErrUnsupportedCodec, ErrMemory, ErrStore} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return ErrStore
}
