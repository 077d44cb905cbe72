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
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// Names of --format.
const (
	formatCluster = "ipfs-cluster"
	formatIPFS    = "ipfs"
)

// maxImportLine bounds a line of a file, in bytes.
const maxImportLine = 1 << 20

// fileSource reads one pin a line.
func fileSource(in io.Reader, format string) importSource {
	return func(ctx context.Context, fn func(client.Pin, error) error) error {
		lines := bufio.NewScanner(in)
		lines.Buffer(make([]byte, 0, 64<<10), maxImportLine)
		for n := 1; lines.Scan(); n++ {
			line := strings.TrimSpace(lines.Text())
			if line == "" {
				continue
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			read := readIPFS
			if format == formatCluster || format == "auto" && strings.HasPrefix(line, "{") {
				read = readCluster
			}
			pin, err := read(line)
			if err != nil && !errors.Is(err, errSkipped) {
				err = fmt.Errorf("line %d: %w", n, err)
			}
			if err := fn(pin, err); err != nil {
				return err
			}
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("read pins: %w", err)
		}
		return nil
	}
}

// clusterDataPin is the number of an ordinary pin among the pin types of
// ipfs-cluster (api.PinType); the others are parts of sharded DAGs.
const clusterDataPin = 2

// readCluster reads a line of `ipfs-cluster-service state export`, an api.Pin of
// ipfs-cluster. The CID is a string, in exports of releases before 1.0 {"/": ...}.
func readCluster(line string) (client.Pin, error) {
	var row struct {
		CID      json.RawMessage   `json:"cid"`
		Type     *int              `json:"type"`
		Name     string            `json:"name"`
		Mode     json.RawMessage   `json:"mode"`
		MaxDepth *int              `json:"max_depth"`
		Metadata map[string]string `json:"metadata"`
		Origins  []string          `json:"origins"`
		ExpireAt time.Time         `json:"expire_at"`
	}
	if err := json.Unmarshal([]byte(line), &row); err != nil {
		return client.Pin{}, fmt.Errorf("no line of ipfs-cluster's export: %w", err)
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
	if row.Type != nil && *row.Type != clusterDataPin || direct || expired {
		return pin, errSkipped
	}
	return pin, nil
}

// readIPFS reads a line of `ipfs pin ls`: a CID, with its type unless --quiet was
// given, and with --names its name. What is pinned indirectly comes with its root,
// and a direct pin keeps one block alone: both are skipped.
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
	return pin, fmt.Errorf("no line of ipfs pin ls: %q is no kind of pin", kind)
}

// Bounds of reading from another service.
const (
	remoteTimeout = time.Minute
	remotePage    = 1000     // rows, the most that the API allows
	maxRemotePage = 64 << 20 // bytes
)

// remoteService is another pinning service.
type remoteService struct {
	base, token string
	statuses    []string
	http        *http.Client
	pause       func(context.Context, time.Duration) error
}

// remotePins is a PinResults object; fields that a service adds are ignored.
type remotePins struct {
	Count   int64 `json:"count"`
	Results []struct {
		RequestID string    `json:"requestid"`
		Created   time.Time `json:"created"`
		Pin       struct {
			CID     string            `json:"cid"`
			Name    string            `json:"name"`
			Origins []string          `json:"origins"`
			Meta    map[string]string `json:"meta"`
		} `json:"pin"`
		Delegates []string `json:"delegates"`
	} `json:"results"`
}

// count asks how many pins there are.
func (s *remoteService) count(ctx context.Context) (int64, error) {
	page, err := s.page(ctx, time.Time{}, 1)
	return page.Count, err
}

// each walks back in time. The next page begins a millisecond before the end of
// the last, so that pins of the same time as its last row are not lost where a
// service does not keep times apart; rows that come twice are known by their ids.
func (s *remoteService) each(ctx context.Context, fn func(client.Pin, error) error) error {
	var before time.Time
	seen := map[string]bool{} // ids of the last page
	for {
		page, err := s.page(ctx, before, remotePage)
		if err != nil {
			return err
		}
		now := make(map[string]bool, len(page.Results))
		fresh := 0
		for _, row := range page.Results {
			now[row.RequestID] = true
			if seen[row.RequestID] {
				continue
			}
			fresh++
			pin := client.Pin{CID: row.Pin.CID, Name: row.Pin.Name, Meta: row.Pin.Meta}
			// Who holds it there can give it.
			pin.Origins = joinOrigins(row.Pin.Origins, row.Delegates)
			if err := fn(pin, nil); err != nil {
				return err
			}
		}
		if len(page.Results) < remotePage {
			return nil
		}
		oldest := page.Results[len(page.Results)-1].Created
		switch next := oldest.Add(time.Millisecond); {
		case fresh == 0 && !before.After(oldest):
			return errors.New("the service repeats a page")
		case fresh == 0: // a whole page of one moment: what else it has of that cannot be reached
			before = oldest
		default:
			before = next
		}
		seen = now
	}
}

// page reads one page; the zero time begins with the newest.
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
		if err := s.pause(ctx, pauseAfter(later, try)); err != nil {
			return page, err
		}
	}
}

// get reads one answer. later says when to try again after an error: as long as
// the service asked for, 0 when it did not say, less than 0 never.
func (s *remoteService) get(ctx context.Context, path string, into any) (later time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return -1, fmt.Errorf("import: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Accept", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask the service: %w", err)
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
