package objects

import (
	"context"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// authCheckKey is the context key under which WithAuthCheck stores its function.
type authCheckKey struct{}

// WithAuthCheck returns a context for a request whose key was checked before. A body may take
// hours to arrive, and the key may be revoked meanwhile. So the methods of Objects call check
// again right before they propose a change. If check returns an error, they propose nothing and
// return that error.
func WithAuthCheck(ctx context.Context, check func(context.Context) error) context.Context {
	return context.WithValue(ctx, authCheckKey{}, check)
}

// CheckAuth calls the function that WithAuthCheck has stored in ctx and returns its error. It
// returns nil if there is no function.
func CheckAuth(ctx context.Context) error {
	if check, ok := ctx.Value(authCheckKey{}).(func(context.Context) error); ok {
		return check(ctx)
	}
	return nil
}

// propose commits a command, unless CheckAuth returns an error. Apply checks the caller again
// (state.ByAsker), because the commit may come much later.
func (o *Objects) propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	if err := CheckAuth(ctx); err != nil {
		return state.Result{}, err
	}
	return o.opts.State.Propose(ctx, state.ByAsker(ctx, cmd))
}
