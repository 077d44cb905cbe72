package client

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"
)

// answering is a transport without a network.
type answering func(r *http.Request) *http.Response

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// TestANodeIsLeftAloneAsLongAsItAsks promises that the client sends a node that is overloaded no request
// before the seconds of Retry-After are over, and uses another node meanwhile.
func TestANodeIsLeftAloneAsLongAsItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type request struct {
			host  string
			after time.Duration
		}
		for _, tc := range []struct {
			endpoints []string
			overload  int // requests that are refused
			want      []request
		}{
			{[]string{"http://one"}, 1, []request{{"one", 0}, {"one", 7 * time.Second}}},
			{[]string{"http://one", "http://two"}, 1, []request{{"one", 0}, {"two", 0}}},
			{[]string{"http://one", "http://two"}, 2, []request{{"one", 0}, {"two", 0}, {"one", 7 * time.Second}}},
		} {
			begun := time.Now()
			var got []request
			c, err := New(Options{Endpoints: tc.endpoints, Token: "token", Patience: time.Minute, Transport: answering(func(r *http.Request) *http.Response {
				got = append(got, request{r.URL.Host, time.Since(begun)})
				resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}
				resp.Header.Set("Last-Modified", begun.UTC().Format(http.TimeFormat))
				resp.Header.Set("Content-Length", "0")
				resp.Header.Set("Etag", `"e"`)
				if len(got) <= tc.overload {
					resp.StatusCode = http.StatusServiceUnavailable
					resp.Header.Set("Retry-After", "7")
				}
				return resp
			})})
			if err != nil {
				t.Fatal(err)
			}
			c.answered.Store(true) // else the patience is that of a wrong address
			if _, err := c.Head(t.Context(), "bucket", "key"); err != nil {
				t.Errorf("%q: %v", tc.endpoints, err)
			}
			if len(got) != len(tc.want) {
				t.Fatalf("%q: %v, want %v", tc.endpoints, got, tc.want)
			}
			for i := range got { // minio-go pauses after a failed request
				if late := got[i].after - tc.want[i].after; got[i].host != tc.want[i].host || late < 0 || late > time.Duration(i)*minio.DefaultRetryUnit {
					t.Errorf("%q: request %d is %v, want %v", tc.endpoints, i, got[i], tc.want[i])
				}
			}
		}
	})
}
