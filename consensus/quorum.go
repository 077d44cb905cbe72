package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// askOthersAfter is how long reach waits for the first voters that it asks before it asks the
// other voters too.
const askOthersAfter = 5 * time.Millisecond

// quorum sends a request to voters until enough of them have answered. It first asks only as many
// as it needs. It asks one more for each that fails, and all others after askOthersAfter. It asks
// voters last that were late in an earlier request.
type quorum struct {
	// mu guards late.
	mu   sync.Mutex
	late []raft.ServerID // voters that were late, the most recent ones at the end
}

// errNoVoter means that fewer voters can be asked than the quorum needs.
var errNoVoter = errors.New("there is no other voter")

// reach calls ask for voters and returns nil when need of the calls have returned nil. It returns
// an error when that is no longer possible. ask must return when its context ends. reach starts
// each call in a goroutine by spawn.
func (q *quorum) reach(
	ctx context.Context, voters []raft.ServerID, need int,
	ask func(context.Context, raft.ServerID) error, spawn func(func()),
) error {
	if need <= 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the answers beyond those that are needed are not waited for
	type answer struct {
		from raft.ServerID
		err  error
	}
	voters = q.order(voters)
	answers := make(chan answer, len(voters))
	asked := 0
	more := func(count int) {
		for _, v := range voters[asked:min(asked+count, len(voters))] {
			asked++
			spawn(func() { answers <- answer{v, ask(ctx, v)} })
		}
	}
	more(need)
	awaited := slices.Clone(voters[:asked])
	defer func() { q.wait(voters, awaited) }()
	timer := time.NewTimer(askOthersAfter)
	defer timer.Stop()
	missing := errNoVoter
	for agreed, failed := 0, 0; agreed < need; {
		if agreed+failed == len(voters) {
			return fmt.Errorf("%d of %d voters answer, %d are needed: %w", agreed, len(voters), need, missing)
		}
		select {
		case a := <-answers:
			if a.err != nil {
				missing = a.err
				failed++
				more(1)
				continue
			}
			agreed++
			awaited = slices.DeleteFunc(awaited, func(v raft.ServerID) bool { return v == a.from })
		case <-timer.C:
			more(len(voters))
		}
	}
	return nil
}

// order returns the voters with those at the end that were late.
func (q *quorum) order(voters []raft.ServerID) []raft.ServerID {
	q.mu.Lock()
	defer q.mu.Unlock()
	ordered := slices.Clone(voters)
	slices.SortStableFunc(ordered, func(a, b raft.ServerID) int {
		return slices.Index(q.late, a) - slices.Index(q.late, b)
	})
	return ordered
}

// wait moves the voters in awaited, which did not answer in time, to the end of late, and removes
// from late any server that is not in voters.
func (q *quorum) wait(voters, awaited []raft.ServerID) {
	if len(awaited) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.late = slices.DeleteFunc(q.late, func(v raft.ServerID) bool {
		return slices.Contains(awaited, v) || !slices.Contains(voters, v)
	})
	q.late = append(q.late, awaited...)
}
