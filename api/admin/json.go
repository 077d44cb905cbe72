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
	Gateway      string   `json:"gateway,omitempty"`
	// The output of commands with --json omits the following two fields. Admin is the address
	// of metrics and health; TLS reports that the APIs use TLS.
	Admin string `json:"admin,omitempty"`
	TLS   bool   `json:"tls,omitempty"`
}

// Peer is one member of the cluster.
type Peer struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Role    string   `json:"role"`  // voter or nonvoter
	State   string   `json:"state"` // alive, suspect, down or draining
	Addrs   []string `json:"addrs"` // public multiaddrs with /p2p/
	Version string   `json:"version"`
	Pins    uint64   `json:"pins"` // pins whose content the member stores
	// PinsPartial is true while the member's pins are still being counted. Pins is then a lower
	// bound.
	PinsPartial bool   `json:"pins_partial,omitempty"`
	UsedBytes   uint64 `json:"used_bytes"`
	FreeBytes   uint64 `json:"free_bytes"`
	Queue       int    `json:"queue"` // roots waiting to be fetched
	// Zone is the zone in the settings of the member; absent if it is not known.
	Zone string `json:"zone,omitempty"`
	// Drain is the progress of the drain of the member; absent if it is not being drained.
	Drain *Drain `json:"drain,omitempty"`
	// Quarantine is the reason why the member is in quarantine, in which it neither votes nor serves;
	// absent if it is not.
	Quarantine string `json:"quarantine,omitempty"`
	// Full is true if the disk of the member has no space for new content.
	Full bool `json:"full,omitempty"`
}

// Drain is the progress of the drain of a member.
type Drain = drainbody.Drain

// Leaving describes what the removal of a member would cause.
type Leaving struct {
	Peer
	Leader bool   `json:"leader"` // the member is the leader
	Roots  uint64 `json:"roots"`  // roots that the member stores; pins and objects can share a root
	Sole   int    `json:"sole"`   // roots that no other reachable member stores; 0 if not counted
	// Votes is the number of other voters. Answering is the number of those that are reachable.
	Votes     int `json:"votes"`
	Answering int `json:"answering"`
}

// DrainPlan describes what the drain of a member would cause.
type DrainPlan struct {
	Peer
	Roots      uint64 `json:"roots"`       // roots that the member stores, which have to move
	Others     int    `json:"others"`      // other members that can store content
	OthersFree uint64 `json:"others_free"` // free bytes of the other members together
	Copies     int    `json:"copies"`      // copies of each root now
	CopiesThen int    `json:"copies_then"` // copies of each root without the member
	Tight      bool   `json:"tight"`       // the other members may have too little free space
}

// SetDrain is the request body that begins the drain of a member if On is true, and cancels it
// otherwise.
type SetDrain struct {
	On bool `json:"on"`
}

// Quorum states whether the cluster can commit, and which voters are missing.
type Quorum struct {
	Writable bool      `json:"writable"`
	Why      string    `json:"why,omitempty"`     // reason why the cluster cannot commit
	Warning  string    `json:"warning,omitempty"` // a risk for a cluster that can commit
	Votes    int       `json:"votes"`             // number of voters
	Needed   int       `json:"needed"`            // votes that a commit needs
	Here     int       `json:"here"`              // voters that this node reaches and that can write, itself included
	Missing  []Missing `json:"missing"`
}

// Missing is a voter that the answering node does not reach or that cannot write.
type Missing struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// SilentSeconds is the time since the last status report of the member. null means that none
	// has arrived since the answering node started.
	SilentSeconds *int64 `json:"silent_seconds"`
	Full          bool   `json:"full,omitempty"` // the voter is reachable, but the disk of its Raft log is full
}

// PinCounts counts the pins of all accounts.
type PinCounts struct {
	Queued          uint64 `json:"queued"`
	Pinning         uint64 `json:"pinning"`
	Pinned          uint64 `json:"pinned"`
	Failed          uint64 `json:"failed"`
	UnderReplicated uint64 `json:"under_replicated"` // pinned roots with too few copies on live members
}

// User is an account of the cluster.
type User struct {
	ID      string `json:"id"`
	Email   string `json:"email"`
	Created string `json:"created"`
	// AllowanceBytes is the number of bytes that the account may store without credits. null means
	// no limit.
	AllowanceBytes *uint64 `json:"allowance_bytes"`
	StoredBytes    uint64  `json:"stored_bytes"` // bytes of pins and objects, and of their long names and metadata
	ComingBytes    uint64  `json:"coming_bytes"` // bytes received for content that is not complete yet
	Credits        uint64  `json:"credits"`
	Disabled       string  `json:"disabled,omitempty"` // when the account was disabled; empty: it is not
}

// UserDetail is an account with the counts of its pins, objects, keys and sessions.
type UserDetail struct {
	User
	ContentEnds string `json:"content_ends,omitempty"` // when the cluster begins to delete the newest content, because the credits are used up; empty: never

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

// Sum returns the total number of pins.
func (p PinsOf) Sum() uint64 { return p.Queued + p.Pinning + p.Pinned + p.Failed }

// NewPassword is the request body that changes the password of an account.
type NewPassword struct {
	Password string `json:"password"`
}

// NewDisabled is the request body that disables an account, or enables it again. Disabled must
// not be nil.
type NewDisabled struct {
	Disabled *bool `json:"disabled"`
}

// NewQuota is the request body that changes how many bytes an account may store without credits.
type NewQuota struct {
	AllowanceBytes *uint64 `json:"allowance_bytes,omitempty"`
	Unlimited      bool    `json:"unlimited,omitempty"` // no limit; AllowanceBytes is then absent
}

// NewCredits is the request body that adds a posting to the credit ledger of an account.
type NewCredits struct {
	Kind     string `json:"kind,omitempty"`     // "grant", "refund" or "correction"; empty: a grant
	Posting  string `json:"posting,omitempty"`  // id that makes a retry safe: the cluster posts each id only once
	Credits  int64  `json:"credits"`            // below 0 only for a correction that removes credits
	Corrects string `json:"corrects,omitempty"` // id of the posting that a correction corrects
	Note     string `json:"note,omitempty"`
}

// MinPassword is the minimum length of a password in characters.
const MinPassword = accounts.MinPassword

// NewUser is the request body that creates an account. With an empty password nobody can sign in
// by password.
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

// SigningKey is the key of the cluster that signs the tokens of new API keys.
type SigningKey struct {
	Generation uint64 `json:"generation"` // consecutive number of the key, from 0
}

// App is a registered application that may ask a user of the console for an API key.
type App struct {
	Name      string   `json:"name"`
	Redirects []string `json:"redirects"` // URIs to which the console may send a key
	Scope     string   `json:"scope"`     // permissions, separated by spaces
	Created   string   `json:"created"`
}

// NewApp is the request body that registers an application. Without scopes its keys can read and
// write.
type NewApp struct {
	Name      string   `json:"name"`
	Redirects []string `json:"redirects"`
	Scopes    []string `json:"scopes,omitempty"`
}

// NewKey is the request body that creates an API key. Without scopes the key has all scopes.
type NewKey struct {
	User   string   `json:"user"`
	Name   string   `json:"name,omitempty"`
	Scopes []string `json:"scopes,omitempty"`
	TTL    string   `json:"ttl,omitempty"` // a duration such as 24h; empty: no expiry
}

// NewTicket is the request body that creates a join ticket.
type NewTicket struct {
	TTL string `json:"ttl,omitempty"` // a duration; empty: 24h
}

// Ticket is a join ticket, with which a new node joins the cluster.
type Ticket struct {
	Ticket string `json:"ticket"`
}

// Content is the answer to the import of a file or a folder.
type Content struct {
	CID     string         `json:"cid"`
	Size    uint64         `json:"size"` // bytes of the files
	Entries []ContentEntry `json:"entries,omitempty"`
}

// Scrubbed is the result of the verification of every stored block of a node.
type Scrubbed struct {
	Blocks   uint64 `json:"blocks"`   // number of intact blocks
	Bytes    uint64 `json:"bytes"`    // total size of the intact blocks
	Damaged  uint64 `json:"damaged"`  // number of blocks that were damaged or missing
	Repaired uint64 `json:"repaired"` // number of those that the node has replaced by an intact copy
}

// timeForm is ISO 8601 with milliseconds in UTC.
const timeForm = "2006-01-02T15:04:05.000Z"

// Addrs are the addresses of the HTTP listeners of a node, as host:port. An empty one is
// disabled.
type Addrs struct {
	Pinning, S3, Console, Paid, Gateway string

	Admin      string // metrics and health; always plain HTTP
	TLS        bool   // the listeners other than Admin use TLS
	ConsoleURL string // web origin of the console; empty: unknown
}

func statusOf(s *members.Status, here Addrs) Status {
	out := Status{
		ClusterID: s.ClusterID,
		Leader:    string(s.Leader),
		Index:     s.Index,
		Node: Node{
			ID: string(s.Node.ID), Name: s.Node.Name, Addrs: array(s.Node.Addrs), ClusterAddrs: array(s.Node.ClusterAddrs),
			Pinning: here.Pinning, S3: here.S3, Console: here.Console, Paid: here.Paid, Gateway: here.Gateway, Admin: here.Admin, TLS: here.TLS,
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

// quorumOf returns the JSON body for q. refused is the reason why the cluster cannot commit, nil
// if it can.
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

// array returns s, or an empty slice if s is nil, so that JSON has [] and not null.
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

// lifeOf parses a duration in a request body. An empty text returns other. A duration that is
// malformed or not above zero is a state.CodeInvalid error.
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
