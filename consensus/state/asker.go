package state

import "context"

// askerKey is the key of a context's value that As and AsSession put there.
type askerKey struct{}

// As tells, for the changes under ctx, which API key asks for them: they are made only if it
// lives at that moment, else they end in ErrUnauthorized. "" is none.
func As(ctx context.Context, key KeyID) context.Context {
	return context.WithValue(ctx, askerKey{}, key)
}

// AsSession is As for changes that a session asks for.
func AsSession(ctx context.Context, session SessionID) context.Context {
	return context.WithValue(ctx, askerKey{}, session)
}

// ByAsker is a change as whoever asks for it under ctx may have it made.
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
