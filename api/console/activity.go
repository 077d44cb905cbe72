package console

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/activity"
)

// activityData is the data of the page /cluster/activity, the recent log records of this node.
type activityData struct {
	Node     state.Node // this node
	Records  []activity.Record
	Kinds    []choice
	Some     bool // the page shows only the chosen kinds
	Troubles bool // the page shows only warnings and errors
}

// kindNames has the names of the kinds of log records, as pages show them.
var kindNames = map[activity.Kind]string{
	activity.Elections: "Elections", activity.Members: "Members", activity.Repairs: "Repairs", activity.Scrubs: "Scrub findings",
	activity.Refused: "Refused peers", activity.Disks: "Full disks",
}

// activityPage serves GET /cluster/activity, the newest log records of this node. The query
// parameter kind, which may be repeated, selects kinds of records.
func (s *surface) activityPage(c *call) error {
	query := c.r.URL.Query()
	d := activityData{Troubles: query.Get("only") == "troubles"}
	status, err := s.Members.Status(c.ctx)
	if err != nil {
		return err
	}
	d.Node = status.Node
	var kinds []activity.Kind
	for _, name := range query["kind"] {
		kind := activity.Kind(name)
		if kindNames[kind] == "" {
			return web.BadRequest("there is no kind of events %q", name)
		}
		kinds = append(kinds, kind)
	}
	for _, kind := range activity.Kinds() {
		d.Kinds = append(d.Kinds, choice{string(kind), kindNames[kind], slices.Contains(kinds, kind)})
	}
	d.Some, d.Records = len(kinds) > 0, s.Activity.Newest(kinds...)
	if d.Troubles {
		d.Records = slices.DeleteFunc(d.Records, func(r activity.Record) bool { return r.Level < slog.LevelWarn })
	}
	return s.show(c, http.StatusOK, "activity", "Activity", "cluster", d)
}

// levelText returns a word for the level of a log record.
func levelText(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warning"
	}
	return "info"
}
