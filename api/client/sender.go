package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// answer is what the transport recorded of the last answer under a context.
type answer struct {
	status     int // 0 if there was no answer
	header     http.Header
	retryAfter time.Duration // 0 if the answer has no Retry-After in seconds
}

type answerKey struct{}

// withAnswer returns a context that makes the transport record answers in a.
func withAnswer(ctx context.Context, a *answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

// withoutTokenKey is the context key of withoutToken.
type withoutTokenKey struct{}

// withoutToken returns a context that makes the transport send no token.
func withoutToken(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutTokenKey{}, true)
}

// sender is the http.RoundTripper of all nodes. It adds the token and the User-Agent to each
// request, and records each answer for withAnswer.
type sender struct {
	to    http.RoundTripper
	token string
	agent string
}

// RoundTrip implements http.RoundTripper.
func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", s.agent)
	if s.token != "" && r.Context().Value(withoutTokenKey{}) == nil {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	seen, _ := r.Context().Value(answerKey{}).(*answer)
	if seen != nil {
		*seen = answer{}
	}
	resp, err := s.to.RoundTrip(r)
	if err == nil && seen != nil {
		seen.status, seen.header = resp.StatusCode, resp.Header
		if seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
			seen.retryAfter = time.Duration(seconds) * time.Second
		}
	}
	return resp, err
}
