package admin

import (
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// ShareRow is a share of an account in a list, without its secrets.
type ShareRow struct {
	ID       string   `json:"share_id"`
	User     string   `json:"user"`
	Bucket   string   `json:"bucket"`
	Name     string   `json:"name,omitempty"`
	Prefixes []string `json:"prefixes"` // prefixes of the object keys that the share covers
	Read     bool     `json:"read"`
	Write    bool     `json:"write"`
	Delete   bool     `json:"delete"`
	State    string   `json:"state"` // active or expired
	Created  string   `json:"created"`
	Expires  string   `json:"expires,omitempty"`
	Used     string   `json:"used,omitempty"` // last use, to the minute
}

// shares answers GET /shares with the shares of all accounts.
func (p *operator) shares(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := p.opts.Accounts.AllShares(r.Context())
	now := state.MillisOf(time.Now())
	rows := make([]ShareRow, len(all))
	for i := range all {
		s := &all[i]
		rows[i] = ShareRow{
			ID: string(s.ID), User: s.Email, Bucket: s.Bucket, Name: s.Name, Prefixes: s.Prefixes, Read: s.Read, Write: s.Write, Delete: s.Delete,
			State: "active", Created: s.Created.Time().UTC().Format(timeForm),
		}
		if s.Expires != 0 {
			rows[i].Expires = s.Expires.Time().UTC().Format(timeForm)
		}
		if s.Expired(now) {
			rows[i].State = "expired"
		}
		if !s.Used.IsZero() {
			rows[i].Used = s.Used.UTC().Format(timeForm)
		}
	}
	return rows, err
}
