package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Replica gives access to this node's copy of the replicated state.
type Replica interface {
	// StateHash returns the hash of the whole copy, and the index of the newest log entry in it.
	StateHash(ctx context.Context) (index uint64, hash state.Hash, err error)
	// CheckState makes all members compare their copies, and waits for their reports until
	// ctx ends.
	CheckState(ctx context.Context) (state.Check, error)
	// Checks returns the results of the newest comparisons, the oldest first.
	Checks() ([]state.Check, error)
}

// StateHash is the hash of a node's replicated state. All nodes have the same hash at the same
// index, unless one has diverged.
type StateHash struct {
	Index uint64     `json:"index"`
	Hash  state.Hash `json:"hash"` // SHA-256 in hexadecimal
}

// stateHash answers GET /state/hash after it has read the whole state. Only the client limits the
// time.
func (p *operator) stateHash(w http.ResponseWriter, r *http.Request) error {
	index, hash, err := p.opts.Replica.StateHash(r.Context())
	if err != nil {
		return fmt.Errorf("hash the state: %w", err)
	}
	return web.JSON(w, http.StatusOK, StateHash{Index: index, Hash: hash})
}

// StateCheck is the result of one comparison of the replicated state of all members.
type StateCheck struct {
	Index    uint64          `json:"index"`    // log index of the compared state
	Time     string          `json:"time"`     // when the comparison was requested
	Majority *state.Hash     `json:"majority"` // hash that more than 50 % of the members reported; null: none yet
	Equal    bool            `json:"equal"`    // all members have reported, all with the same hash
	Members  []StateCheckRow `json:"members"`
}

// StateCheckRow is the report of one member.
type StateCheckRow struct {
	ID   string      `json:"id"`
	Hash *state.Hash `json:"hash"` // null: no report yet
}

func checkOf(c *state.Check) StateCheck {
	out := StateCheck{
		Index: c.Index, Time: c.At.Time().Format(timeForm), Equal: c.Complete() && !c.Differs(),
		Members: make([]StateCheckRow, len(c.Members)),
	}
	if hash, decided := c.Majority(); decided {
		out.Majority = &hash
	}
	for i, id := range c.Members {
		out.Members[i].ID = string(id)
		for _, r := range c.Reports {
			if r.Node == id {
				out.Members[i].Hash = &r.Hash
			}
		}
	}
	return out
}

func (p *operator) stateChecks(_ http.ResponseWriter, _ *http.Request) (any, error) {
	all, err := p.opts.Replica.Checks()
	rows := make([]StateCheck, len(all))
	for i := range all {
		rows[i] = checkOf(&all[i])
	}
	return rows, err
}

// checkTimeout is how long checkState waits for the reports. It is long, because each member
// reads its whole state.
const checkTimeout = 10 * time.Minute

// checkState answers POST /state/checks after all members have reported their hash. After
// checkTimeout it answers with the reports so far.
func (p *operator) checkState(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	check, err := p.opts.Replica.CheckState(ctx)
	if err != nil {
		return fmt.Errorf("check the state: %w", err)
	}
	return web.JSON(w, http.StatusCreated, checkOf(&check))
}
