package web

import (
	"context"
	"errors"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Explained returns an answer function that adds a cause to errors of an unavailable cluster or a
// time-out: it appends the result of why to their detail, unless that is "". If why is nil, it
// returns answer unchanged.
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
