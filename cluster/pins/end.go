package pins

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/duty"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// InfoUntil is the key of Record.Info with the end of the pin, as the Pinning Service API names it.
// The value is an RFC 3339 time in UTC. Pins without an end do not have it.
const InfoUntil = "pinned_until"

// endForm is RFC 3339 with milliseconds in UTC.
const endForm = "2006-01-02T15:04:05.000Z"

// endEvery is the time between two looks at whether a pin has ended.
const endEvery = time.Second

// maxEndText is the largest length of the text of an end in bytes.
const maxEndText = 64

// End is the end of a requested pin. At most one field is set; the zero End is none.
type End struct {
	At  state.Millis
	For time.Duration // counts from the time at which the cluster accepts the pin
}

// ParseEnd reads an RFC 3339 time, such as 2027-01-31T12:00:00Z, or a duration above zero, such as
// 720h. It rounds both down to milliseconds. Errors are state.CodeInvalid.
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

// setEnd sets the end and the bound of a new pin, by state.BeginsAt. It returns state.ErrInvalid if the end has
// passed, and state.ErrUnavailable if the cluster is below state.PinsEndLevel.
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

// withEnd returns info with the end of a pin. It copies info, because several records share it.
func withEnd(info map[string]string, until state.Millis) map[string]string {
	if until == 0 {
		return info
	}
	all := make(map[string]string, len(info)+1)
	maps.Copy(all, info)
	all[InfoUntil] = EndText(until)
	return all
}

// RunEnds ends pins while this node leads, until ctx ends. It then returns nil.
func (p *Pins) RunEnds(ctx context.Context) error {
	return duty.Every(ctx, endEvery, p.log, "pins not ended yet", p.EndPins)
}

// EndPins removes all pins whose end most members have reached, if this node leads. It does nothing
// while the time of most members is unknown. Another leader goes on where this one stops.
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
