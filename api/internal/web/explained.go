package web

import (
	"context"
	"errors"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Explained returns an answer function that appends why to the detail of errors for which
// the cluster could not decide, unless why returns "". A nil why explains nothing.
func Explained(answer func(error) Answer, why func() string) func(error) Answer {
	if why == nil {
		return answer
	}
	return func(err error) Answer {
		a := answer(err)
		if !errors.Is(err, state.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return a
		}
		if text := why(); text != "" {
			a.Detail += ": " + text
		}
		return a
	}
}
