package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// An error page has 503 where the cluster or the node has no answer in time, and 500 only for an error that nobody expects.
func TestALateAnswerIsNoInternalError(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{state.ErrUnavailable, http.StatusServiceUnavailable},
		{fmt.Errorf("sign in: %w", context.DeadlineExceeded), http.StatusServiceUnavailable},
		{state.ErrLimited, http.StatusTooManyRequests},
		{errors.New("broken"), http.StatusInternalServerError},
	} {
		if got := troubleOf(tc.err); got.Status != tc.want || got.What == "" || got.Do == "" {
			t.Errorf("%v is %+v, want the status %d", tc.err, got, tc.want)
		}
	}
}
