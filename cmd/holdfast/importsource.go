package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/multiformats/go-multiaddr"
)

// Names of --format.
const (
	formatAuto    = "auto"
	formatCluster = "ipfs-cluster"
	formatIPFS    = "ipfs"
)

var importFormats = []string{formatAuto, formatCluster, formatIPFS}

// maxImportLine bounds a line of a file, in bytes.
const maxImportLine = 1 << 20

// fileSource returns a source that reads one pin per line.
func fileSource(in io.Reader, format string) importSource {
	return func(ctx context.Context, fn func(client.Pin, error) error) error {
		lines := bufio.NewReaderSize(in, maxImportLine)
		for n := 1; ; n++ {
			line, err := readLine(lines)
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, bufio.ErrBufferFull):
				if err := fn(client.Pin{}, fmt.Errorf("line %d: longer than %d bytes", n, maxImportLine)); err != nil {
					return err
				}
				continue
			case err != nil:
				return fmt.Errorf("read pins: %w", err)
			case line == "":
				continue
			}
			read := readIPFS
			if format == formatCluster || format == formatAuto && strings.HasPrefix(line, "{") {
				read = readCluster
			}
			pin, err := read(line)
			if !utf8.ValidString(line) {
				err = errNoText
			}
			if err != nil && !errors.Is(err, errSkipped) {
				err = fmt.Errorf("line %d: %w", n, err)
			}
			if err := fn(pin, err); err != nil {
				return err
			}
		}
	}
}

// readLine reads a line and trims the white space around it. It skips a line that does not fit
// into the buffer, and returns bufio.ErrBufferFull for it.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = bufio.ErrBufferFull
		}
		return "", err
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil // the last one
	}
	return strings.TrimSpace(string(line)), err
}

// clusterPin tells an ordinary pin from the parts of sharded DAGs by its type, an
// api.PinType of ipfs-cluster: "pin" in an export of release 1.1.6, and also the number
// 2. A line without a type is an ordinary pin.
func clusterPin(kind json.RawMessage) (bool, error) {
	unknown := fmt.Errorf("ipfs-cluster has no pin type %s", kind)
	var name string
	if json.Unmarshal(kind, &name) == nil {
		switch name {
		case "pin", "":
			return true, nil
		case "meta-pin", "clusterdag-pin", "shard-pin":
			return false, nil
		}
		return false, unknown // of kubo, for one, whose lists in JSON are not read
	}
	var number int
	if len(kind) > 0 && json.Unmarshal(kind, &number) != nil {
		return false, unknown
	}
	return number == 2 || len(kind) == 0, nil
}

// readCluster reads a line of `ipfs-cluster-service state export`, an api.Pin of ipfs-cluster.
// The CID is a string. In exports of releases before 1.0 it is an object of the form {"/":
// "CID"}.
func readCluster(line string) (client.Pin, error) {
	var row struct {
		CID      json.RawMessage   `json:"cid"`
		Type     json.RawMessage   `json:"type"`
		Name     string            `json:"name"`
		Mode     json.RawMessage   `json:"mode"`
		MaxDepth *int              `json:"max_depth"`
		Metadata map[string]string `json:"metadata"`
		Origins  []string          `json:"origins"`
		ExpireAt time.Time         `json:"expire_at"`
	}
	if err := json.Unmarshal([]byte(line), &row); err != nil {
		return client.Pin{}, fmt.Errorf("not a line of an ipfs-cluster export: %w", err)
	}
	var text string
	if json.Unmarshal(row.CID, &text) != nil {
		var link struct {
			CID string `json:"/"`
		}
		if json.Unmarshal(row.CID, &link) != nil {
			return client.Pin{}, errors.New("no cid")
		}
		text = link.CID
	}
	pin := client.Pin{CID: text, Name: row.Name, Meta: row.Metadata, Origins: row.Origins}
	direct := string(row.Mode) == `"direct"` || string(row.Mode) == "1" || row.MaxDepth != nil && *row.MaxDepth >= 0
	expired := row.ExpireAt.Year() > 1970 && row.ExpireAt.Before(time.Now())
	ordinary, err := clusterPin(row.Type)
	if err != nil {
		return pin, err
	}
	if !ordinary || direct || expired {
		return pin, errSkipped
	}
	return pin, nil
}

// readIPFS reads a line of `ipfs pin ls`: a CID, with its type unless --quiet was
// given, and with --names its name. It skips indirect pins, because they come with their
// root, and direct pins, because they keep a single block.
func readIPFS(line string) (client.Pin, error) {
	text, rest, _ := strings.Cut(line, " ")
	kind, name, _ := strings.Cut(strings.TrimSpace(rest), " ")
	pin := client.Pin{CID: text, Name: strings.TrimSpace(name)}
	switch kind {
	case "", "recursive":
		return pin, nil
	case "direct", "indirect":
		return pin, errSkipped
	}
	return pin, fmt.Errorf("not a line of ipfs pin ls: %q is not a kind of pin", kind)
}

// Bounds of reading from another pinning service.
const (
	remoteTimeout = time.Minute
	remotePage    = 1000     // rows of a page, the maximum of the API
	maxRemotePage = 64 << 20 // bytes of a page
	// maxOriginLen is the maximum length of an origin, in bytes. The Pinning Service API of
	// Holdfast has the same limit.
	maxOriginLen = 1 << 10
	// leastDelegates is the number of delegates that become origins of a new pin even if the
	// pin has the maximum number of origins.
	leastDelegates = 4
)

// remoteService is another pinning service.
type remoteService struct {
	base, token string
	statuses    []string
	http        *http.Client
	pause       func(context.Context, time.Duration) error
	tell        func(why error, wait time.Duration, left int) // called before each pause
}

// remotePins is a PinResults object; fields that a service adds are ignored. Each row is
// decoded separately, so that a malformed row does not affect the others.
type remotePins struct {
	Count   int64             `json:"count"`
	Results []json.RawMessage `json:"results"`
}

// remoteRow is a PinStatus object.
type remoteRow struct {
	RequestID string    `json:"requestid"`
	Created   time.Time `json:"created"`
	Pin       struct {
		CID     string            `json:"cid"`
		Name    string            `json:"name"`
		Origins []string          `json:"origins"`
		Meta    map[string]string `json:"meta"`
	} `json:"pin"`
	Delegates []string `json:"delegates"`
}

// readRow reads a row. For a bad row it returns an error and the id, the CID and the time, if
// they are readable.
func readRow(raw json.RawMessage) (row remoteRow, err error) {
	if !utf8.Valid(raw) {
		err = errors.New("it is not UTF-8")
	} else if err = json.Unmarshal(raw, &row); err == nil {
		return row, nil
	}
	row = remoteRow{}
	var fields, pin map[string]json.RawMessage
	_ = json.Unmarshal(raw, &fields) // what is not there stays empty, here and below
	_ = json.Unmarshal(fields["requestid"], &row.RequestID)
	_ = json.Unmarshal(fields["created"], &row.Created)
	_ = json.Unmarshal(fields["pin"], &pin)
	_ = json.Unmarshal(pin["cid"], &row.Pin.CID)
	return row, fmt.Errorf("cannot read the row of request %q: %w", row.RequestID, err)
}

// count returns the number of pins of the service.
func (s *remoteService) count(ctx context.Context) (int64, error) {
	page, err := s.page(ctx, time.Time{}, 1)
	return page.Count, err
}

// unreachedError is the error of pins that a service counts but does not list.
type unreachedError struct{ given, counted int64 }

func (e *unreachedError) Error() string {
	return fmt.Sprintf("the service counts %d pins and gave %d of them: the rest cannot be paged to, such as pins of one time that do not fit on a page",
		e.counted, e.given)
}

// each calls fn for all pins of the service, from the newest to the oldest. It reads pages
// until the service returns no further rows, because a page may be shorter than requested. The
// next page begins a millisecond before the oldest row of the last page. This finds pins with
// the same time as that row, even on a service that gives several pins the same time; each
// skips rows that it has seen already, by their ids. If the service counts more pins than it
// listed, each returns an unreachedError.
func (s *remoteService) each(ctx context.Context, fn func(client.Pin, error) error) error {
	var before time.Time
	seen := map[string]bool{} // ids of the last page
	given, first := int64(0), int64(-1)
	for {
		page, err := s.page(ctx, before, remotePage)
		if err != nil {
			return err
		}
		if first < 0 {
			first = page.Count
		}
		now := make(map[string]bool, len(page.Results))
		fresh := 0
		var oldest time.Time
		for _, raw := range page.Results {
			row, problem := readRow(raw)
			if !row.Created.IsZero() {
				oldest = row.Created
			}
			id := row.RequestID
			if id == "" {
				id = string(raw)
			}
			now[id] = true
			if seen[id] {
				continue
			}
			fresh++
			if err := fn(row.asPin(), problem); err != nil {
				return err
			}
		}
		given += int64(fresh)
		switch {
		case len(page.Results) == 0, fresh == 0 && (oldest.IsZero() || !before.IsZero() && !before.After(oldest)):
			return s.reached(ctx, given, first) // nothing older; a service may count the moment itself in
		case oldest.IsZero():
			return errors.New("the service returned a page without creation times, so the command cannot request the next page")
		case fresh == 0: // all of one moment: what else it has of that cannot be reached
			before = oldest
		default:
			before = oldest.Add(time.Millisecond)
		}
		seen = now
	}
}

// reached returns an unreachedError if the service counts more pins than it listed. Pins
// that were removed during the import do not count.
func (s *remoteService) reached(ctx context.Context, given, counted int64) error {
	if given >= counted {
		return nil
	}
	now, err := s.count(ctx)
	if err != nil {
		return err
	}
	if counted = min(counted, now); given < counted {
		return &unreachedError{given, counted}
	}
	return nil
}

// asPin returns the pin to create for a row. Its origins are those of the row and then the
// delegates, because the nodes that hold the pin there can send its content. It omits
// delegates that it cannot parse. Origins may be outdated, so the last ones make room for
// some delegates.
func (r *remoteRow) asPin() client.Pin {
	usable := slices.DeleteFunc(slices.Clone(r.Delegates), func(d string) bool { return !usableOrigin(d) })
	own := r.Pin.Origins
	own = own[:min(len(own), maxOrigins-min(len(usable), leastDelegates))]
	return client.Pin{CID: r.Pin.CID, Name: r.Pin.Name, Meta: r.Pin.Meta, Origins: joinOrigins(own, usable)}
}

// usableOrigin reports whether a node accepts an origin.
func usableOrigin(o string) bool {
	_, err := multiaddr.NewMultiaddr(o)
	return err == nil && len(o) <= maxOriginLen
}

// page reads one page of pins older than a time; the zero time means the newest pins.
func (s *remoteService) page(ctx context.Context, before time.Time, limit int) (page remotePins, err error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}, "status": {strings.Join(s.statuses, ",")}}
	if !before.IsZero() {
		q.Set("before", before.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	}
	for try := 1; ; try++ {
		later, err := s.get(ctx, "/pins?"+q.Encode(), &page)
		if err == nil || ctx.Err() != nil || later < 0 || try == importTries {
			return page, err
		}
		wait := pauseAfter(later, try)
		s.tell(err, wait, importTries-try)
		if err := s.pause(ctx, wait); err != nil {
			return page, err
		}
	}
}

// get reads one answer. After an error, later is the pause before the next attempt: the pause
// that the service asked for, 0 if it asked for none, or less than 0 if an attempt is useless.
func (s *remoteService) get(ctx context.Context, path string, into any) (later time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return -1, fmt.Errorf("import: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Accept", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("request to the service: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxRemotePage))
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the service's answer: %w", err)
	case resp.StatusCode == http.StatusOK:
		if err := json.Unmarshal(data, into); err != nil {
			return -1, fmt.Errorf("read the service's answer: %w", err)
		}
		return 0, nil
	}
	err = fmt.Errorf("the service answered %s: %.200s", resp.Status, printable(string(data)))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError {
		return client.RetryAfter(resp.Header, time.Now()), err
	}
	return -1, err
}
