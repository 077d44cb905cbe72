// Package pinbody has the JSON objects of the Pinning Service API that describe one pin. All APIs
// that accept or return pins in this form use it.
//
// Imports: api/internal/web, cluster/pins, consensus/state.
// Never:   routes, the use case.
package pinbody

import (
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Parse parses a Pin object of the specification. It returns a 400 error if a known member has
// the wrong type; null is a wrong type. It ignores unknown members. It does not check the values
// or that there is a cid: the use case that receives p does.
func Parse(body []byte) (p pins.Request, err error) {
	fields, err := web.Object("the body", body)
	if err != nil {
		return p, err
	}
	if p.CID, _, err = fields.Text("cid"); err != nil {
		return p, err
	}
	var given bool
	if p.Name, given, err = fields.Text("name"); err != nil {
		return p, err
	} else if given {
		p.Given |= state.GivenName
	}
	if p.Origins, given, err = fields.Texts("origins"); err != nil {
		return p, err
	} else if given {
		p.Given |= state.GivenOrigins
	}
	if p.Meta, given, err = fields.Strings("meta"); err != nil {
		return p, err
	} else if given {
		p.Given |= state.GivenMeta
	}
	return p, nil
}

// TimeForm is the time format of the API: ISO 8601 with milliseconds in UTC. All values have the
// same length, so their lexical order is their order in time.
const TimeForm = "2006-01-02T15:04:05.000Z"

// Status is the PinStatus object of the Pinning Service API specification.
type Status struct {
	RequestID state.RequestID   `json:"requestid"`
	Status    string            `json:"status"`
	Created   string            `json:"created"`
	Pin       Pin               `json:"pin"`
	Delegates []string          `json:"delegates"`
	Info      map[string]string `json:"info,omitempty"`
}

// Pin is the Pin object as the client submitted it: members that the client omitted stay absent,
// and empty ones stay empty.
type Pin struct {
	CID     string            `json:"cid"`
	Name    *string           `json:"name,omitempty"`
	Origins []string          `json:"origins,omitzero"`
	Meta    map[string]string `json:"meta,omitzero"`
}

// Of returns the PinStatus object of a pin.
func Of(r *pins.Record) Status {
	s := Status{
		RequestID: r.ID,
		Status:    r.Status.String(),
		Created:   r.Created.Time().UTC().Format(TimeForm),
		Pin:       Pin{CID: r.CID},
		Delegates: r.Delegates,
		Info:      r.Info,
	}
	if r.Given&state.GivenName != 0 {
		s.Pin.Name = &r.Name
	}
	if r.Given&state.GivenOrigins != 0 {
		s.Pin.Origins = append([]string{}, r.Origins...)
	}
	if r.Given&state.GivenMeta != 0 {
		if s.Pin.Meta = r.Meta; s.Pin.Meta == nil {
			s.Pin.Meta = map[string]string{}
		}
	}
	if s.Delegates == nil {
		s.Delegates = []string{}
	}
	return s
}
