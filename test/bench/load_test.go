package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A request that is under way when a load ends and then fails is an error of the load.
func TestAFailureAfterTheEndOfALoadIsTold(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		end()
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer s.Close()
	to, err := newService(s.URL, "token")
	if err != nil {
		t.Fatal(err)
	}
	_, err = load{clients: 1, make: func(int) request { return request{http.MethodGet, "/x", nil, http.StatusOK, nil} }}.run(ctx, to)
	if err == nil || !strings.Contains(err.Error(), "HTTP 500") {
		t.Errorf("the load came to %v", err)
	}
}
