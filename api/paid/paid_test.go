package paid

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/x402test"
)

// One 402 answer states the price in the form of both versions of x402, with each field that stock clients
// parse.
func TestOnePaymentRequiredServesBothVersions(t *testing.T) {
	g := newGateway(t, nil)
	r := g.do(http.MethodPut, "/photos/a%2Fb.txt", strings.Repeat("x", 1<<20), "X-Holdfast-TTL", "7200")
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %s", got)
	}
	one, two := g.required(1, r), g.required(2, r)
	url := g.url + "/photos/a%2Fb.txt"
	domain := map[string]string{"name": "USDC", "version": "2"}
	want := x402test.Requirement{
		Scheme: "exact", Network: "base-sepolia", MaxAmountRequired: "20000", Asset: terms().Asset, PayTo: terms().PayTo, Resource: url,
		Description: "store 1048576 bytes for 7200 seconds", MimeType: "application/json", MaxTimeoutSeconds: 302, Extra: domain,
	}
	if got, want := fmt.Sprintf("%+v", one.Accepts), fmt.Sprintf("%+v", []x402test.Requirement{want}); got != want || one.Error != "payment required" {
		t.Errorf("version 1: error %q, accepts\n%s, want\n%s", one.Error, got, want)
	}
	want = x402test.Requirement{
		Scheme: "exact", Network: "eip155:84532", Amount: "20000", Asset: terms().Asset, PayTo: terms().PayTo, MaxTimeoutSeconds: 302, Extra: domain,
	}
	if got, want := fmt.Sprintf("%+v", two.Accepts), fmt.Sprintf("%+v", []x402test.Requirement{want}); got != want {
		t.Errorf("version 2:\n%s, want\n%s", got, want)
	}
	if got, want := string(two.Resource), `{"url":"`+url+`","description":"store 1048576 bytes for 7200 seconds","mimeType":"application/json"}`; got != want {
		t.Errorf("resource %s, want %s", got, want)
	}
}

// A payment of either version stores an object with its payer as owner, and everybody reads it, whole, in a
// range and by ETag.
func TestAPaidObjectIsStoredAndRead(t *testing.T) {
	for version, header := range map[int]string{1: "X-PAYMENT-RESPONSE", 2: "PAYMENT-RESPONSE"} {
		g := newGateway(t, nil)
		r := g.paid(version, http.MethodPut, "/photos/a/b.txt", "hello world", "Content-Type", "text/plain")
		if r.StatusCode != http.StatusOK {
			t.Fatalf("version %d: %d %s", version, r.StatusCode, r.body)
		}
		network := map[int]string{1: "base-sepolia", 2: "eip155:84532"}[version]
		if got, err := x402test.ReadResult(r.Header.Get(header)); err != nil || got != (x402test.Result{Success: true, Transaction: "0xabc", Network: network, Payer: g.key.Address()}) {
			t.Errorf("version %d: result %+v, %v", version, got, err)
		}
		var o object
		if err := json.Unmarshal([]byte(r.body), &o); err != nil || o.Owner != g.key.Address() || o.Size != 11 || o.Transaction != "0xabc" || o.Amount != "1000" || o.CID != someCID || r.Header.Get("X-Holdfast-Cid") != someCID || o.Network != "base-sepolia" {
			t.Errorf("body %s, %v", r.body, err)
		}
		if g.fake.put.TTL != time.Hour || g.fake.put.Body.Size != 11 || g.fake.put.Amount.Int64() != 1000 || g.fake.put.Payment.X402Version != version {
			t.Errorf("the use case got %+v", g.fake.put)
		}
		got := g.do(http.MethodGet, "/photos/a/b.txt", "")
		if got.StatusCode != http.StatusOK || got.body != "hello world" || got.Header.Get("Content-Type") != "text/plain" ||
			got.Header.Get("X-Holdfast-Owner") != g.key.Address() || got.Header.Get("X-Holdfast-Until") != o.Until {
			t.Errorf("GET: %d %q %v", got.StatusCode, got.body, got.Header)
		}
		if head := g.do(http.MethodHead, "/photos/a/b.txt", ""); head.StatusCode != http.StatusOK || head.ContentLength != 11 || head.Header.Get("Etag") != o.ETag {
			t.Errorf("HEAD: %d, %d bytes, %v", head.StatusCode, head.ContentLength, head.Header)
		}
		if part := g.do(http.MethodGet, "/photos/a/b.txt", "", "Range", "bytes=6-"); part.StatusCode != http.StatusPartialContent || part.body != "world" {
			t.Errorf("range: %d %q", part.StatusCode, part.body)
		}
		if bad := g.do(http.MethodGet, "/photos/a/b.txt", "", "Range", "bytes=11-"); bad.StatusCode != http.StatusRequestedRangeNotSatisfiable || !strings.HasPrefix(bad.body, `{"error":"RANGE_NOT_SATISFIABLE"`) {
			t.Errorf("range outside: %d %q", bad.StatusCode, bad.body)
		}
		if same := g.do(http.MethodGet, "/photos/a/b.txt", "", "If-None-Match", o.ETag); same.StatusCode != http.StatusNotModified {
			t.Errorf("If-None-Match: %d", same.StatusCode)
		}
	}
}

// A payment whose amount, time or recipient is wrong gets 402 with its reason, and one that pays more or lasts
// longer is accepted. Each case changes one field.
func TestPaymentsAreCheckedBeforeTheFacilitator(t *testing.T) {
	g := newGateway(t, nil)
	now := time.Now().Unix()
	at := func(seconds int64) string { return strconv.FormatInt(now+seconds, 10) }
	for _, version := range []int{1, 2} {
		for name, tc := range map[string]struct {
			change func(*x402test.Authorization)
			want   string // "": accepted
		}{
			"right":               {nil, ""},
			"more than the price": {func(a *x402test.Authorization) { a.Value = "1001" }, ""},
			"clock ahead":         {func(a *x402test.Authorization) { a.ValidAfter = at(5) }, ""},
			"short":               {func(a *x402test.Authorization) { a.Value = "999" }, reasonValue},
			"later":               {func(a *x402test.Authorization) { a.ValidAfter = at(600) }, reasonAfter},
			"expired":             {func(a *x402test.Authorization) { a.ValidBefore = at(-1) }, reasonBefore},
			"recipient":           {func(a *x402test.Authorization) { a.To = g.key.Address() }, reasonRecipient},
			"for ever":            {func(a *x402test.Authorization) { a.ValidBefore = strings.Repeat("9", 30) }, ""},
		} {
			need := g.required(version, g.do(http.MethodPut, "/photos/a", "x"))
			header, value := g.sign(need, tc.change)
			r := g.do(http.MethodPut, "/photos/a", "x", header, value)
			if tc.want == "" {
				if r.StatusCode != http.StatusOK {
					t.Errorf("version %d, %s: %d %s", version, name, r.StatusCode, r.body)
				}
				continue
			}
			if got := g.required(1, r); got.Error != tc.want || len(got.Accepts) != 1 {
				t.Errorf("version %d, %s: %s, want %s", version, name, r.body, tc.want)
			}
			if got := g.required(2, r); got.Error != tc.want {
				t.Errorf("version %d, %s: header %+v, want %s", version, name, got, tc.want)
			}
		}
	}
}

// A payment of a wrong form, version, network or scheme gets 402 with its reason and does not reach the use
// case. Each is sent in the header of either version.
func TestMalformedPaymentsAreInvalid(t *testing.T) {
	g := newGateway(t, nil)
	right := map[int]map[string]any{}
	for version, header := range map[int]string{1: "X-PAYMENT", 2: "PAYMENT-SIGNATURE"} {
		need := g.required(version, g.do(http.MethodPut, "/photos/a", "x"))
		_, value := g.sign(need, nil)
		text, _ := base64.StdEncoding.DecodeString(value)
		var p map[string]any
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatal(err)
		}
		right[version] = p
		for name, tc := range map[string]struct{ value, want string }{
			"empty":         {"", reasonPayload},
			"no base64":     {"{}", reasonPayload},
			"no JSON":       {base64.StdEncoding.EncodeToString([]byte("x")), reasonPayload},
			"array":         {base64.StdEncoding.EncodeToString([]byte("[]")), reasonPayload},
			"empty object":  {base64.StdEncoding.EncodeToString([]byte("{}")), reasonPayload},
			"two objects":   {base64.StdEncoding.EncodeToString(append(text, text...)), reasonPayload},
			"large":         {base64.StdEncoding.EncodeToString([]byte(`{"x":"` + strings.Repeat("x", 13<<10) + `"}`)), reasonPayload},
			"no payload":    {changed(t, text, "payload", nil), reasonPayload},
			"version":       {changed(t, text, "x402Version", 3), reasonVersion},
			"signature":     {changed(t, text, "payload.signature", "0x12"), reasonPayload},
			"from":          {changed(t, text, "payload.authorization.from", "0x12"), reasonPayload},
			"nonce":         {changed(t, text, "payload.authorization.nonce", "0x12"), reasonPayload},
			"value":         {changed(t, text, "payload.authorization.value", "-1"), reasonPayload},
			"value as hex":  {changed(t, text, "payload.authorization.value", "0x3e8"), reasonPayload},
			"value 2^256":   {changed(t, text, "payload.authorization.value", new(big.Int).Lsh(big.NewInt(1), 256).String()), reasonPayload},
			"value as JSON": {changed(t, text, "payload.authorization.value", 1000), reasonPayload},
			"no times":      {changed(t, text, "payload.authorization.validBefore", nil), reasonPayload},
		} {
			r := g.do(http.MethodPut, "/photos/a", "x", header, tc.value)
			if got := g.required(1, r).Error; got != tc.want {
				t.Errorf("version %d, %s: %q, want %q", version, name, got, tc.want)
			}
		}
	}
	for name, tc := range map[string]struct {
		header, path string
		value        any
		version      int
		want         string
	}{
		"scheme":        {"X-PAYMENT", "scheme", "upto", 1, reasonScheme},
		"network":       {"X-PAYMENT", "network", "base", 1, reasonNetwork},
		"CAIP-2 in 1":   {"X-PAYMENT", "network", "eip155:84532", 1, reasonNetwork},
		"scheme in 2":   {"PAYMENT-SIGNATURE", "accepted.scheme", "upto", 2, reasonScheme},
		"network in 2":  {"PAYMENT-SIGNATURE", "accepted.network", "eip155:1", 2, reasonNetwork},
		"name in 2":     {"PAYMENT-SIGNATURE", "accepted.network", "base-sepolia", 2, reasonNetwork},
		"asset":         {"PAYMENT-SIGNATURE", "accepted.asset", "0x1", 2, reasonTerms},
		"payTo":         {"PAYMENT-SIGNATURE", "accepted.payTo", "0x1", 2, reasonTerms},
		"no accepted":   {"PAYMENT-SIGNATURE", "accepted", nil, 2, reasonPayload},
		"wrong header":  {"PAYMENT-SIGNATURE", "x402Version", 1, 2, reasonVersion},
		"wrong header2": {"X-PAYMENT", "x402Version", 2, 1, reasonVersion},
	} {
		text, err := json.Marshal(right[tc.version])
		if err != nil {
			t.Fatal(err)
		}
		r := g.do(http.MethodPut, "/photos/a", "x", tc.header, changed(t, text, tc.path, tc.value))
		if got := g.required(1, r).Error; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if len(g.fake.used) != 0 {
		t.Errorf("%d payments reached the use case", len(g.fake.used))
	}
}

// changed returns a payment in base64 with one member replaced, or without it for nil.
func changed(t *testing.T, text []byte, path string, value any) string {
	t.Helper()
	var p map[string]any
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	at := p
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		at = at[name].(map[string]any)
	}
	if last := names[len(names)-1]; value == nil {
		delete(at, last)
	} else {
		at[last] = value
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(text)
}

// Each error of the use case has its status and a flat JSON body without internal detail, and only 503 has
// Retry-After.
func TestErrorsOfTheUseCase(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
		code   string
	}{
		{&payments.Rejected{Reason: "insufficient_funds"}, 402, "insufficient_funds"},
		{fmt.Errorf("put: %w", payments.ErrPaymentUsed), 402, "nonce_already_used"},
		{payments.ErrNotOwner, 403, "FORBIDDEN"},
		{payments.ErrBusy, 409, "CONFLICT"},
		{payments.ErrLength, 400, "INCOMPLETE_BODY"},
		{payments.ErrFacilitator, 503, "SERVICE_UNAVAILABLE"},
		{state.ErrUnavailable, 503, "SERVICE_UNAVAILABLE"},
		{state.Errorf(state.CodeNoSpace, "full"), 507, "INSUFFICIENT_STORAGE"},
		{&payments.EndedError{Until: time.Unix(1_700_000_000, 0)}, 410, "GONE"},
		{errors.New("secret detail"), 500, "INTERNAL_SERVER_ERROR"},
	} {
		g := newGateway(t, nil)
		g.fake.fails = tc.err
		r := g.paid(1, http.MethodPut, "/photos/a", "x")
		var body map[string]any
		if err := json.Unmarshal([]byte(r.body), &body); err != nil || r.StatusCode != tc.status || body["error"] != tc.code || strings.Contains(r.body, "secret") {
			t.Errorf("%v: %d %s", tc.err, r.StatusCode, r.body)
		}
		if after := r.Header.Get("Retry-After"); (after != "") != (tc.status == 503) {
			t.Errorf("%v: Retry-After %q", tc.err, after)
		}
	}
	g := newGateway(t, nil)
	g.fake.fails = &payments.RefundError{Payment: state.Payment{State: state.PaymentRefundable, Transaction: "0x1"}, Err: &payments.Rejected{Reason: "invalid_transaction_state"}}
	if r := g.paid(2, http.MethodPut, "/photos/a", "x"); r.StatusCode == http.StatusPaymentRequired {
		t.Errorf("a payment that may have been settled is answered as a rejected one: %s", r.body)
	}
	g.fake.fails = &payments.RefundError{Payment: state.Payment{State: state.PaymentRefundable, Transaction: "0x1"}, Err: payments.ErrFacilitator}
	if r := g.paid(2, http.MethodPut, "/photos/a", "x"); r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(r.body, `"payment":"`+state.PaymentRefundable.String()+`","transaction":"0x1"`) {
		t.Errorf("a refundable payment is not told: %s", r.body)
	}
}

// A payment that has bought one object is refused for another with nonce_already_used.
func TestAReplayedPaymentIsRefused(t *testing.T) {
	g := newGateway(t, nil)
	header, value := g.sign(g.required(1, g.do(http.MethodPut, "/photos/a", "x")), nil)
	if r := g.do(http.MethodPut, "/photos/a", "x", header, value); r.StatusCode != http.StatusOK {
		t.Fatal(r.body)
	}
	if r := g.do(http.MethodPut, "/photos/b", "x", header, value); g.required(1, r).Error != "nonce_already_used" {
		t.Error(r.body)
	}
}

// A time to live is a number of whole seconds within the bounds, in either header, and another value is 400.
func TestTimesToLive(t *testing.T) {
	tm := terms()
	for _, tc := range []struct {
		ttl, alias string
		want       time.Duration // 0: an error
	}{
		{"", "", time.Hour},
		{"60", "", time.Minute},
		{"", "2592000", 30 * 24 * time.Hour},
		{"61", "61", 61 * time.Second},
		{"61", "62", 0},
		{"59", "", 0},
		{"", "2592001", 0},
		{"1e3", "", 0},
		{"-60", "", 0},
		{"60.5", "", 0},
		{"1h", "", 0},
		{"99999999999999999999", "", 0},
	} {
		h := http.Header{}
		if tc.ttl != "" {
			h.Set("X-Holdfast-TTL", tc.ttl)
		}
		if tc.alias != "" {
			h.Set("X-TTL-Seconds", tc.alias)
		}
		if got, err := tm.ttlOf(h); got != tc.want || (err == nil) != (tc.want > 0) {
			t.Errorf("%q, %q: %v, %v", tc.ttl, tc.alias, got, err)
		}
	}
	g := newGateway(t, nil)
	if r := g.do(http.MethodPut, "/photos/a", "x", "X-TTL-Seconds", "soon"); r.StatusCode != http.StatusBadRequest || !strings.HasPrefix(r.body, `{"error":"INVALID_TTL"`) {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

// A body without a length gets 411, and one that is too large gets 413.
func TestABodyWithoutALengthOrTooLargeIsRefused(t *testing.T) {
	g := newGateway(t, nil)
	if r := g.do(http.MethodPut, "/photos/a", strings.Repeat("x", 8<<20+1)); r.StatusCode != http.StatusRequestEntityTooLarge || !strings.HasPrefix(r.body, `{"error":"PAYLOAD_TOO_LARGE"`) {
		t.Errorf("too large: %d %s", r.StatusCode, r.body)
	}
	for name, head := range map[string]string{"chunked": "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "nothing": "\r\n"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Write([]byte("PUT /photos/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head)); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 16)
		if n, err := conn.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 411") {
			t.Errorf("%s: %q %v", name, answer[:n], err)
		}
	}
}

// Only the payer of an object can pay for its deletion, and a path without an object is 404 without a price.
func TestOnlyTheOwnerDeletes(t *testing.T) {
	g := newGateway(t, nil)
	if r := g.do(http.MethodDelete, "/photos/a", ""); r.StatusCode != http.StatusNotFound {
		t.Errorf("nobody has to pay for the deletion of nothing: %d %s", r.StatusCode, r.body)
	}
	if r := g.paid(1, http.MethodPut, "/photos/a", "x"); r.StatusCode != http.StatusOK {
		t.Fatal(r.body)
	}
	owner := g.key
	g.key = x402test.NewKey()
	if r := g.paid(1, http.MethodDelete, "/photos/a", ""); r.StatusCode != http.StatusForbidden {
		t.Errorf("another payer: %d %s", r.StatusCode, r.body)
	}
	g.key = owner
	if r := g.paid(2, http.MethodDelete, "/photos/a", ""); r.StatusCode != http.StatusNoContent || r.Header.Get("PAYMENT-RESPONSE") == "" {
		t.Errorf("the owner: %d %s", r.StatusCode, r.body)
	}
	if r := g.do(http.MethodGet, "/photos/a", ""); r.StatusCode != http.StatusNotFound || !strings.HasPrefix(r.body, `{"error":"NOT_FOUND"`) {
		t.Errorf("after the deletion: %d %s", r.StatusCode, r.body)
	}
}

// A paid object whose time is over is answered with 410 and the time of its end.
func TestAnEndedObjectIsGone(t *testing.T) {
	g := newGateway(t, nil)
	if r := g.paid(1, http.MethodPut, "/photos/a", "x"); r.StatusCode != http.StatusOK {
		t.Fatal(r.body)
	}
	g.fake.objects["photos/a"].Owner = payments.Owner{Until: time.Unix(1_700_000_000, 0), Ended: true}
	if r := g.do(http.MethodGet, "/photos/a", ""); r.StatusCode != http.StatusGone || !strings.Contains(r.body, `"until":"2023-11-14T22:13:20Z"`) {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

// A payment creates a pin that everybody can read, its price follows the bytes that are allowed, and a bad
// request is refused before a price is stated.
func TestPinsArePaidFor(t *testing.T) {
	const cid = someCID
	g := newGateway(t, nil)
	for _, body := range []string{"", "{}", `{"cid":"x"}`, `{"cid":"` + cid + `","origins":["x"]}`, `{"cid":"` + cid + `","name":1}`} {
		if r := g.do(http.MethodPost, "/pins", body); r.StatusCode != http.StatusBadRequest || !strings.HasPrefix(r.body, `{"error":"BAD_REQUEST"`) {
			t.Errorf("%s: %d %s", body, r.StatusCode, r.body)
		}
	}
	body := `{"cid":"` + cid + `","name":"a"}`
	if got := g.required(1, g.do(http.MethodPost, "/pins", body, "X-Holdfast-Max-Bytes", "4194304")).Accepts[0].MaxAmountRequired; got != "40000" {
		t.Errorf("4 MiB for 1 h cost %s", got)
	}
	if r := g.do(http.MethodPost, "/pins", body, "X-Holdfast-Max-Bytes", "8388609"); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %d %s", r.StatusCode, r.body)
	}
	r := g.paid(1, http.MethodPost, "/pins", body)
	if r.StatusCode != http.StatusAccepted || !strings.Contains(r.body, `"requestid":"pin-1","status":"queued"`) || r.Header.Get("X-PAYMENT-RESPONSE") == "" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := g.do(http.MethodGet, "/pins/pin-1", ""); r.StatusCode != http.StatusOK || !strings.Contains(r.body, cid) {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := g.do(http.MethodGet, "/pins/other", ""); r.StatusCode != http.StatusNotFound || !strings.HasPrefix(r.body, `{"error":"NOT_FOUND"`) {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

// Health is answered 200 "degraded" without the facilitator, whom three requests ask once, and pricing has the
// price of the bytes and seconds asked for.
func TestHealthAndPricing(t *testing.T) {
	g := newGateway(t, nil)
	g.fake.supported = payments.ErrFacilitator
	for range 3 {
		if r := g.do(http.MethodGet, "/health", ""); r.StatusCode != http.StatusOK || r.body != `{"status":"degraded","facilitator":"unavailable","network":"base-sepolia"}` {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	}
	if g.fake.asked != 1 {
		t.Errorf("the facilitator was asked %d times", g.fake.asked)
	}
	r := g.do(http.MethodGet, "/health/pricing?bytes=1048577&ttl=3600", "")
	var got prices
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || got.PriceMiBHour != "10000" || got.Minimum != "1000" || got.PayTo != terms().PayTo || got.Quote == nil || got.Quote.Amount != "10001" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := g.do(http.MethodGet, "/health/pricing?ttl=x", ""); r.StatusCode != http.StatusBadRequest {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

// A path that names no object is refused with 400 or 404, and a method that an object does not have with 405.
func TestBadPathsAreRefused(t *testing.T) {
	g := newGateway(t, nil)
	for path, status := range map[string]int{
		"/": 404, "/photos": 404, "/photos/": 404, "/Photos/a": 400, "/pins/a/b": 400, "/health/a": 400, "/ab/a": 400,
		"/photos/" + strings.Repeat("x", state.MaxKeyBytes-6): 400, "/photos/%ff": 400, "/photos/a%00": 400,
	} {
		if r := g.do(http.MethodPut, path, "x"); r.StatusCode != status || !strings.HasPrefix(r.body, `{"error":"`) {
			t.Errorf("%.20s: %d %s", path, r.StatusCode, r.body)
		}
	}
	if r := g.do(http.MethodPost, "/photos/a", "x"); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d %s", r.StatusCode, r.body)
	}
}

// An address that exceeds its rate gets 429 with the seconds to wait, in header and body.
func TestAFloodIsSlowedDown(t *testing.T) {
	now := time.Now() // the rate has no room again, however long a request takes
	g := newGateway(t, func(o *Options) {
		o.Limits = web.NewLimits(web.Rate{}, web.Rate{PerSecond: 1, Burst: 1}, nil, func() time.Time { return now })
	})
	g.do(http.MethodGet, "/health", "")
	if r := g.do(http.MethodGet, "/health", ""); r.StatusCode != http.StatusTooManyRequests || r.body != `{"error":"RATE_LIMITED","retry_after":60}` || r.Header.Get("Retry-After") != "60" {
		t.Errorf("%d %s %s", r.StatusCode, r.body, r.Header.Get("Retry-After"))
	}
}

// A page of any origin may send the headers of a payment and read those of its answer.
func TestBrowsersSeeThePayment(t *testing.T) {
	g := newGateway(t, nil)
	r := g.do(http.MethodOptions, "/photos/a", "", "Origin", "https://app.example.org", "Access-Control-Request-Method", "PUT",
		"Access-Control-Request-Headers", "x-payment,access-control-expose-headers")
	allowed := strings.ToLower(r.Header.Get("Access-Control-Allow-Headers"))
	if r.StatusCode != http.StatusNoContent || r.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(allowed, "x-payment") ||
		!strings.Contains(allowed, "payment-signature") || !strings.Contains(allowed, "access-control-expose-headers") || !strings.Contains(r.Header.Get("Access-Control-Allow-Methods"), "PUT") {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	r = g.do(http.MethodPut, "/photos/a", "x", "Origin", "https://app.example.org")
	if exposed := r.Header.Get("Access-Control-Expose-Headers"); !strings.Contains(exposed, "PAYMENT-REQUIRED") || !strings.Contains(exposed, "X-PAYMENT-RESPONSE") {
		t.Errorf("exposed %s", exposed)
	}
}

// A price is the exact product of bytes, seconds, rate and copies, rounded up and at least the minimum. The test
// compares with rational numbers, at the edges of every factor.
func TestPricesAreRoundedUpExactly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	sizes := []int64{-1, 0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5 << 30, 48 << 40, math.MaxInt64}
	times := []time.Duration{0, 1, time.Second, time.Minute, time.Hour, 30 * 24 * time.Hour, math.MaxInt64}
	rates := []int64{0, 1, 10_000, 1_000_000_000_000}
	for range 200 {
		sizes, times = append(sizes, random.Int64N(48<<40)), append(times, time.Duration(random.Int64N(30*24*3600))*time.Second)
	}
	for i, size := range sizes {
		for j, ttl := range times {
			if i > 8 && j > 6 && i != j {
				continue
			}
			for _, rate := range rates {
				for _, copies := range []int{0, 1, 3} {
					tm := Terms{PriceMiBHour: rate, Minimum: 1000, PerCopy: copies > 0}
					exact := new(big.Rat).SetInt64(max(size, 0))
					seconds := (int64(ttl) + int64(time.Second) - 1) / int64(time.Second)
					if ttl == math.MaxInt64 {
						seconds = math.MaxInt64/int64(time.Second) + 1
					}
					for _, factor := range []int64{seconds, rate, int64(max(copies, 1))} {
						exact.Mul(exact, new(big.Rat).SetInt64(factor))
					}
					exact.Quo(exact, new(big.Rat).SetInt64(3600<<20))
					want := new(big.Int).Quo(exact.Num(), exact.Denom())
					if !exact.IsInt() {
						want.Add(want, big.NewInt(1))
					}
					if want.Cmp(big.NewInt(1000)) < 0 {
						want.SetInt64(1000)
					}
					if got := tm.Price(size, ttl, copies); got.Cmp(want) != 0 {
						t.Fatalf("%d bytes for %v at %d, %d copies: %s, want %s", size, ttl, rate, copies, got, want)
					}
				}
			}
		}
	}
}

// FuzzPayments reads headers of any content: the parser returns a payment or a reason, never both.
func FuzzPayments(f *testing.F) {
	f.Add("eyJ4NDAyVmVyc2lvbiI6MX0=", false)
	f.Add("e30=", true)
	tm := terms()
	f.Fuzz(func(t *testing.T, value string, second bool) {
		h := http.Header{}
		if second {
			h.Set(headerV2, value)
		} else {
			h.Set(headerV1, value)
		}
		o := &offer{amount: big.NewInt(1000), seconds: 300}
		p, reason := tm.paymentOf(h, o, time.Unix(1_700_000_000, 0))
		if (p == nil) != (reason != "") {
			t.Errorf("payment %v with the reason %q", p, reason)
		}
		if p != nil && (p.Value.Cmp(o.amount) < 0 || p.PayTo != strings.ToLower(tm.PayTo)) {
			t.Errorf("accepted %+v", p)
		}
	})
}
