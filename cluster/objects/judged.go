package objects

import (
	"context"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// judgeKey is the key of a context's value that Judged puts there.
type judgeKey struct{}

// Judged returns a context for a request whose changes are proposed only if judge
// returns nil right before, and whose error they return else. A body may take hours to
// come, and parts minutes to be joined: in that time a key is revoked.
func Judged(ctx context.Context, judge func(context.Context) error) context.Context {
	return context.WithValue(ctx, judgeKey{}, judge)
}

// Judge asks the judge of a context whether its request may still change something; it
// may where there is none.
func Judge(ctx context.Context) error {
	if judge, ok := ctx.Value(judgeKey{}).(func(context.Context) error); ok {
		return judge(ctx)
	}
	return nil
}

// propose commits a command, if who asked for it still may: by the judge of its context, who
// may have looked long before it is committed, and by Apply (state.As).
func (o *Objects) propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	if err := Judge(ctx); err != nil {
		return state.Result{}, err
	}
	return o.opts.State.Propose(ctx, state.ByAsker(ctx, cmd))
}
