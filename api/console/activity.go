package console

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/holdfast-ipfs/holdfast/internal/activity"
)

// activityData has the data of the page of the activity of this node.
type activityData struct {
	Records  []activity.Record
	Troubles bool // only warnings and errors
}

// activityPage serves GET /cluster/activity, the newest log records of this node.
func (s *surface) activityPage(c *call) error {
	d := activityData{Records: s.Activity.Newest(), Troubles: c.r.URL.Query().Get("only") == "troubles"}
	if d.Troubles {
		d.Records = slices.DeleteFunc(d.Records, func(r activity.Record) bool { return r.Level < slog.LevelWarn })
	}
	return s.show(c, http.StatusOK, "activity", "Activity", "cluster", d)
}

// levelText returns the level of a log record in a word.
func levelText(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warning"
	}
	return "info"
}
