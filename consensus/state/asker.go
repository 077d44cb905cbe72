package state

import "context"

// askerKey is the context key of the value that As and AsSession store.
type askerKey struct{}

// As makes the changes under ctx use the API key of the caller. Such a change is made only if
// the key is valid when it is applied; otherwise the error is ErrUnauthorized. With an empty
// key, As has no effect.
func As(ctx context.Context, key KeyID) context.Context {
	return context.WithValue(ctx, askerKey{}, key)
}

// AsSession does the same as As for changes that a session requests.
func AsSession(ctx context.Context, session SessionID) context.Context {
	return context.WithValue(ctx, askerKey{}, session)
}

// ByAsker returns the change together with the credentials in ctx, so that Apply checks them.
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
