package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Intervals and limits for recording refusals and removing old rows.
const (
	refusalsEvery = 15 * time.Second
	pruneEvery    = time.Hour
	// maxWhy is the largest number of bytes of a refused join's reason that is recorded. It is
	// limited because the node that wants to join can choose a part of this text.
	maxWhy = 256
)

// summed is the key of refusals that are counted together in one row.
type summed struct {
	action  state.Action
	account state.AccountID
	addr    string
	detail  string
	minute  int64 // minutes since 1970; 0 in the key elsewhere
}

// tries is the number of refusals with one key, and the time of the last one.
type tries struct {
	last  state.Millis
	count uint64
}

// refusals counts the refusals of this node until RecordRefusals writes them to the log.
type refusals struct {
	// mu guards the map by, which has at most state.MaxRefusals rows.
	mu sync.Mutex
	by map[summed]tries
}

// elsewhere is the key under which refusals are counted for which the map has no space.
var elsewhere = summed{action: state.ActionSessionCreate, detail: "from other addresses"}

// add counts n refusals. If the map is full, add counts them under elsewhere.
func (r *refusals) add(key summed, n uint64, last state.Millis) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[summed]tries{}
	}
	if _, known := r.by[key]; !known && len(r.by) >= state.MaxRefusals-1 {
		key = elsewhere
	}
	sum := r.by[key]
	r.by[key] = tries{max(sum.last, last), sum.count + n}
}

// take returns the refusals of all minutes before the given minute, and removes them from the map.
func (r *refusals) take(minute int64) (items []state.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, sum := range r.by {
		if key.minute >= minute {
			continue
		}
		items = append(items, state.Refusal{
			Action: key.action, At: sum.last, Addr: key.addr, Account: key.account, Detail: key.detail, Count: sum.count,
		})
		delete(r.by, key)
	}
	slices.SortFunc(items, func(a, b state.Refusal) int { return cmp.Compare(a.At, b.At) })
	return items
}

// RefusedSignIn counts a sign-in with a wrong password, and returns at once. account is the
// account with the given name, or empty if there is none. The name itself is not recorded,
// because people sometimes type their password into that field. from is the address or the
// network of the client.
func (l *Log) RefusedSignIn(account state.AccountID, from netip.Addr) {
	addr := ""
	if from.IsValid() {
		addr = from.WithZone("").String() // the length of a zone has no bound
	}
	l.refused(summed{action: state.ActionSessionCreate, account: account, addr: addr}, 1)
}

// RefusedJoin counts n attempts to join from an address that were refused for the reason why, and
// returns at once.
func (l *Log) RefusedJoin(addr, why string, n int) {
	why = strings.ToValidUTF8(why[:min(len(why), maxWhy)], "")
	l.refused(summed{action: state.ActionMemberJoin, addr: addr, detail: why}, uint64(max(n, 0)))
}

func (l *Log) refused(key summed, n uint64) {
	now := l.now()
	key.minute = minuteOf(now)
	l.refusals.add(key, n, state.MillisOf(now))
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// Run records refusals and removes old rows at regular intervals, until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	record, prune := time.NewTicker(refusalsEvery), time.NewTicker(pruneEvery)
	defer record.Stop()
	defer prune.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-record.C:
			err = l.RecordRefusals(ctx)
		case <-prune.C:
			err = l.Prune(ctx)
		}
		if err != nil && ctx.Err() == nil {
			l.log.LogAttrs(ctx, slog.LevelDebug, "audit log not written yet", slog.Any("err", err))
		}
	}
}

// has reports whether the feature level of the cluster includes the audit log.
func has(view state.View) (bool, error) {
	level, err := view.FeatureLevel()
	return level >= state.AuditLevel, err
}

// RecordRefusals writes this node's refusals of all past minutes to the audit log. Without a
// majority it returns state.ErrUnavailable, and the next call writes them.
func (l *Log) RecordRefusals(ctx context.Context) error {
	items := l.refusals.take(minuteOf(l.now()))
	if len(items) == 0 {
		return nil
	}
	view, release := l.state.LocalView()
	there, err := has(view)
	release()
	if err != nil || !there {
		return err // without the feature level the cluster has no log
	}
	_, err = l.state.Propose(ctx, &state.NoteRefusals{Items: items})
	if errors.Is(err, state.ErrUnavailable) {
		for _, i := range items {
			l.refusals.add(summed{action: i.Action, account: i.Account, addr: i.Addr, detail: i.Detail, minute: minuteOf(i.At.Time())}, i.Count, i.At)
		}
	}
	return err
}

// Prune removes rows that are older than state.AuditFor. It does nothing while no time is known
// on which most members agree.
func (l *Log) Prune(ctx context.Context) error {
	now, _, ok := l.agreed()
	if !ok || now <= state.AuditFor {
		return nil
	}
	before := now - state.AuditFor
	for {
		old, err := l.oldest()
		if err != nil || old == 0 || old >= before {
			return err
		}
		if _, err := l.state.Propose(ctx, &state.PruneAudit{Before: before}); err != nil {
			return err
		}
	}
}

// oldest returns the time of the oldest row on this node, or 0 if the log is empty.
func (l *Log) oldest() (at state.Millis, err error) {
	view, release := l.state.LocalView()
	defer release()
	head, err := view.AuditHead()
	if err != nil || head.First == head.Next {
		return 0, err
	}
	err = view.AuditBefore(head.First+1, func(e state.AuditEntry) (bool, error) {
		at = e.At
		return false, nil
	})
	return at, err
}
