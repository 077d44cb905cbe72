package console

import (
	"net/url"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// sorting is an order of the list of a bucket, in the form of the query parameter sort. "" is by
// name.
type sorting string

// Values of sorting. Those that begin with "-" are descending.
const (
	byName    sorting = ""
	byNameZA  sorting = "-name"
	bySize    sorting = "size"
	byLargest sorting = "-size"
	byTime    sorting = "time"
	byNewest  sorting = "-time"
)

// sortings are the orders with the texts of the select field.
var sortings = [...]struct {
	Value sorting
	Name  string
}{
	{byName, "by name"}, {byNameZA, "by name, from the end"}, {byLargest, "largest first"}, {bySize, "smallest first"}, {byNewest, "newest first"}, {byTime, "oldest first"},
}

// sortingOf returns the order with this value, or byName if there is none.
func sortingOf(name string) sorting {
	for _, o := range sortings {
		if string(o.Value) == name {
			return o.Value
		}
	}
	return byName
}

// Choices returns the options of the select field, in which o is selected.
func (o sorting) Choices() (all []choice) {
	for _, s := range sortings {
		all = append(all, choice{string(s.Value), s.Name, s.Value == o})
	}
	return all
}

// Aria returns the value of the HTML attribute aria-sort for a column. property is "name", "size"
// or "time".
func (o sorting) Aria(property string) string {
	switch {
	case string(o) == property, o == byName && property == "name":
		return "ascending"
	case string(o) == "-"+property:
		return "descending"
	}
	return "none"
}

// Click returns the order after a click on the heading of a column. The first click sorts by name
// from A, by size from the largest, and by time from the newest. The next click reverses the
// order.
func (o sorting) Click(property string) sorting {
	switch {
	case property == "name" && o == byName:
		return byNameZA
	case property == "name":
		return byName
	case string(o) == "-"+property:
		return sorting(property)
	}
	return sorting("-" + property)
}

// address returns the path and query of the page of a bucket with this prefix and order. more may
// have the parameters after and at of cursor.
func (o sorting) address(bucket, prefix string, more url.Values) string {
	query := url.Values{}
	for name, text := range map[string]string{"prefix": prefix, "sort": string(o), "after": more.Get("after"), "at": more.Get("at")} {
		if text != "" {
			query.Set(name, text)
		}
	}
	address := "/buckets/" + url.PathEscape(bucket)
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	return address
}

// cursor returns the query parameters of the page that follows the given page in this order.
func (o sorting) cursor(page *state.ObjectsPage) url.Values {
	more := url.Values{"after": {page.Next}}
	if n := len(page.Objects); n > 0 {
		last := &page.Objects[n-1]
		switch o {
		case bySize, byLargest:
			more.Set("at", strconv.FormatUint(last.Size, 10))
		case byTime, byNewest:
			more.Set("at", strconv.FormatInt(int64(last.Created), 10))
		}
	}
	return more
}

// listSorted returns the page of a bucket's list for the prefix, order and position in d. If the
// bucket has too many entries to sort by size or time, it sets d.Unsorted and returns the page
// ordered by name.
func (s *surface) listSorted(c *call, bucket string, d *bucketData) (state.ObjectsPage, error) {
	ctx := c.asking(c.ctx)
	if d.Sort != byName && d.Sort != byNameZA {
		at, _ := strconv.ParseInt(c.r.URL.Query().Get("at"), 10, 64) // 0 for what no page has written
		page, many, err := s.Objects.Sorted(ctx, c.who.Account, bucket, objects.SortedQuery{
			Prefix: d.Prefix, Delimiter: "/", ByTime: d.Sort == byTime || d.Sort == byNewest, Descending: d.Sort == byLargest || d.Sort == byNewest,
			After: d.After, Value: at, Limit: objectRows,
		})
		if err != nil || !many {
			return page, err //nolint:wrapcheck // the caller wraps it
		}
		d.Unsorted, d.Sort = true, byName
	}
	//nolint:wrapcheck // the caller wraps it
	return s.Objects.List(ctx, c.who.Account, bucket, state.ObjectsQuery{Prefix: d.Prefix, Delimiter: "/", After: d.After, Limit: objectRows, Backward: d.Sort == byNameZA})
}

// Column returns the address of the page after a click on the heading of a column, see
// sorting.Click.
func (d bucketData) Column(property string) string {
	return d.Sort.Click(property).address(d.Bucket.Name, d.Prefix, nil)
}
