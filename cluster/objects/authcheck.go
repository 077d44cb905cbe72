package objects

import (
	"context"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// authCheckKey is the context key of the function that is passed to WithAuthCheck.
type authCheckKey struct{}

// WithAuthCheck returns a context for a pre-authenticated request. Each use case calls check right before it
// proposes a change of the request. If check returns an error, the use case proposes nothing and returns that
// error. A body may take hours to arrive, and its key may be revoked meanwhile.
func WithAuthCheck(ctx context.Context, check func(context.Context) error) context.Context {
	return context.WithValue(ctx, authCheckKey{}, check)
}

// CheckAuth runs the check of a context and returns its error. It returns nil if the context has
// no check.
func CheckAuth(ctx context.Context) error {
	if check, ok := ctx.Value(authCheckKey{}).(func(context.Context) error); ok {
		return check(ctx)
	}
	return nil
}

// propose commits a command if the check in its context allows that. Apply checks the
// caller again (state.ByAsker), because the commit may come much later.
func (o *Objects) propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	if err := CheckAuth(ctx); err != nil {
		return state.Result{}, err
	}
	return o.opts.State.Propose(ctx, state.ByAsker(ctx, cmd))
}
