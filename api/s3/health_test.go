package s3

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// always is a node that is ready.
type always struct{}

func (always) Ready(context.Context) error { return nil }

// The addresses of the other APIs are told without credentials, for the host and the scheme of the request, and only if
// the node tells them. No bucket or object is hidden by their path.
func TestAddressesNeedNoCredentials(t *testing.T) {
	const path = "/.well-known/holdfast"
	w := newWorld(t)
	without := w.handler
	w.options.Addresses = func(host, scheme string) web.Addresses {
		return web.Addresses{Pinning: scheme + "://" + host + "/p", Web: scheme + "://" + host + "/w"}
	}
	w.rebuild(t)
	for _, tc := range []struct {
		name     string
		call     call
		host     string
		status   int
		contains string
	}{
		{"told", call{method: "GET", path: path, token: "-"}, "node1:9000", 200, `{"pinning":"http://node1:9000/p","web":"http://node1:9000/w"}`},
		{"signed", call{method: "GET", path: path}, "", 400, "InvalidBucketName"},
		{"with a query", call{method: "GET", path: path + "?x=1", token: "-"}, "", 403, "AccessDenied"},
		{"with another method", call{method: "PUT", path: path, token: "-"}, "", 403, "AccessDenied"},
		{"an object of a bucket that the host names", call{method: "GET", path: path, token: "-"}, "photos.s3.test", 403, "AccessDenied"},
	} {
		r := w.request(t, tc.call)
		if tc.host != "" {
			r.Host = tc.host
		}
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		if answer.Code != tc.status || !strings.Contains(answer.Body.String(), tc.contains) {
			t.Errorf("%s: %d %s, want %d and %q", tc.name, answer.Code, answer.Body, tc.status, tc.contains)
		}
	}
	answer := httptest.NewRecorder()
	if without.ServeHTTP(answer, w.request(t, call{method: "GET", path: path, token: "-"})); answer.Code != 403 {
		t.Errorf("a gateway that knows no addresses answers %d", answer.Code)
	}
}

// Health is answered without credentials, also while the node starts, and signed requests reach a bucket of that
// name.
func TestHealthNeedsNoCredentials(t *testing.T) {
	w := newWorld(t)
	starting := w.handler
	for _, tc := range []struct {
		name     string
		state    string // starting, unready, ready
		call     call
		host     string
		status   int
		contains string
	}{
		{name: "alive", state: "ready", call: call{method: "GET", path: "/healthz", token: "-"}, status: 200, contains: `"status":"alive"`},
		{name: "ready", state: "ready", call: call{method: "GET", path: "/readyz", token: "-"}, status: 200, contains: `"status":"ready"`},
		{name: "ready by HEAD", state: "ready", call: call{method: "HEAD", path: "/readyz", token: "-"}, status: 200},
		{name: "alive while not ready", state: "unready", call: call{method: "GET", path: "/healthz", token: "-"}, status: 200, contains: `"status":"alive"`},
		{name: "not ready", state: "unready", call: call{method: "GET", path: "/readyz", token: "-"}, status: 503, contains: "it starts"},
		{name: "alive while starting", state: "starting", call: call{method: "GET", path: "/healthz", token: "-"}, status: 200, contains: `"status":"alive"`},
		{name: "not ready while starting", state: "starting", call: call{method: "GET", path: "/readyz", token: "-"}, status: 503, contains: "it starts"},
		{name: "a bucket while starting", state: "starting", call: call{method: "GET", path: "/healthz"}, status: 503, contains: "it starts"},
		{name: "a bucket of that name", state: "ready", call: call{method: "GET", path: "/healthz"}, status: 404, contains: "NoSuchBucket"},
		{name: "with a query", state: "ready", call: call{method: "GET", path: "/healthz?list-type=2", token: "-"}, status: 403, contains: "AccessDenied"},
		{name: "with another method", state: "ready", call: call{method: "PUT", path: "/healthz", token: "-"}, status: 403, contains: "AccessDenied"},
		{name: "an object of a bucket that the host names", state: "ready", call: call{method: "GET", path: "/healthz", token: "-"}, host: "photos.s3.test", status: 403, contains: "AccessDenied"},
		{name: "an object below", state: "ready", call: call{method: "GET", path: "/healthz/a", token: "-"}, status: 403, contains: "AccessDenied"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.options.Health = always{}
			if tc.state == "unready" {
				w.options.Health = never{}
			}
			w.rebuild(t)
			serve := w.handler
			if tc.state == "starting" {
				serve = Starting(w.options, never{})
			}
			r := w.request(t, tc.call)
			if tc.host != "" {
				r.Host = tc.host
			}
			answer := httptest.NewRecorder()
			serve.ServeHTTP(answer, r)
			if answer.Code != tc.status || !strings.Contains(answer.Body.String(), tc.contains) {
				t.Errorf("%d %s, want %d and %q", answer.Code, answer.Body, tc.status, tc.contains)
			}
		})
	}
	answer := httptest.NewRecorder()
	starting.ServeHTTP(answer, w.request(t, call{method: "GET", path: "/healthz", token: "-"}))
	if answer.Code != 403 {
		t.Errorf("a surface that knows of no health answered %d", answer.Code)
	}
}
