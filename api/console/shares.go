package console

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// shareRow is a share in the list of a bucket.
type shareRow struct {
	ID       state.ShareID
	Name     string // a name for the list, not empty
	Prefixes []string
	May      string
	Created  time.Time
	Used     time.Time // zero means never
	Expires  time.Time // zero means never
	Expired  bool
}

// sharesOf returns the first shares of a bucket, objectRows at most, and whether there are more.
func (s *surface) sharesOf(c *call, bucket string) (rows []shareRow, more bool, err error) {
	page, err := s.Accounts.Shares(c.ctx, c.who.Account, bucket, state.SharePlace{}, objectRows)
	if err != nil {
		return nil, false, fmt.Errorf("list shares: %w", err)
	}
	for i := range page.Shares {
		rows = append(rows, shareRowOf(&page.Shares[i], time.Now()))
	}
	return rows, page.More, nil
}

func shareRowOf(share *accounts.Share, now time.Time) shareRow {
	row := shareRow{
		ID: share.ID, Name: share.Name, Prefixes: share.Prefixes, Created: share.Created.Time(), Used: share.Used,
		Expired: share.Expired(state.MillisOf(now)),
	}
	if strings.TrimSpace(row.Name) == "" {
		row.Name = "unnamed"
	}
	if share.Expires != 0 {
		row.Expires = share.Expires.Time()
	}
	var may []string
	for _, right := range []struct {
		given bool
		name  string
	}{{share.Read, "read"}, {share.Write, "write"}, {share.Delete, "delete"}} {
		if right.given {
			may = append(may, right.name)
		}
	}
	row.May = strings.Join(may, ", ")
	return row
}

// revokedData has the data of the page that says that a key or a share was revoked.
type revokedData struct {
	What, Name string
	Back       link // to the list
}

// revokeShare serves POST /buckets/{bucket}/shares/{id}/revoke. After the answer, no node accepts the
// share.
func (s *surface) revokeShare(c *call) error {
	bucket, id := c.bucketName(), state.ShareID(c.r.PathValue("id"))
	if err := s.Accounts.RevokeShare(c.asking(c.ctx), c.who.Account, bucket, id); err != nil {
		return fmt.Errorf("revoke share: %w", err)
	}
	return s.show(c, http.StatusOK, "revoked", bucket, "buckets", revokedData{"share", string(id), link{"Bucket " + bucket, bucketAddress(bucket, "")}})
}
