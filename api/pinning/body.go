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

// readPin reads the Pin object from the body of a request. It reserves memory from held for the
// body, and for the answer, which repeats the object. So a lack of memory is found before the pin
// is changed.
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

// inJSON is the maximum number of bytes in JSON for one byte of text, as in \u0000.
const inJSON = 6

// texts returns the total number of bytes of the CID, the name, the origins and the metadata of a
// pin.
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

// requestEnd returns the expiry of a new pin from the header UntilHeader. It returns the zero
// End, which means no expiry, if the header is absent. A malformed or repeated header is a 400
// error.
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

// listBuffer is the size in bytes of the buffer through which a list is sent row by row, because
// a page may have several megabytes.
const listBuffer = 32 << 10

// weight returns the approximate memory that rows occupy until they are sent, in bytes. It does
// not count data that the rows share.
func weight(rows []pins.Record) (bytes int64) {
	for i := range rows {
		bytes += int64(state.ListBytes(&rows[i].Pin))
	}
	return bytes
}

// writeResults answers with a PinResults object; total is its count. Its errors are those of the
// connection: encoding itself cannot fail, because rows contain only text and numbers.
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
