package pinning

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

// BenchmarkIDsOfOthers shows that an answer takes as long for an id that somebody
// else's pin has as for one that none has: both are asked for in turn, so that
// what else the machine does weighs on both, and others/unknown is the ratio of
// the medians. Run it with -benchtime 2000x or more.
func BenchmarkIDsOfOthers(b *testing.B) {
	w := newWorld(b)
	w.do(request{method: "POST", path: "/pins", body: `{"cid":"` + cidOne + `"}`, token: w.bob})
	ids := [2]string{"00000000-0000-4000-8000-999999999999", "00000000-0000-4000-8000-000000000001"}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		b.Run(method, func(b *testing.B) {
			var took [2][]time.Duration
			for i := 0; b.Loop(); i++ {
				for turn := range ids {
					which := (i + turn) % 2 // neither is always the first
					r := request{method: method, path: "/pins/" + ids[which], token: w.alice}
					if method == http.MethodPost {
						r.body = `{"cid":"` + cidTwo + `"}`
					}
					began := time.Now()
					rec := w.do(r)
					took[which] = append(took[which], time.Since(began))
					if rec.Code != http.StatusNotFound {
						b.Fatalf("%d %s", rec.Code, rec.Body)
					}
				}
			}
			var median [2]float64
			for which := range ids {
				slices.Sort(took[which])
				median[which] = float64(took[which][len(took[which])/2])
			}
			b.ReportMetric(median[1]/median[0], "others/unknown")
		})
	}
}
