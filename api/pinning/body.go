package pinning

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/api/internal/pinbody"
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
	p, err := pinbody.Parse(body)
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
		if err := encoder.Encode(pinbody.Of(&rows[i])); err != nil {
			return fmt.Errorf("write list: %w", err)
		}
	}
	_, _ = out.WriteString("]}") // Flush returns the error
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	return nil
}
