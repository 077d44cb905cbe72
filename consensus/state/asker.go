package state

import "context"

// askerKey is the context key of the value that As and AsSession store.
type askerKey struct{}

// As returns a context whose changes are made with an API key. Apply makes such a change only if the key
// is valid when the change is applied; otherwise the error is ErrUnauthorized. With an empty key the
// changes have no caller and are not checked.
func As(ctx context.Context, key KeyID) context.Context {
	return context.WithValue(ctx, askerKey{}, key)
}

// AsSession returns a context whose changes are made in a session. Apply makes such a change only if the
// session exists when the change is applied; otherwise the error is ErrUnauthorized.
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
