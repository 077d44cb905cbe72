package pins

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/duty"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// InfoUntil is the key of the pin's end in Record.Info. The value is an RFC 3339 time in UTC.
// Pins without an end do not have this key.
const InfoUntil = "pinned_until"

// endForm is the time format of RFC 3339 with milliseconds in UTC.
const endForm = "2006-01-02T15:04:05.000Z"

// endEvery is the interval at which the leader checks whether pins have ended.
const endEvery = time.Second

// maxEndText is the largest length in bytes of a text that ParseEnd accepts.
const maxEndText = 64

// End is the time at which a requested pin ends. At most one field is set. The zero End means
// that the pin does not end.
type End struct {
	At  state.Millis
	For time.Duration // duration from the time at which the cluster accepts the pin
}

// ParseEnd parses an RFC 3339 time, such as 2027-01-31T12:00:00Z, or a positive duration, such as
// 720h. It rounds both down to milliseconds. Errors: state.ErrInvalid.
func ParseEnd(text string) (End, error) {
	if len(text) <= maxEndText {
		// RFC 3339 permits small letters, and time.Parse does not.
		if t, err := time.Parse(time.RFC3339, strings.ToUpper(text)); err == nil {
			if at := state.MillisOf(t); at > 0 {
				return End{At: at}, nil
			}
			return End{}, state.Errorf(state.CodeInvalid, "the end %q is in the past", text)
		}
		if d, err := time.ParseDuration(text); err == nil {
			if d >= time.Millisecond {
				return End{For: d}, nil
			}
			return End{}, state.Errorf(state.CodeInvalid, "the end %q is in no time: a pin lasts 1ms at least", text)
		}
	}
	return End{}, state.Errorf(state.CodeInvalid, "the end %q is neither an RFC 3339 time, such as 2027-01-31T12:00:00Z, nor a duration, such as 720h", quoted(text))
}

// EndText returns the end of a pin as the APIs show it, or "" if it has none.
func EndText(until state.Millis) string {
	if until == 0 {
		return ""
	}
	return until.Time().UTC().Format(endForm)
}

// setEnd sets Until and MaxBytes of a new pin as r requests them. It computes the current time by
// state.BeginsAt. It returns state.ErrInvalid if the end has passed, and state.ErrUnavailable if
// the feature level of the cluster is below state.PinsEndLevel.
func (p *Pins) setEnd(pin *state.Pin, r *Request) error {
	if r.End == (End{}) && r.MaxBytes == 0 {
		return nil
	}
	view, release := p.state.LocalView()
	level, err := view.FeatureLevel()
	release()
	if err != nil {
		return err
	}
	if level < state.PinsEndLevel {
		return state.Errorf(state.CodeUnavailable, "the cluster has no pins with an end until all members are upgraded: nothing was written")
	}
	pin.MaxBytes = r.MaxBytes
	now := state.BeginsAt(state.MillisOf(p.now()), p.agreed)
	switch {
	case r.End.For > 0:
		pin.Until = now + state.Millis(r.End.For.Milliseconds())
	case r.End.At == 0:
	case r.End.At <= now:
		return state.Errorf(state.CodeInvalid, "the end %s is in the past: the time of the cluster is %s", EndText(r.End.At), EndText(now))
	default:
		pin.Until = r.End.At
	}
	return nil
}

// withEnd returns a copy of info with the end of a pin. Several records share info, so it must
// not be changed. If until is 0, withEnd returns info itself.
func withEnd(info map[string]string, until state.Millis) map[string]string {
	if until == 0 {
		return info
	}
	all := make(map[string]string, len(info)+1)
	maps.Copy(all, info)
	all[InfoUntil] = EndText(until)
	return all
}

// RunEnds calls EndPins every endEvery until ctx ends, and then returns nil.
func (p *Pins) RunEnds(ctx context.Context) error {
	return duty.Every(ctx, endEvery, p.log, "pins not ended yet", p.EndPins)
}

// EndPins deletes all pins whose end the clocks of most members have reached, if this node is the
// leader. It does nothing while the time of most members is unknown. If it is interrupted, the
// next leader continues.
//
// Errors: state.ErrUnavailable without a majority.
func (p *Pins) EndPins(ctx context.Context) error {
	ends := duty.Duty{State: p.state, Agreed: p.agreed, Due: func(view state.View, now state.Millis) (state.Command, error) {
		due, err := view.PinsDue(now)
		if err != nil || !due {
			return nil, err
		}
		return &state.EndPins{Now: now}, nil
	}}
	return ends.Do(ctx)
}
