package s3

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// lag returns the surface serve on a node that hears of no change from now on, and holds
// accounts to a rate there.
func (w *world) lag(t testing.TB, rate web.Rate) *clustertest.Lagging {
	t.Helper()
	behind := clustertest.NewLagging(t, w.state)
	w.options.Accounts = accounts.New(accounts.Options{State: behind, Secret: []byte("a secret of the cluster, 32 byte"), Now: w.now})
	w.options.Limits = web.NewLimits(rate, web.Rate{}, nil, w.now)
	w.rebuild(t)
	return behind
}

// ways are requests of a key in every form in which a key can ask, by their names.
func (w *world) ways(t testing.TB, k *accounts.Key) map[string]func() *http.Request {
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	signed := func(id, secret string) *http.Request {
		r := w.request(t, call{method: "GET", path: "/photos?list-type=2", token: "-"})
		r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		if err := signer.SignHTTP(t.Context(), aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}, r, "UNSIGNED-PAYLOAD", "s3", "us-east-1", w.now()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	return map[string]func() *http.Request{
		"a token": func() *http.Request {
			return w.request(t, call{method: "GET", path: "/photos/dir/one", token: k.Token})
		},
		"a signature":      func() *http.Request { return signed(k.AccessKeyID, k.SecretAccessKey) },
		"a token as a key": func() *http.Request { return signed("JWT:"+k.Token, "any") },
		"a link": func() *http.Request {
			r := httptest.NewRequest("GET", "/photos/dir/one?X-Amz-Expires=600", http.NoBody)
			url, _, err := signer.PresignHTTP(t.Context(), aws.Credentials{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey},
				r, "UNSIGNED-PAYLOAD", "s3", "us-east-1", w.now())
			if err != nil {
				t.Fatal(err)
			}
			return httptest.NewRequest("GET", url, http.NoBody)
		},
		"a form": func() *http.Request {
			fields := append(w.signedFields(k, policyOf(`["starts-with", "$key", ""]`)), field{"key", "form"}, field{"file", "hello"})
			return w.request(t, call{method: "POST", path: "/photos", token: "-", body: formOf("f", fields...), header: []string{formHeader}})
		},
	}
}

func (w *world) answer(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	return rec
}

// While an account is above its rate, its requests get SlowDown without a read of the cluster, in every form,
// and revoked keys and wrong signatures still get 403.
func TestSlowDownDoesNotAskTheCluster(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	behind := w.lag(t, web.Rate{PerSecond: 1, Burst: 1})
	w.must(t, 200, call{method: "GET", path: "/photos"})
	w.must(t, 503, call{method: "GET", path: "/photos"})
	asked := behind.Asked()
	for name, way := range w.ways(t, &w.alice) {
		rec := w.answer(way())
		if rec.Code != 503 || rec.Header().Get("Retry-After") != "1" || !strings.Contains(rec.Body.String(), "<Code>SlowDown</Code>") {
			t.Errorf("%s: %d %v %s", name, rec.Code, rec.Header(), rec.Body)
		}
	}
	if n := behind.Asked() - asked; n != 0 {
		t.Errorf("refusals asked the cluster %d times", n)
	}
	for name, way := range w.ways(t, &w.revoked) {
		if rec := w.answer(way()); rec.Code != 403 {
			t.Errorf("%s of a revoked key: %d %s", name, rec.Code, rec.Body)
		}
	}
	thief := w.bob
	thief.AccessKeyID = w.alice.AccessKeyID
	for _, name := range []string{"a signature", "a link", "a form"} {
		if rec := w.answer(w.ways(t, &thief)[name]()); rec.Code != 403 || strings.Contains(rec.Body.String(), "SlowDown") {
			t.Errorf("%s with another's secret: %d %s", name, rec.Code, rec.Body)
		}
	}
	w.must(t, 404, call{method: "GET", path: "/photos", token: w.bob.Token})
	// Taken once from the rate, also when it is asked first.
	for name, way := range w.ways(t, &w.alice) {
		w.pass(time.Second)
		first, second := w.answer(way()), w.answer(way())
		if first.Code >= 300 || second.Code != 503 {
			t.Errorf("%s: %d %s, then %d", name, first.Code, first.Body, second.Code)
		}
		// Less than a second ago somebody was refused: the next is asked first.
		w.pass(999 * time.Millisecond)
		if rec := w.answer(way()); rec.Code != 503 {
			t.Errorf("%s: a millisecond too early: %d", name, rec.Code)
		}
		w.pass(time.Millisecond)
		if first, second := w.answer(way()), w.answer(way()); first.Code >= 300 || second.Code != 503 {
			t.Errorf("%s, asked first: %d, then %d", name, first.Code, second.Code)
		}
	}
}

// A DeleteObjects request is done as a whole, and its account waits afterwards for as long as its work counts
// against the rate.
func TestDeletingManyCountsAsMore(t *testing.T) {
	object := func(inside string) string { return "<Object>" + inside + "</Object>" }
	plain := func(n int) (all string) {
		for i := range n {
			all += object(fmt.Sprintf("<Key>none/%d</Key>", i))
		}
		return all
	}
	for name, tc := range map[string]struct {
		body string
		wait int // seconds, at one request a second
	}{
		"few":                  {plain(deletesOfOne), 1},
		"a change of many":     {plain(100), 5},
		"as many as there may": {plain(state.MaxDeleteKeys), state.MaxDeleteKeys / deletesOfOne},
		"each in a change":     {strings.Repeat(object("<Key>none</Key><ETag>x</ETag>"), 7), 7},
		"some of both":         {plain(40) + strings.Repeat(object("<Key>none</Key><ETag>x</ETag>"), 3), 5},
		"none that can be":     {strings.Repeat(object("<Key>none</Key><VersionId></VersionId>"), 500), 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.scene(t)
			w.lag(t, web.Rate{PerSecond: 1, Burst: 1})
			rec := w.must(t, 200, call{method: "POST", path: "/photos?delete", body: "<Delete>" + tc.body + "</Delete>"})
			if n := strings.Count(rec.Body.String(), "SlowDown"); n > 0 {
				t.Errorf("%d of it were not tried", n)
			}
			rec = w.must(t, 503, call{method: "GET", path: "/photos"})
			if got := rec.Header().Get("Retry-After"); got != strconv.Itoa(tc.wait) {
				t.Errorf("Retry-After %s, want %d", got, tc.wait)
			}
			w.must(t, 404, call{method: "GET", path: "/photos", token: w.bob.Token}) // another account
			w.pass(time.Duration(tc.wait) * time.Second)
			w.must(t, 200, call{method: "GET", path: "/photos"})
		})
	}
}

// A SlowDown has the CORS headers of the bucket's rule, so that a script can read it.
func TestAScriptCanReadThatItHasToWait(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	w.must(t, 200, call{method: "PUT", path: "/photos?cors", body: `<CORSConfiguration><CORSRule><AllowedOrigin>https://page.test</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>`})
	w.lag(t, web.Rate{PerSecond: 1, Burst: 1})
	w.must(t, 200, call{method: "GET", path: "/photos"})
	for range 3 {
		rec := w.must(t, 503, call{method: "GET", path: "/photos", header: []string{"Origin: https://page.test"}})
		if rec.Header().Get("Access-Control-Allow-Origin") != "https://page.test" || rec.Header().Get("Retry-After") != "1" {
			t.Errorf("%v", rec.Header())
		}
	}
}

// A key that was revoked elsewhere, which the node has not heard of, gets AccessDenied or SlowDown and is never
// served.
func TestAKeyThatEndedElsewhereIsNeverServed(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	key, err := w.users.CreateKey(t.Context(), "alice@example.org", "", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.lag(t, web.Rate{PerSecond: 1, Burst: 2})
	if err := w.users.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	said := map[int]int{}
	for range 50 {
		ways := w.ways(t, &key)
		for _, name := range slices.Sorted(maps.Keys(ways)) {
			rec := w.answer(ways[name]())
			if rec.Code != 403 && (rec.Code != 503 || !strings.Contains(rec.Body.String(), "<Code>SlowDown</Code>")) {
				t.Fatalf("%s: %d %s", name, rec.Code, rec.Body)
			}
			said[rec.Code]++
		}
		w.do(t, call{method: "GET", path: "/photos"})
		w.pass(300 * time.Millisecond)
	}
	if said[403] == 0 || said[503] == 0 {
		t.Errorf("answers: %v", said)
	}
	if _, err := w.fake.Object(t.Context(), w.who.Account, "photos", "form", ""); err == nil {
		t.Error("a form was stored")
	}
}

func BenchmarkRefusedForTheRate(b *testing.B) {
	w := newWorld(b)
	behind := w.lag(b, web.Rate{PerSecond: 1, Burst: 1})
	for _, name := range []string{"a token", "a signature"} {
		b.Run(name, func(b *testing.B) {
			r := w.ways(b, &w.alice)[name]()
			for range 2 {
				w.answer(r)
			}
			asked := behind.Asked()
			b.ReportAllocs()
			for b.Loop() {
				rec := httptest.NewRecorder()
				w.handler.ServeHTTP(rec, r)
				if rec.Code != http.StatusServiceUnavailable {
					b.Fatal(rec.Code)
				}
			}
			b.ReportMetric(float64(behind.Asked()-asked)/float64(b.N), "rounds/op")
		})
	}
}

// slowAccounts judge nobody before they are told to go on.
type slowAccounts struct {
	Accounts
	asked chan struct{}
	goOn  chan struct{}
}

func (a *slowAccounts) AuthenticateS3(ctx context.Context, token string) (accounts.Principal, error) {
	a.asked <- struct{}{}
	<-a.goOn
	return a.Accounts.AuthenticateS3(ctx, token)
}

// A request that is refused because the node serves MaxRequests others gets 503 with its request id. This can
// happen over HTTP/2.
func TestARequestTooManyHasAnID(t *testing.T) {
	w := newWorld(t)
	slow := &slowAccounts{w.users, make(chan struct{}), make(chan struct{})}
	w.options.Accounts = slow
	w.rebuild(t)
	var group sync.WaitGroup
	for range web.MaxRequests {
		r := w.request(t, call{method: "GET", path: "/"})
		group.Go(func() { w.answer(r) })
	}
	for range web.MaxRequests {
		<-slow.asked
	}
	rec := w.answer(w.request(t, call{method: "GET", path: "/"}))
	if id := rec.Header().Get("X-Amz-Request-Id"); rec.Code != 503 || id != "golden" || !strings.Contains(rec.Body.String(), "<RequestId>"+id+"</RequestId>") {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	close(slow.goOn)
	group.Wait()
}
