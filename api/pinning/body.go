package pinning

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// readPin reads the Pin object from the body of a request. It also reserves memory for the
// answer, which repeats the object, before anything is changed.
func readPin(w http.ResponseWriter, r *http.Request, held *web.Held) (pins.Request, error) {
	body, err := web.Body(w, r, web.MaxJSONBody, held)
	if err != nil {
		return pins.Request{}, err
	}
	p, err := parsePin(body)
	if err != nil {
		return p, err
	}
	// The answer repeats these texts.
	return p, held.Grow(inJSON * texts(&p))
}

// inJSON is the maximum number of bytes of one byte in JSON.
const inJSON = 6

// texts returns the number of bytes of all texts of a pin.
func texts(p *pins.Request) (bytes int64) {
	bytes = int64(len(p.CID) + len(p.Name))
	for _, o := range p.Origins {
		bytes += int64(len(o))
	}
	for k, v := range p.Meta {
		bytes += int64(len(k) + len(v))
	}
	return bytes
}

// parsePin parses a Pin object and checks the types of its members. The use case checks their
// values, and that there is a cid. parsePin ignores unknown members. A null member has the wrong
// type.
func parsePin(body []byte) (p pins.Request, err error) {
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

// requestEnd returns the end of a pin that the header of a request names. The zero End means that
// there is no header.
func requestEnd(r *http.Request) (end pins.End, err error) {
	values := r.Header[web.UntilHeader]
	if len(values) == 0 {
		return end, nil
	}
	if len(values) > 1 {
		return end, web.BadRequest("%s is there %d times", web.UntilHeader, len(values))
	}
	if end, err = pins.ParseEnd(values[0]); err != nil {
		return end, fmt.Errorf("%s: %w", web.UntilHeader, err)
	}
	return end, nil
}

// createdForm is ISO 8601 with milliseconds in UTC. All values have the same length, so the order
// of texts is that of times.
const createdForm = "2006-01-02T15:04:05.000Z"

// pinStatus is the PinStatus object of the specification.
type pinStatus struct {
	RequestID state.RequestID   `json:"requestid"`
	Status    string            `json:"status"`
	Created   string            `json:"created"`
	Pin       pinObject         `json:"pin"`
	Delegates []string          `json:"delegates"`
	Info      map[string]string `json:"info,omitempty"`
}

// pinObject is the Pin object as submitted: absent members stay absent, and empty ones stay
// empty.
type pinObject struct {
	CID     string            `json:"cid"`
	Name    *string           `json:"name,omitempty"`
	Origins []string          `json:"origins,omitzero"`
	Meta    map[string]string `json:"meta,omitzero"`
}

func statusOf(r *pins.Record) pinStatus {
	s := pinStatus{
		RequestID: r.ID,
		Status:    r.Status.String(),
		Created:   r.Created.Time().Format(createdForm),
		Pin:       pinObject{CID: r.CID},
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

// listBuffer is the size of the buffer of a list, in bytes. A page can have some megabytes, so it
// is sent row by row.
const listBuffer = 32 << 10

// weight returns the approximate memory of rows until the last is sent, in bytes, without the
// parts that they share.
func weight(rows []pins.Record) (bytes int64) {
	for i := range rows {
		bytes += int64(state.ListBytes(&rows[i].Pin))
	}
	return bytes
}

// writeResults answers with a PinResults object. Encoding cannot fail, because rows have only
// text and numbers. Its errors are those of the connection.
func writeResults(w http.ResponseWriter, total uint64, rows []pins.Record) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, listBuffer)
	encoder := json.NewEncoder(out)
	_, _ = out.WriteString(`{"count":` + strconv.FormatUint(total, 10) + `,"results":[`) // Flush returns the error
	for i := range rows {
		if i > 0 {
			_ = out.WriteByte(',') // Flush returns the error
		}
		if err := encoder.Encode(statusOf(&rows[i])); err != nil {
			return fmt.Errorf("write list: %w", err)
		}
	}
	_, _ = out.WriteString("]}") // Flush returns the error
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	return nil
}
