package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// shareRow is a row in the list of shares of a bucket.
type shareRow struct {
	ID       state.ShareID
	Name     string // result of shareName
	Of       string // result of sharedFiles
	Prefixes []string
	May      string // permitted actions in words, such as "read, write"
	Created  time.Time
	Used     time.Time // zero means never
	Expires  time.Time // zero means never
	Expired  bool
}

// sharesOf returns the first shares of a bucket, at most objectRows, and whether there are more.
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
		ID: share.ID, Name: shareName(share), Of: sharedFiles(share.Prefixes), Prefixes: share.Prefixes, Created: share.Created.Time(), Used: share.Used,
		Expired: share.Expired(state.MillisOf(now)),
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

// shareName returns the name of a share. For a share without a name it is "Share" and the first 8
// characters of its id, which `holdfast share ls` shows too.
func shareName(share *accounts.Share) string {
	if strings.TrimSpace(share.Name) != "" {
		return share.Name
	}
	return "Share " + string(share.ID[:min(len(share.ID), 8)])
}

// sharedFiles returns "encrypted folder" or "encrypted file" for the prefixes of a share that the
// commands on encrypted files have created, and "" for other prefixes. The nodes do not know the
// names of encrypted files and folders.
func sharedFiles(prefixes []string) string {
	switch {
	case slices.Equal(prefixes, []string{"e/", "x/"}):
		return "encrypted folder"
	case len(prefixes) == 1 && strings.HasPrefix(prefixes[0], "e/") && len(prefixes[0]) > len("e/"):
		return "encrypted file"
	}
	return ""
}

// shareLives are the choices for the validity of a share. The first is the default.
var shareLives = []life{
	{"7 days", "7d", 7 * 24 * time.Hour},
	{"1 day", "1d", 24 * time.Hour},
	{"30 days", "30d", 30 * 24 * time.Hour},
	{"no expiry", "never", 0},
}

// sharePage is the path of the page that opens share links.
const sharePage = "/shared"

// newShareData is the data of the page with a new share.
type newShareData struct {
	Place   string    // what is shared: bucket and key, or bucket and folder
	Folder  bool      // a folder is shared
	Expires time.Time // zero means never
	URL     string    // share link
	Back    link      // link to the page that lists the share
}

// createShare serves POST /buckets/{bucket}/shares. It creates a share for reading one object, or
// all objects of a folder, and shows its link once. The link is only in the body of this answer:
// the node does not store its token, and no URL that a browser sends contains it.
func (s *surface) createShare(c *call) error {
	bucket, place := c.bucketName(), c.r.PostForm.Get("place")
	if _, err := s.Objects.Bucket(c.asking(c.ctx), c.who.Account, bucket); err != nil {
		return fmt.Errorf("share: %w", err)
	}
	ttl, err := ttlOf(shareLives, c.r.PostForm.Get("expiry"))
	if err != nil {
		return err
	}
	if checkKey(place) != nil {
		return web.BadRequest("a share needs an object or a folder")
	}
	r := accounts.ShareRequest{ID: accounts.NewShareID(), Bucket: bucket, Prefixes: []string{place}, Read: true, Name: strings.TrimSpace(c.r.PostForm.Get("name"))}
	if ttl > 0 {
		r.Expires = time.Now().Add(ttl)
	}
	share, err := s.Accounts.CreateShare(c.asking(c.ctx), c.who.Account, r)
	if problem := refusal(err, state.CodeInvalid, state.CodeTooLarge); problem != "" {
		return web.BadRequest("%s", problem)
	}
	if err != nil {
		return fmt.Errorf("create share: %w", err)
	}
	values := url.Values{"v": {"2"}, "b": {bucket}, "p": {place}, "a": {share.Token}}
	if gateway := s.endpoints(c).S3; gateway != "" {
		values.Set("e", gateway) // for programs: the page reads from its own origin
	}
	d := newShareData{
		Place: bucket + "/" + place, Folder: strings.HasSuffix(place, "/"), Back: link{"Shares of " + bucket, bucketAddress(bucket, "") + "#shares"},
		URL: cmp.Or(s.URL, s.Limits.Scheme(c.r)+"://"+c.r.Host) + sharePage + "#" + values.Encode(),
	}
	if share.Expires != 0 {
		d.Expires = share.Expires.Time()
	}
	return s.show(c, http.StatusOK, "share", "Share link", "buckets", d)
}

// revokedData is the data of the page after a key or a share was revoked.
type revokedData struct {
	What, Name string    // kind and name of what was revoked
	Since      time.Time // since then no node accepts it
	Back       link      // link to the list
}

// revokeShare serves POST /buckets/{bucket}/shares/{id}/revoke. When it has answered, no node
// accepts the share.
func (s *surface) revokeShare(c *call) error {
	bucket, id := c.bucketName(), state.ShareID(c.r.PathValue("id"))
	share, err := s.Accounts.ShareOf(c.ctx, c.who.Account, bucket, id)
	if err != nil {
		return err //nolint:wrapcheck // says what it was doing
	}
	if err := s.Accounts.RevokeShare(c.asking(c.ctx), c.who.Account, bucket, id); err != nil {
		return fmt.Errorf("revoke share: %w", err)
	}
	return s.show(c, http.StatusOK, "revoked", bucket, "buckets", revokedData{"share", shareName(&share), time.Now(), link{"Bucket " + bucket, bucketAddress(bucket, "")}})
}
