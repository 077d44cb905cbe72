package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits of RevokedKeys.
const (
	// RevokedFor is how long a revoked key is listed.
	RevokedFor = 30 * 24 * time.Hour
	// maxRevokedScan is the largest number of audit rows that one RevokedKeys reads.
	maxRevokedScan = 5000
)

// RevokedKey is an API key that was revoked.
type RevokedKey struct {
	ID    state.KeyID
	Name  string
	Scope string    // as in accounts.Key
	Since time.Time // when it was revoked
	By    string    // e-mail address of the person who revoked it, or "operator" for a local command
}

// RevokedKeys returns up to limit keys of an account that were revoked within RevokedFor, newest
// first. The state has no record of revoked keys, so RevokedKeys reads the newest rows of the
// audit log; on a cluster with very many changes, older keys are missing.
//
// Errors: state.ErrNotFound without such an account; state.ErrUnavailable without a majority.
func (l *Log) RevokedKeys(ctx context.Context, id state.AccountID, limit int) ([]RevokedKey, error) {
	view, release, err := l.state.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("list revoked keys: %w", err)
	}
	defer release()
	account, err := view.Account(id)
	if err != nil {
		return nil, fmt.Errorf("list revoked keys: %w", err)
	}
	head, err := view.AuditHead()
	if err != nil {
		return nil, fmt.Errorf("list revoked keys: %w", err)
	}
	// An earlier account of the same address may have had keys.
	from := max(account.Created, state.MillisOf(l.now().Add(-RevokedFor)))
	var keys []RevokedKey
	scanned := 0
	err = view.AuditBefore(head.Next, func(e state.AuditEntry) (bool, error) {
		if what, mine := ofOwner(&e.AuditRow, account.Email); mine && e.At >= from {
			k := RevokedKey{ID: state.KeyID(e.Target), Scope: what, Since: e.At.Time(), By: e.Actor.Email}
			if at := strings.LastIndex(what, ", "); at >= 0 {
				k.Name, k.Scope = what[:at], what[at+2:]
			}
			if k.By == "" {
				k.By = e.Actor.Kind.String()
			}
			keys = append(keys, k)
		}
		scanned++
		old := e.At.Time().Add(clockSlack).Before(from.Time())
		return len(keys) < limit && scanned < maxRevokedScan && !old, ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("list revoked keys: %w", err)
	}
	return keys, nil
}

// ofOwner returns the rest of the detail of a revoked key's row after the e-mail address of its
// owner. mine is false if the row is about another action or owner.
func ofOwner(row *state.AuditRow, email string) (what string, mine bool) {
	if row.Action != state.ActionKeyRevoke {
		return "", false
	}
	return strings.CutPrefix(row.Detail, email+", ")
}
