package console

import (
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// overviewRows is the number of pins in each list of the overview.
const overviewRows = 5

// overviewData is the data of the page /.
type overviewData struct {
	Endpoints
	Has      accounts.Holdings
	Statuses []statusCount
	Used     uint64 // bytes that the account uses
	Free     uint64 // bytes of the allowance that are left
	Percent  int    // used part of the allowance in percent
	Usage    chart  // storage on the last 30 days
	Recent   []pins.Record
	Failed   []pins.Record
	Objects  []objectChange // the newest changes of objects
}

// objectChange is a row in the list of recent changes of objects.
type objectChange struct {
	state.ObjectChange
	Address  string // address of the page of the object; empty if it was deleted
	InBucket string // address of the page of the bucket
}

// statusCount is the number of pins with a status.
type statusCount struct {
	Status state.Status
	Count  uint64
}

// Endpoints are the URLs of the two APIs that a page shows for copying. The URL of an API that
// this node does not serve is empty.
type Endpoints struct{ Pinning, S3, Region string }

// S3Host returns the host and port of the S3 gateway.
func (e Endpoints) S3Host() string { _, host, _ := strings.Cut(e.S3, "://"); return host }

// S3Plain reports whether the URL of the S3 gateway uses plain HTTP.
func (e Endpoints) S3Plain() bool { return strings.HasPrefix(e.S3, "http://") }

// statuses are the statuses of pins, in the order in which pages show them.
var statuses = []state.Status{state.Queued, state.Pinning, state.Pinned, state.Failed}

// overview serves GET /, the start page of an account: its storage, its usage and its newest
// pins.
func (s *surface) overview(c *call) error {
	has, err := s.Accounts.Holdings(c.ctx, string(c.who.Account))
	if err != nil {
		return err
	}
	d := overviewData{Endpoints: s.endpoints(c), Has: has, Used: has.Quota.Used()}
	if has.Quota.Allowance > d.Used {
		d.Free = has.Quota.Allowance - d.Used
	}
	d.Percent = percentOf(d.Used, has.Quota.Allowance)
	days, err := s.Accounts.Usage(c.ctx, c.who.Account, overviewDays)
	if err != nil {
		return err
	}
	d.Usage = storageChart(days)
	for _, st := range statuses {
		d.Statuses = append(d.Statuses, statusCount{st, has.Pins[st]})
	}
	if _, d.Recent, err = s.Pins.List(c.ctx, c.who.Account, state.PinQuery{Statuses: statuses, Limit: overviewRows}); err != nil {
		return err
	}
	if has.Pins[state.Failed] > 0 {
		if _, d.Failed, err = s.Pins.List(c.ctx, c.who.Account, state.PinQuery{Statuses: []state.Status{state.Failed}, Limit: overviewRows}); err != nil {
			return err
		}
	}
	for _, o := range s.Objects.Lately(c.who.Account) {
		row := objectChange{ObjectChange: o, InBucket: bucketAddress(o.Bucket, "")}
		if !o.Deleted {
			row.Address = objectAddress(o.Bucket, o.Key, "")
		}
		d.Objects = append(d.Objects, row)
	}
	return s.show(c, http.StatusOK, "overview", "Overview", "overview", d)
}

// endpoints returns the URLs of the APIs with the host and scheme that this browser uses.
func (s *surface) endpoints(c *call) Endpoints {
	scheme := s.Limits.Scheme(c.r)
	return Endpoints{Pinning: s.PinningURL(c.r.Host, scheme), S3: s.S3URL(c.r.Host, scheme), Region: s.Region}
}
