package state

import "context"

// askerKey is the context key of the value that As and AsSession store.
type askerKey struct{}

// As returns a context for changes on behalf of an API key: ByAsker wraps them in ByKey. Apply
// then rejects a change with ErrUnauthorized if the key is not valid at that moment. With an
// empty key, changes are not wrapped and not checked.
func As(ctx context.Context, key KeyID) context.Context {
	return context.WithValue(ctx, askerKey{}, key)
}

// AsSession returns a context for changes on behalf of a session: ByAsker wraps them in
// BySession. Apply then rejects a change with ErrUnauthorized if the session does not exist at
// that moment.
func AsSession(ctx context.Context, session SessionID) context.Context {
	return context.WithValue(ctx, askerKey{}, session)
}

// ByAsker wraps a change in ByKey or BySession according to the credentials in ctx, so that Apply
// checks them. Without credentials it returns the change itself.
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
