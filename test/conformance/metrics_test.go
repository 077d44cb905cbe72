//go:build conformance

package conformance

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestMetricsTellOfRequests promises that the metrics of a node count its requests by API, operation and answer, and
// that docs/operating.md names each metric.
func TestMetricsTellOfRequests(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, harness.Options{})
	o, n := newObjects(t, c, "metrics@example.org"), c.Followers()[0]
	before := n.Metrics()
	bucket := "/metrics" + randomName()
	for _, call := range []struct {
		method, path string
		body         []byte
		status       int
	}{
		{http.MethodPut, bucket, nil, http.StatusOK},
		{http.MethodPut, bucket + "/key", []byte("content"), http.StatusOK},
		{http.MethodGet, bucket + "/key", nil, http.StatusOK},
		{http.MethodGet, bucket + "/other", nil, http.StatusNotFound},
	} {
		if r := o.callOn(n, call.method, call.path, call.body); r.Status != call.status {
			t.Fatalf("%s %s: %d %s", call.method, call.path, r.Status, r.Body)
		}
	}
	o.with("").callOn(n, http.MethodGet, bucket+"/key", nil)
	do(t, n, o.token, http.MethodPost, "/pins", `{"cid":"`+nowhere().String()+`"}`, nil)
	do(t, n, o.token, http.MethodGet, "/pins/unknown", "", nil)
	do(t, n, "", http.MethodGet, "/pins", "", nil)
	after := n.Metrics()
	for _, sample := range []string{
		`holdfast_http_requests_total{api="s3",code="200",operation="CreateBucket"}`,
		`holdfast_http_requests_total{api="s3",code="200",operation="PutObject"}`,
		`holdfast_http_requests_total{api="s3",code="200",operation="GetObject"}`,
		`holdfast_http_requests_total{api="s3",code="404",operation="GetObject"}`,
		`holdfast_http_requests_total{api="s3",code="403",operation="none"}`,
		`holdfast_http_requests_total{api="pinning",code="202",operation="POST /pins"}`,
		`holdfast_http_requests_total{api="pinning",code="404",operation="GET /pins/{requestid}"}`,
		`holdfast_http_requests_total{api="pinning",code="401",operation="GET /pins"}`,
		`holdfast_http_answer_seconds_count{api="s3",operation="PutObject"}`,
	} {
		if got := after[sample] - before[sample]; got != 1 {
			t.Errorf("%s: %g more, want 1", sample, got)
		}
	}
	documented := string(read(t, "../../docs/operating.md"))
	for sample := range after {
		name, _, _ := strings.Cut(sample, "{")
		for _, part := range []string{"_bucket", "_count", "_sum"} { // of a histogram
			name = strings.TrimSuffix(name, part)
		}
		if strings.HasPrefix(name, "holdfast_") && !strings.Contains(documented, "`"+name) {
			t.Errorf("docs/operating.md does not name %s", name)
		}
	}
	for _, api := range []string{"s3", "pinning"} {
		if n := after[`holdfast_http_requests_underway{api="`+api+`"}`]; n != 0 {
			t.Errorf("%g requests of %s are under way", n, api)
		}
	}
}
