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

// Values of the flag --format. With formatAuto the program detects the format of each line.
const (
	formatAuto    = "auto"
	formatCluster = "ipfs-cluster"
	formatIPFS    = "ipfs"
)

var importFormats = []string{formatAuto, formatCluster, formatIPFS}

// maxImportLine is the maximum length of a line of an import file, in bytes.
const maxImportLine = 1 << 20

// fileSource returns a source that reads one pin from each line of in. format is one of
// importFormats.
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

// readLine reads a line and returns it without surrounding white space. If a line does not fit
// into the buffer of in, readLine skips the line and returns bufio.ErrBufferFull.
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

// clusterPin reports whether kind, an api.PinType of ipfs-cluster in JSON, is the type of an
// ordinary pin. All other types are parts of sharded DAGs. An export of release 1.1.6 has "pin"
// for an ordinary pin. clusterPin also accepts the number 2, and an absent type. It returns an
// error for a value that is no PinType.
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

// readCluster parses a line of `ipfs-cluster-service state export`, which is an api.Pin of
// ipfs-cluster in JSON. The CID is a string, or in exports of releases before 1.0 an object of
// the form {"/": "CID"}. The error is errSkipped for parts of sharded DAGs, expired pins, and
// pins that do not cover the whole DAG.
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

// readIPFS parses a line of `ipfs pin ls`: a CID, then the type unless --quiet was given, then
// the name if --names was given. The error is errSkipped for an indirect pin, because its
// recursive root is in the list too, and for a direct pin, because it covers only a single block.
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

// Limits of reading from another pinning service.
const (
	remoteTimeout = time.Minute
	remotePage    = 1000     // pins in one page of the list, the maximum of the API
	maxRemotePage = 64 << 20 // size of a page in bytes
	// maxOriginLen is the maximum length of an origin, in bytes. The Pinning Service API of
	// Holdfast has the same limit.
	maxOriginLen = 1 << 10
	// leastDelegates is the number of delegates that asPin adds to the origins of a pin even if
	// the pin already has the maximum number of origins.
	leastDelegates = 4
)

// remoteService is a client of another pinning service, from which pins are imported.
type remoteService struct {
	base, token string
	statuses    []string
	http        *http.Client
	pause       func(context.Context, time.Duration) error
	tell        func(why error, wait time.Duration, left int) // called before each pause
}

// remotePins is one page of the list of pins: a PinResults object of the Pinning Service API.
// Fields that a service adds are ignored. Each pin is decoded separately, so that a malformed one
// does not affect the others.
type remotePins struct {
	Count   int64             `json:"count"`
	Results []json.RawMessage `json:"results"`
}

// remoteRow is one pin of another service: a PinStatus object of the Pinning Service API.
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

// readRow decodes a pin of another service. If the JSON is malformed for a pin, it returns an
// error together with the id, the CID and the creation time, as far as it can decode them.
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

// count returns the number of pins that the service reports.
func (s *remoteService) count(ctx context.Context) (int64, error) {
	page, err := s.page(ctx, time.Time{}, 1)
	return page.Count, err
}

// unreachedError means that a service reports counted pins, but its pages contained only given of
// them.
type unreachedError struct{ given, counted int64 }

func (e *unreachedError) Error() string {
	return fmt.Sprintf("the service counts %d pins and gave %d of them: the rest cannot be paged to, such as pins of one time that do not fit on a page",
		e.counted, e.given)
}

// each is an importSource that returns all pins of the service, from the newest to the oldest. A
// page may be shorter than requested, so each requests pages until the service returns no further
// pins. The request for the next page asks for pins created before the oldest pin of the last
// page plus one millisecond. It thus includes other pins with the same creation time. By their
// ids, each skips pins that the last page contained. If the service reports more pins than its
// pages contained, each returns an unreachedError.
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

// reached returns an unreachedError if given, the number of pins that the pages contained, is
// less than counted, the number that the service reported at the beginning. It first asks for the
// number again, because pins may have been removed during the import.
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

// asPin returns the pin to create for a pin of another service. Its origins are those of that
// pin, followed by the usable delegates of the service, because the delegates can send the
// content. If there are too many, asPin drops the last origins for at most leastDelegates
// delegates, because origins may be outdated.
func (r *remoteRow) asPin() client.Pin {
	usable := slices.DeleteFunc(slices.Clone(r.Delegates), func(d string) bool { return !usableOrigin(d) })
	own := r.Pin.Origins
	own = own[:min(len(own), maxOrigins-min(len(usable), leastDelegates))]
	return client.Pin{CID: r.Pin.CID, Name: r.Pin.Name, Meta: r.Pin.Meta, Origins: joinOrigins(own, usable)}
}

// usableOrigin reports whether a node accepts o as an origin: o is a multiaddr and not too long.
func usableOrigin(o string) bool {
	_, err := multiaddr.NewMultiaddr(o)
	return err == nil && len(o) <= maxOriginLen
}

// page requests up to limit pins that were created before a time; the zero time requests the
// newest pins. It repeats a request that failed for a temporary reason.
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

// get sends one GET request and decodes the JSON response into into. After an error, later is the
// pause before the next attempt that the service requested. later is 0 if it requested none, and
// negative if another attempt is useless.
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
