package pinning

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Both operations that create a pin take its end from X-Holdfast-Until, as a time or a duration, and refuse
// another value with 400.
func TestTheEndOfAPinIsAHeader(t *testing.T) {
	for _, path := range []string{"/pins", "/pins/" + string(fullRecord().ID)} {
		for name, tc := range map[string]struct {
			values []string
			want   pins.End
			status int
		}{
			"none":       {nil, pins.End{}, http.StatusAccepted},
			"a time":     {[]string{"2027-01-31T12:00:00Z"}, pins.End{At: 1_801_396_800_000}, http.StatusAccepted},
			"a duration": {[]string{"720h"}, pins.End{For: 720 * time.Hour}, http.StatusAccepted},
			"empty":      {[]string{""}, pins.End{}, http.StatusBadRequest},
			"nonsense":   {[]string{"soon"}, pins.End{}, http.StatusBadRequest},
			"negative":   {[]string{"-1h"}, pins.End{}, http.StatusBadRequest},
			"two":        {[]string{"1h", "1h"}, pins.End{}, http.StatusBadRequest},
		} {
			f := &fake{record: fullRecord()}
			req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"cid":"`+cidOne+`"}`))
			req.Header["X-Holdfast-Until"] = tc.values
			rec := httptest.NewRecorder()
			f.handler(t).ServeHTTP(rec, req)
			if rec.Code != tc.status || f.asked.End != tc.want || (f.asked.CID == "") != (tc.status != http.StatusAccepted) {
				t.Errorf("%s, %s: %d %s, asked for %+v", path, name, rec.Code, rec.Body, f.asked)
			}
			if body := rec.Body.String(); tc.status == http.StatusBadRequest && (!strings.Contains(body, `"reason":"BAD_REQUEST"`) || !strings.Contains(body, "the end") && len(tc.values) == 1 || !strings.Contains(body, web.UntilHeader) && len(tc.values) > 1) {
				t.Errorf("%s: %s", name, body)
			}
		}
	}
}

// A pin with an end is answered 503 with the reason while not all members are upgraded.
func TestAnEndBeforeAllMembersAreUpgradedIs503(t *testing.T) {
	f := &fake{err: state.Errorf(state.CodeUnavailable, "not all members are upgraded")}
	req := httptest.NewRequest(http.MethodPost, "/pins", strings.NewReader(`{"cid":"`+cidOne+`"}`))
	req.Header.Set(web.UntilHeader, "1h")
	rec := httptest.NewRecorder()
	f.handler(t).ServeHTTP(rec, req)
	if rec.Code != http.StatusServiceUnavailable || !strings.Contains(rec.Body.String(), "not all members are upgraded") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// A script of another origin may send the header with the end of a pin.
func TestScriptsMaySendTheEnd(t *testing.T) {
	h := shared.Allow([]string{web.AnyOrigin}, http.NotFoundHandler())
	req := httptest.NewRequest(http.MethodOptions, "/pins", nil)
	req.Header.Set("Origin", "https://app.example")
	req.Header.Set("Access-Control-Request-Method", http.MethodPost)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	if allowed := rec.Header().Get("Access-Control-Allow-Headers"); !strings.Contains(allowed, web.UntilHeader) {
		t.Errorf("allowed are %q", allowed)
	}
}
