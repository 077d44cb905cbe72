package duty

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// fake is a state in which commands are due until left is 0.
type fake struct {
	leads, known bool
	left         int
	now          state.Millis
	proposed     []state.Command
	released     int
	fails        error
}

func (f *fake) LocalView() (view state.View, release func()) {
	return state.View{}, func() { f.released++ }
}

func (f *fake) Propose(_ context.Context, cmd state.Command) (state.Result, error) {
	if f.fails != nil {
		return state.Result{}, f.fails
	}
	f.left--
	f.proposed = append(f.proposed, cmd)
	return state.Result{}, nil
}

func (f *fake) IsLeader() bool { return f.leads }

func (f *fake) duty(pause time.Duration) *Duty {
	return &Duty{
		State: f, Pause: pause,
		Agreed: func() (early, late state.Millis, ok bool) { return f.now, f.now + 5, f.known },
		Due: func(_ state.View, now state.Millis) (state.Command, error) {
			switch {
			case f.left < 0:
				return nil, errBroken
			case f.left == 0:
				return nil, nil
			}
			return &state.EndPins{Now: now}, nil
		},
	}
}

var errBroken = errors.New("broken")

// A leader that knows the agreed time proposes commands until none is due, and no other node proposes one. An error
// ends the pass.
func TestOnlyTheLeaderDoesWhatIsDue(t *testing.T) {
	for name, tc := range map[string]struct {
		f    fake
		want int
		err  error
	}{
		"all that is due":      {fake{leads: true, known: true, left: 3, now: 7}, 3, nil},
		"nothing is due":       {fake{leads: true, known: true}, 0, nil},
		"a follower":           {fake{known: true, left: 3}, 0, nil},
		"no agreed time":       {fake{leads: true, left: 3}, 0, nil},
		"no majority":          {fake{leads: true, known: true, left: 3, fails: state.ErrUnavailable}, 0, state.ErrUnavailable},
		"a state with a fault": {fake{leads: true, known: true, left: -1}, 0, errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			f := tc.f
			if err := f.duty(0).Do(t.Context()); !errors.Is(err, tc.err) {
				t.Errorf("the error is %v, want %v", err, tc.err)
			}
			if len(f.proposed) != tc.want {
				t.Errorf("%d commands were proposed, want %d", len(f.proposed), tc.want)
			}
			for _, cmd := range f.proposed {
				if end, ok := cmd.(*state.EndPins); !ok || end.Now != 7 {
					t.Errorf("%+v was proposed", cmd)
				}
			}
			if wanted := len(f.proposed) + 1; f.leads && f.known && f.released != wanted {
				t.Errorf("%d views were released, want %d", f.released, wanted)
			}
		})
	}
}

// A duty pauses after each command, and the end of its context ends the pause.
func TestADutyPausesBetweenCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{leads: true, known: true, left: 10}
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := f.duty(time.Second).Do(ctx); err != nil || len(f.proposed) != 4 || time.Since(begin) != 3500*time.Millisecond {
			t.Errorf("%d commands in %v, %v", len(f.proposed), time.Since(begin), err)
		}
	})
}

// Every runs one pass in each interval until its context ends, also after a pass that failed, and logs the error of
// that pass.
func TestEveryPassFollowsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		var logged bytes.Buffer
		log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
		passes := 0
		err := Every(ctx, time.Second, log, "not done yet", func(context.Context) error {
			if passes++; passes == 2 {
				return errBroken
			}
			return nil
		})
		if err != nil || passes != 3 {
			t.Errorf("%d passes, %v", passes, err)
		}
		if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "not done yet") || !strings.Contains(text, "broken") {
			t.Errorf("the log is %q", text)
		}
	})
}
