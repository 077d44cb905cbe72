package admin

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/drainbody"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The types below are the bodies of the local API. The commands print them with --json and
// programs read them, so no field may be renamed or change its meaning.

// Status is the cluster as the answering node sees it.
type Status struct {
	ClusterID string    `json:"cluster_id"`
	Leader    string    `json:"leader"` // node id; empty: not known
	Index     uint64    `json:"index"`  // newest log entry that the node has applied
	Node      Node      `json:"node"`
	Peers     []Peer    `json:"peers"`
	Pins      PinCounts `json:"pins"`
}

// Node is the answering node.
type Node struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Addrs        []string `json:"addrs"`         // public multiaddrs with /p2p/
	ClusterAddrs []string `json:"cluster_addrs"` // multiaddrs with /p2p/
	Pinning      string   `json:"pinning"`       // host:port; empty: off
	S3           string   `json:"s3"`
	Console      string   `json:"console"`
	Paid         string   `json:"paid,omitempty"`
	// The output of commands with --json omits the following two fields. Admin is the address
	// of metrics and health; TLS reports that the APIs use TLS.
	Admin string `json:"admin,omitempty"`
	TLS   bool   `json:"tls,omitempty"`
}

// Peer is one member.
type Peer struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Role    string   `json:"role"`  // voter or nonvoter
	State   string   `json:"state"` // alive, suspect, down or draining
	Addrs   []string `json:"addrs"` // public multiaddrs with /p2p/
	Version string   `json:"version"`
	Pins    uint64   `json:"pins"` // pins whose content it holds
	// PinsPartial reports that the count is not complete yet, so Pins is a lower bound.
	PinsPartial bool   `json:"pins_partial,omitempty"`
	UsedBytes   uint64 `json:"used_bytes"`
	FreeBytes   uint64 `json:"free_bytes"`
	Queue       int    `json:"queue"` // roots waiting to be fetched
	// Zone is the zone in the settings of the member; absent if it is not known.
	Zone string `json:"zone,omitempty"`
	// Drain tells how far the drain of the member is; absent if it is not being drained.
	Drain *Drain `json:"drain,omitempty"`
	// Quarantine is the reason why the member neither votes nor serves; absent if it does.
	Quarantine string `json:"quarantine,omitempty"`
	// Full reports that the disk of the member has no room for new content.
	Full bool `json:"full,omitempty"`
}

// Drain tells how far the drain of a member is.
type Drain = drainbody.Drain

// Leaving is a member and the effect of its removal.
type Leaving struct {
	Peer
	Leader bool   `json:"leader"`
	Roots  uint64 `json:"roots"` // roots that it holds; pins and objects share them
	Sole   int    `json:"sole"`  // roots that no other reachable member holds
	// Votes is the number of other voters, and Answering the number of them that answer.
	Votes     int `json:"votes"`
	Answering int `json:"answering"`
}

// DrainPlan is a member and the effect of its drain.
type DrainPlan struct {
	Peer
	Roots      uint64 `json:"roots"`       // roots that it holds
	Others     int    `json:"others"`      // members that keep content then
	OthersFree uint64 `json:"others_free"` // bytes that they have free
	Copies     int    `json:"copies"`      // copies of a root now
	CopiesThen int    `json:"copies_then"` // copies of a root without the member
	Tight      bool   `json:"tight"`       // the others may have too little room
}

// SetDrain is the body that begins or ends the drain of a member.
type SetDrain struct {
	On bool `json:"on"`
}

// Quorum says whether the cluster can write, and lists the votes.
type Quorum struct {
	Writable bool      `json:"writable"`
	Why      string    `json:"why,omitempty"`     // the reason if it cannot write
	Warning  string    `json:"warning,omitempty"` // a risk although it can write
	Votes    int       `json:"votes"`             // voters
	Needed   int       `json:"needed"`            // votes that a commit needs
	Here     int       `json:"here"`              // voters that this node reaches and that can write
	Missing  []Missing `json:"missing"`
}

// Missing is a voter that the node does not reach or that cannot write.
type Missing struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// SilentSeconds is the age of the newest sample of the member; null: there was none since
	// the answering node started.
	SilentSeconds *int64 `json:"silent_seconds"`
	Full          bool   `json:"full,omitempty"` // it is reachable, but the disk of its Raft log is full
}

// PinCounts counts the pins of all accounts.
type PinCounts struct {
	Queued          uint64 `json:"queued"`
	Pinning         uint64 `json:"pinning"`
	Pinned          uint64 `json:"pinned"`
	Failed          uint64 `json:"failed"`
	UnderReplicated uint64 `json:"under_replicated"` // pinned roots with too few live holders
}

// User is an account.
type User struct {
	ID      string `json:"id"`
	Email   string `json:"email"`
	Created string `json:"created"`
	// AllowanceBytes is how many bytes the account may store without credits; null: no limit.
	AllowanceBytes *uint64 `json:"allowance_bytes"`
	StoredBytes    uint64  `json:"stored_bytes"` // pinned and named content, and record text beyond 1 KiB
	ComingBytes    uint64  `json:"coming_bytes"` // received so far for content that is not pinned yet
	Credits        uint64  `json:"credits"`
	Disabled       string  `json:"disabled,omitempty"` // when the account was disabled; empty: it is not
}

// UserDetail is an account with what belongs to it.
type UserDetail struct {
	User
	ContentEnds string `json:"content_ends,omitempty"` // when the newest content begins to end, as the credits are used up; empty: it does not

	Pins     PinsOf `json:"pins"`
	Buckets  uint64 `json:"buckets"`
	Objects  uint64 `json:"objects"`  // without old versions
	Versions uint64 `json:"versions"` // old versions and delete markers
	Uploads  uint64 `json:"uploads"`  // open uploads
	Keys     uint64 `json:"keys"`     // API keys, expired ones included
	Sessions uint64 `json:"sessions"`
}

// PinsOf counts the pins of one account.
type PinsOf struct {
	Queued  uint64 `json:"queued"`
	Pinning uint64 `json:"pinning"`
	Pinned  uint64 `json:"pinned"`
	Failed  uint64 `json:"failed"`
}

// Sum returns the number of pins in all statuses.
func (p PinsOf) Sum() uint64 { return p.Queued + p.Pinning + p.Pinned + p.Failed }

// NewPassword requests a change of a password.
type NewPassword struct {
	Password string `json:"password"`
}

// NewDisabled requests that an account is disabled, or enabled again.
type NewDisabled struct {
	Disabled *bool `json:"disabled"`
}

// NewQuota requests a change of an allowance.
type NewQuota struct {
	AllowanceBytes *uint64 `json:"allowance_bytes,omitempty"`
	Unlimited      bool    `json:"unlimited,omitempty"` // replaces the number
}

// NewCredits requests a posting.
type NewCredits struct {
	Kind     string `json:"kind,omitempty"`    // "grant", "refund" or "correction"; empty: a grant
	Posting  string `json:"posting,omitempty"` // id of the posting; each id is posted once
	Credits  int64  `json:"credits"`           // below 0 if a correction takes credits
	Corrects string `json:"corrects,omitempty"`
	Note     string `json:"note,omitempty"`
}

// MinPassword is the minimum length of a password in characters.
const MinPassword = accounts.MinPassword

// NewUser requests an account. An empty password means none.
type NewUser struct {
	Email    string `json:"email"`
	Password string `json:"password,omitempty"`
}

// Key is a new API key with its secrets.
type Key struct {
	ID              string `json:"id"` // jti
	Token           string `json:"token"`
	AccessKeyID     string `json:"access_key_id"`
	SecretAccessKey string `json:"secret_access_key"`
	Scope           string `json:"scope"` // permissions, separated by spaces
	Created         string `json:"created"`
}

// KeyRow is an API key in a list, without its secrets.
type KeyRow struct {
	ID      string `json:"id"` // jti
	User    string `json:"user"`
	Name    string `json:"name"`
	Scope   string `json:"scope"`
	Created string `json:"created"`
	Expires string `json:"expires,omitempty"`
	Used    string `json:"used,omitempty"` // last use, to the minute
}

// SigningKey is the key of the cluster that signs new API keys.
type SigningKey struct {
	Generation uint64 `json:"generation"` // number of the key; the first is 0
}

// App is an app that may ask people for an API key.
type App struct {
	Name      string   `json:"name"`
	Redirects []string `json:"redirects"` // URIs to which keys may be sent
	Scope     string   `json:"scope"`     // permissions, separated by spaces
	Created   string   `json:"created"`
}

// NewApp registers an app. No scopes means reading and writing.
type NewApp struct {
	Name      string   `json:"name"`
	Redirects []string `json:"redirects"`
	Scopes    []string `json:"scopes,omitempty"`
}

// NewKey requests an API key. No scopes means all of them.
type NewKey struct {
	User   string   `json:"user"`
	Name   string   `json:"name,omitempty"`
	Scopes []string `json:"scopes,omitempty"`
	TTL    string   `json:"ttl,omitempty"` // a duration such as 24h; empty: no expiry
}

// NewTicket requests a join ticket.
type NewTicket struct {
	TTL string `json:"ttl,omitempty"` // a duration; empty: 24h
}

// Ticket is a join ticket.
type Ticket struct {
	Ticket string `json:"ticket"`
}

// Content is an imported file.
type Content struct {
	CID  string `json:"cid"`
	Size uint64 `json:"size"` // bytes of the file
}

// Scrubbed is the result of verifying every stored block of a node.
type Scrubbed struct {
	Blocks   uint64 `json:"blocks"`   // verified and good
	Bytes    uint64 `json:"bytes"`    // size of these blocks
	Damaged  uint64 `json:"damaged"`  // blocks that were damaged or missing
	Repaired uint64 `json:"repaired"` // damaged blocks that are good again
}

// timeForm is ISO 8601 with milliseconds in UTC.
const timeForm = "2006-01-02T15:04:05.000Z"

// Addrs has the addresses of the HTTP listeners of a node, host:port; empty: off.
type Addrs struct {
	Pinning, S3, Console, Paid string

	Admin      string // metrics and health, never over TLS
	TLS        bool   // whether the others use TLS
	ConsoleURL string // origin at which people reach the console; empty: not known
}

func statusOf(s *members.Status, here Addrs) Status {
	out := Status{
		ClusterID: s.ClusterID,
		Leader:    string(s.Leader),
		Index:     s.Index,
		Node: Node{
			ID: string(s.Node.ID), Name: s.Node.Name, Addrs: array(s.Node.Addrs), ClusterAddrs: array(s.Node.ClusterAddrs),
			Pinning: here.Pinning, S3: here.S3, Console: here.Console, Paid: here.Paid, Admin: here.Admin, TLS: here.TLS,
		},
		Peers: make([]Peer, len(s.Peers)),
		Pins: PinCounts{
			Queued: s.Pins[state.Queued], Pinning: s.Pins[state.Pinning], Pinned: s.Pins[state.Pinned], Failed: s.Pins[state.Failed],
			UnderReplicated: s.UnderReplicated,
		},
	}
	for i := range s.Peers {
		out.Peers[i] = peerOf(&s.Peers[i])
	}
	return out
}

func peerOf(p *members.Peer) Peer {
	return Peer{
		ID: string(p.ID), Name: p.Name, Role: p.Role, State: p.State, Addrs: array(p.Addrs), Version: p.Load.Version,
		Pins: p.Pins, PinsPartial: p.PinsPartial, UsedBytes: p.UsedBytes, FreeBytes: p.FreeBytes, Queue: p.Queue, Full: p.Full,
		Zone: p.Zone, Drain: drainbody.Of(p.Drain), Quarantine: p.Quarantine,
	}
}

func leavingOf(l *members.Leaving) Leaving {
	return Leaving{Peer: peerOf(&l.Peer), Leader: l.Leads, Roots: l.Roots, Sole: l.Sole, Votes: l.Votes, Answering: l.Answer}
}

func drainPlanOf(p *members.DrainPlan) DrainPlan {
	return DrainPlan{
		Peer: peerOf(&p.Peer), Roots: p.Roots, Others: p.Others, OthersFree: p.Free, Copies: p.Copies, CopiesThen: p.CopiesThen, Tight: p.Tight(),
	}
}

// quorumOf returns the body for q; refused is the reason why the cluster cannot write, or
// nil.
func quorumOf(q *members.Quorum, refused error) Quorum {
	out := Quorum{
		Writable: refused == nil, Votes: q.Votes, Needed: q.Needed, Here: q.Here, Warning: q.Warning(),
		Missing: make([]Missing, len(q.Missing)),
	}
	var coded *state.Error
	switch {
	case errors.As(refused, &coded):
		out.Why = coded.Detail
	case refused != nil:
		out.Why = refused.Error()
	}
	for i, m := range q.Missing {
		out.Missing[i] = Missing{ID: string(m.ID), Name: m.Name, Full: m.Full}
		if m.Heard {
			seconds := int64(m.Silent / time.Second)
			out.Missing[i].SilentSeconds = &seconds
		}
	}
	return out
}

// array returns s, or an empty slice instead of nil, so that JSON has no null.
func array(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func userOf(u *accounts.User) User {
	user := User{
		ID: string(u.ID), Email: u.Email, Created: u.Created.Time().Format(timeForm),
		StoredBytes: u.Quota.Used() - u.Quota.Coming, ComingBytes: u.Quota.Coming, Credits: u.Quota.Credits,
	}
	if u.Quota.Allowance != state.Unlimited {
		user.AllowanceBytes = &u.Quota.Allowance
	}
	if u.Disabled != 0 {
		user.Disabled = u.Disabled.Time().UTC().Format(timeForm)
	}
	return user
}

func holdingsOf(h *accounts.Holdings) UserDetail {
	return UserDetail{
		User: userOf(&h.User),
		Pins: PinsOf{
			Queued: h.Pins[state.Queued], Pinning: h.Pins[state.Pinning], Pinned: h.Pins[state.Pinned], Failed: h.Pins[state.Failed],
		},
		Buckets: h.Buckets, Objects: h.Objects, Versions: h.Versions, Uploads: h.Uploads, Keys: h.Keys, Sessions: h.Sessions,
	}
}

func keyOf(k *accounts.Key) Key {
	return Key{
		ID: string(k.ID), Token: k.Token, AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey,
		Scope: k.Scope, Created: k.Created.UTC().Format(timeForm),
	}
}

func formOf(v *accounts.App) App {
	return App{Name: v.Name, Redirects: v.Redirects, Scope: strings.Join(v.Scope, " "), Created: v.Created.UTC().Format(timeForm)}
}

func rowOf(k *accounts.Key) KeyRow {
	row := KeyRow{ID: string(k.ID), User: k.Email, Name: k.Name, Scope: k.Scope, Created: k.Created.UTC().Format(timeForm)}
	if !k.Expires.IsZero() {
		row.Expires = k.Expires.UTC().Format(timeForm)
	}
	if !k.Used.IsZero() {
		row.Used = k.Used.UTC().Format(timeForm)
	}
	return row
}

// lifeOf parses a duration in a body; an empty text means other.
func lifeOf(text string, other time.Duration) (time.Duration, error) {
	if text == "" {
		return other, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, state.Errorf(state.CodeInvalid, "ttl %q is not a duration such as 24h", text)
	}
	return d, nil
}
