package state

import "context"

// askerKey is the key of a context's value that As and AsSession put there.
type askerKey struct{}

// As sets the API key of the caller for changes under ctx. They are made only if the key is
// valid at that moment; otherwise the error is ErrUnauthorized. An empty key sets none.
func As(ctx context.Context, key KeyID) context.Context {
	return context.WithValue(ctx, askerKey{}, key)
}

// AsSession is As for changes that a session asks for.
func AsSession(ctx context.Context, session SessionID) context.Context {
	return context.WithValue(ctx, askerKey{}, session)
}

// ByAsker returns the change with the credentials in ctx, so that Apply checks them.
func ByAsker(ctx context.Context, change Command) Command {
	if !Asked(change) {
		return change
	}
	switch by := ctx.Value(askerKey{}).(type) {
	case KeyID:
		if by != "" {
			return &ByKey{Key: by, Change: change}
		}
	case SessionID:
		return &BySession{Session: by, Change: change}
	}
	return change
}
