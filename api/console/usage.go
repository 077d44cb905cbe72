package console

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// overviewDays is the number of days in the chart of the overview.
const overviewDays = 30

// Size of a chart, in the units of its drawing.
const chartWidth, chartHeight = 600, 120

// leastDays is the minimum number of days on the axis of a chart, so that a few days do not get
// very wide bars.
const leastDays = 30

// chart is the data of a bar chart with one value for each day.
type chart struct {
	Title       string
	Description string // text alternative for screen readers
	Bars        []bar
	Top         string // the largest value as text
	From, To    time.Time
}

// bar is the bar of one day in a chart. Its position and size are in the units of the drawing.
type bar struct {
	X, Y, Width, Height string
	Day                 time.Time
	Value               string // value as text
}

// Newest returns the bars in the order newest day first.
func (c chart) Newest() []bar {
	bars := slices.Clone(c.Bars)
	slices.Reverse(bars)
	return bars
}

// usageData is the data of the page /usage.
type usageData struct {
	Has              accounts.Holdings
	Storage, Request chart
	Days             []state.Usage // newest day first
	Ledger           ledgerData
}

// usagePage serves GET /usage, the page with the storage, the requests and the credit ledger of
// the caller's account.
func (s *surface) usagePage(c *call) error {
	has, err := s.Accounts.Holdings(c.ctx, string(c.who.Account))
	if err != nil {
		return err
	}
	days, err := s.Accounts.Usage(c.ctx, c.who.Account, state.UsageDays)
	if err != nil {
		return err
	}
	d := usageData{Has: has, Storage: storageChart(days), Request: requestChart(days)}
	for i := range days {
		d.Days = append(d.Days, days[len(days)-1-i])
	}
	if d.Ledger, err = s.ledgerOf(c, c.who.Account, "/usage"); err != nil {
		return err
	}
	return s.show(c, http.StatusOK, "usage", "Usage", "usage", d)
}

// usageCSV serves GET /usage.csv: the usage of each day as CSV.
func (s *surface) usageCSV(c *call) error {
	days, err := s.Accounts.Usage(c.ctx, c.who.Account, state.UsageDays)
	if err != nil {
		return err
	}
	as := commaSeparated([]string{"day", "stored_bytes", "requests"}, func(u *state.Usage) []string {
		return []string{u.Day.Time().UTC().Format(time.DateOnly), strconv.FormatUint(u.Stored, 10), strconv.FormatUint(u.Requests, 10)}
	})
	return export(c, "usage.csv", as, func() ([]state.Usage, bool, error) { return days, false, nil })
}

// storageChart returns the chart of the bytes that were stored on each day.
func storageChart(days []state.Usage) chart {
	return chartOf("Stored by day", days, func(u state.Usage) uint64 { return u.Stored }, bytesText)
}

// requestChart returns the chart of the requests on each day.
func requestChart(days []state.Usage) chart {
	return chartOf("Requests by day", days, func(u state.Usage) uint64 { return u.Requests }, func(n uint64) string {
		if n == 1 {
			return "1 request"
		}
		return count(n) + " requests"
	})
}

// chartOf returns a chart with one bar for each day. value returns the number of a day, and text
// formats a number. The vertical axis begins at 0.
func chartOf(title string, days []state.Usage, value func(state.Usage) uint64, text func(uint64) string) chart {
	c := chart{Title: title}
	if len(days) == 0 {
		return c
	}
	room := max(len(days), leastDays)
	c.To = days[len(days)-1].Day.Time().UTC()
	c.From = c.To.AddDate(0, 0, 1-room)
	top := uint64(0)
	for _, u := range days {
		top = max(top, value(u))
	}
	c.Top = text(top)
	step := float64(chartWidth) / float64(room)
	number := func(f float64) string { return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") }
	for i, u := range days {
		height := float64(chartHeight) * float64(value(u)) / float64(max(top, 1))
		c.Bars = append(c.Bars, bar{
			X: number(float64(room-len(days)+i)*step + step/10), Width: number(step * 0.8),
			Y: number(chartHeight - height), Height: number(height),
			Day: u.Day.Time().UTC(), Value: text(value(u)),
		})
	}
	c.Description = fmt.Sprintf("From %s to %s. The most is %s, the last %s.", days[0].Day.Time().UTC().Format(time.DateOnly), c.To.Format(time.DateOnly), c.Top, text(value(days[len(days)-1])))
	return c
}
