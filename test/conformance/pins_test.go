//go:build conformance

package conformance

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multibase"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestPinningAPI promises the acceptance rows of the Pinning API on a cluster of three, with every read on another
// node than the write before it. The numbers in the names are rows.
func TestPinningAPI(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: someFetch})
	source := harness.StartBoxo(t)
	for name, test := range map[string]func(*testing.T, *harness.Cluster, *harness.Boxo){
		"create 3-16 21-23":   testCreate,
		"life 14-16 57 62-66": testLife,
		"list 19-20 31-47":    testList,
		"read 49-52":          testRead,
		"replace 53-57":       testReplace,
		"delete 59-61":        testDelete,
		"authorization 68-71": testAuthorization,
		"paging 41 46":        testPaging,
	} {
		t.Run(name, func(t *testing.T) { test(t, c.As(t), source.As(t)) })
	}
}

var (
	createdForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
	statuses    = []string{"queued", "pinning", "pinned", "failed"}
)

// checkStatus holds what is true of every pin status anywhere.
func checkStatus(t *testing.T, c *harness.Cluster, s harness.PinStatus) {
	t.Helper()
	if s.RequestID == "" || !slices.Contains(statuses, s.Status) || !createdForm.MatchString(s.Created) {
		t.Errorf("requestid %q, status %q, created %q", s.RequestID, s.Status, s.Created)
	}
	if n := len(s.Delegates); n < 1 || n > 20 {
		t.Errorf("%d delegates, want 1 to 20", n)
	}
	members := map[string]bool{}
	for _, n := range c.Live() {
		members[n.Status().Node.ID] = true
	}
	for _, d := range s.Delegates {
		a, err := multiaddr.NewMultiaddr(d)
		if err != nil {
			t.Errorf("delegate %q: %v", d, err)
			continue
		}
		if id, err := a.ValueForProtocol(multiaddr.P_P2P); err != nil || !members[id] {
			t.Errorf("delegate %q does not end in a member's /p2p/", d)
		}
	}
}

func base(t *testing.T, c cid.Cid, encoding multibase.Encoding) string {
	t.Helper()
	s, err := c.StringOfBase(encoding)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testCreate(t *testing.T, c *harness.Cluster, _ *harness.Boxo) {
	s := newService(t, c, "create@example.org")
	v1 := nowhere()
	thousand := map[string]string{}
	for i := range 1000 {
		thousand["k"+strconv.Itoa(i)] = "v"
	}
	origins := make([]string, 20)
	for i := range origins {
		origins[i] = fmt.Sprintf("/ip4/127.0.0.1/tcp/%d/p2p/12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9", i+1)
	}
	for name, pin := range map[string]harness.Pin{
		"3 a v1 CID in base32":        {CID: v1.String()},
		"3 a v1 CID in base58":        {CID: base(t, v1, multibase.Base58BTC)},
		"3 a v1 CID in upper case":    {CID: base(t, v1, multibase.Base32Upper)},
		"3 a v0 CID":                  {CID: cid.NewCidV0(nowhere().Hash()).String()},
		"4 a name of 255 characters":  {CID: v1.String(), Name: strings.Repeat("🏔", 255)},
		"4 a name with odd letters":   {CID: v1.String(), Name: "\"\\\u0000\u2028<b>&\t"},
		"5 twenty origins, all dead":  {CID: v1.String(), Origins: origins},
		"6 a thousand pairs of meta":  {CID: v1.String(), Meta: thousand},
		"6 meta with odd keys":        {CID: v1.String(), Meta: map[string]string{"": "empty", "ключ": "", "a.b\"": "\n"}},
		"23 the same CID once again":  {CID: v1.String()},
		"12 nothing but a CID":        {CID: nowhere().String()},
		"12 all that a pin may carry": {CID: nowhere().String(), Name: "n", Origins: origins[:1], Meta: map[string]string{"a": "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.as(t)
			st := s.post(pin)
			checkStatus(t, s.cluster, st)
			if st.Status != "queued" {
				t.Errorf("22: the 202 says %s", st.Status)
			}
			again := s.get(st.RequestID)
			for _, got := range []harness.PinStatus{st, again} {
				if got.Pin.CID != pin.CID || got.Pin.Name != pin.Name ||
					!slices.Equal(got.Pin.Origins, pin.Origins) || !maps.Equal(got.Pin.Meta, pin.Meta) {
					t.Errorf("echo %+v, want %+v", got.Pin, pin)
				}
			}
			if again.Created != st.Created || again.RequestID != st.RequestID {
				t.Errorf("read back as %s of %s, was %s of %s", again.RequestID, again.Created, st.RequestID, st.Created)
			}
		})
	}
	t.Run("7 12 unknown fields are ignored, absent ones not invented", func(t *testing.T) {
		s := s.as(t)
		r := s.raw(http.MethodPost, "/pins", `{"cid":"`+v1.String()+`","color":"red","status":"pinned"}`)
		if r.Status != http.StatusAccepted {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
		body := object(t, r.Body)
		if pin := object(t, body["pin"]); len(pin) != 1 {
			t.Errorf("the echo has %s", body["pin"])
		}
		if info, ok := body["info"]; ok && len(object(t, info)) == 0 {
			t.Error("14: an empty info is there")
		}
		if ct := r.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
			t.Errorf("2: Content-Type %q", ct)
		}
	})
	t.Run("9 11 23 ids differ and created rises strictly over all nodes", func(t *testing.T) {
		s := s.as(t)
		seen, last := map[string]bool{}, ""
		for range 50 {
			st := s.post(harness.Pin{CID: v1.String()})
			if seen[st.RequestID] || st.Created <= last {
				t.Fatalf("%s of %s after %s", st.RequestID, st.Created, last)
			}
			seen[st.RequestID], last = true, st.Created
		}
	})
	t.Run("30 the content type is JSON or absent", func(t *testing.T) {
		s := s.as(t)
		for ct, want := range map[string]int{
			"": 202, "application/json": 202, "application/json; charset=utf-8": 202, "Application/JSON": 202,
			"text/plain": 400, "application/x-www-form-urlencoded": 400, "/": 400,
		} {
			h := http.Header{"Content-Type": {ct}}
			if ct == "" {
				h["Content-Type"] = nil
			}
			r, err := s.next().Do(t.Context(), http.MethodPost, "/pins", h, []byte(`{"cid":"`+nowhere().String()+`"}`))
			if err != nil || r.Status != want || (want == 400 && r.Reason() != "BAD_REQUEST") {
				t.Errorf("%q: %d %s, want %d: %v", ct, r.Status, r.Body, want, err)
			}
		}
	})
}

func testLife(t *testing.T, c *harness.Cluster, source *harness.Boxo) {
	s := newService(t, c, "life@example.org")
	file := source.AddRandom(1, 3<<20)[0]
	pin := harness.Pin{CID: file.CID, Origins: source.Addrs}
	t.Run("14 16 64 content is fetched and measured", func(t *testing.T) {
		s := s.as(t)
		st := s.pinned(s.post(pin).RequestID)
		checkStatus(t, s.cluster, st)
		size, err := strconv.Atoi(st.Info["dag_size"])
		if err != nil || size < file.Size || size > file.Size+file.Size/50 {
			t.Errorf("dag_size %q of a file of %d bytes", st.Info["dag_size"], file.Size)
		}
		for _, n := range s.cluster.Nodes {
			if !file.Matches(n.Get(file.CID)) {
				t.Errorf("%s gives other bytes", n.Name)
			}
		}
	})
	t.Run("22 content that is here already starts as queued too", func(t *testing.T) {
		s := s.as(t)
		st := s.post(pin)
		if st.Status != "queued" {
			t.Errorf("the 202 says %s", st.Status)
		}
		s.pinned(st.RequestID)
	})
	t.Run("62 another account's delete leaves the content", func(t *testing.T) {
		s, other := s.as(t), newService(t, s.cluster, "life2@example.org")
		one := source.AddRandom(1, 300_000)[0]
		mine := s.post(harness.Pin{CID: one.CID, Origins: source.Addrs}).RequestID
		theirs := other.post(harness.Pin{CID: one.CID, Origins: source.Addrs}).RequestID
		s.pinned(mine)
		other.pinned(theirs)
		other.delete(theirs)
		if st := s.get(mine); st.Status != "pinned" {
			t.Errorf("my pin is %s", st.Status)
		}
		for _, n := range s.cluster.Nodes {
			if !one.Matches(n.Get(one.CID)) {
				t.Errorf("%s gives other bytes", n.Name)
			}
		}
	})
	t.Run("57 replacing a pin by the same CID keeps it held", func(t *testing.T) {
		s := s.as(t)
		one := harness.StartBoxo(t)
		f := one.AddRandom(1, 300_000)[0]
		old := s.pinned(s.post(harness.Pin{CID: f.CID, Origins: one.Addrs}).RequestID)
		one.Close() // nobody can fetch it again
		now := s.replace(old.RequestID, harness.Pin{CID: f.CID, Name: "renamed"})
		if now.RequestID == old.RequestID {
			t.Error("the id stayed")
		}
		s.pinned(now.RequestID)
	})
	t.Run("15 65 66 content that nobody has fails with a reason", func(t *testing.T) {
		s := s.as(t)
		id := s.post(harness.Pin{CID: nowhere().String()}).RequestID
		st, err := harness.WaitStatus(t.Context(), s.next(), id, "failed", pinnedWithin)
		if err != nil {
			t.Fatal(err)
		}
		if len(st.Info["status_details"]) < 10 {
			t.Errorf("status_details %q", st.Info["status_details"])
		}
	})
	for _, codec := range []string{"dag-cbor", "dag-json", "dag-pb"} {
		t.Run("1 a DAG of "+codec, func(t *testing.T) {
			s := s.as(t)
			dag := source.AddDAG(codec, 5, 3)
			s.pinned(s.post(harness.Pin{CID: dag.CID, Origins: source.Addrs}).RequestID)
		})
	}
}

func testRead(t *testing.T, c *harness.Cluster, _ *harness.Boxo) {
	s, other := newService(t, c, "read@example.org"), newService(t, c, "read2@example.org")
	gone := s.post(harness.Pin{CID: nowhere().String()}).RequestID
	s.delete(gone)
	theirs := other.post(harness.Pin{CID: nowhere().String()}).RequestID
	unknown := "0" + theirs[1:]
	if unknown == theirs {
		unknown = "1" + theirs[1:]
	}
	// Another account's pin must look in every respect like none at all.
	answer := func(id string, route string) string {
		method, rest, _ := strings.Cut(route, " ")
		r := s.raw(method, "/pins/"+id+rest, map[string]string{http.MethodPost: `{"cid":"` + nowhere().String() + `"}`}[method])
		for _, each := range []string{"Date", "X-Request-Id"} {
			r.Header.Del(each)
		}
		return fmt.Sprint(r.Status, " ", r.Reason(), " ", r.Header, " ", strings.ReplaceAll(string(r.Body), id, "ID"))
	}
	for _, method := range []string{http.MethodGet, http.MethodGet + " ?wait=20s", http.MethodHead, http.MethodPost, http.MethodDelete} {
		want := answer(unknown, method)
		if method == http.MethodHead && strings.HasPrefix(want, "404  ") {
			want = strings.Replace(want, "404  ", "404 NOT_FOUND ", 1) // no body to have a reason in
		}
		if !strings.HasPrefix(want, "404 NOT_FOUND ") {
			t.Errorf("50: %s of an unknown id: %s", method, want)
		}
		for what, id := range map[string]string{"51 a deleted": gone, "52 another account's": theirs} {
			got := answer(id, method)
			if method == http.MethodHead {
				got = strings.Replace(got, "404  ", "404 NOT_FOUND ", 1)
			}
			if got != want {
				t.Errorf("%s id by %s: %s, want %s", what, method, got, want)
			}
		}
	}
	if st := other.get(theirs); st.RequestID != theirs {
		t.Errorf("the owner reads %+v", st)
	}
	for _, id := range []string{"x", "%00", strings.Repeat("a", 300), "..%2f..", "%F0%9F%8F%94"} {
		if r := s.raw(http.MethodGet, "/pins/"+id, ""); r.Status != http.StatusNotFound || r.Reason() != "NOT_FOUND" {
			t.Errorf("50: id %q: %d %s", id, r.Status, r.Body)
		}
	}
}

func testReplace(t *testing.T, c *harness.Cluster, _ *harness.Boxo) {
	s := newService(t, c, "replace@example.org")
	t.Run("53 54 one new pin stands for the old one", func(t *testing.T) {
		s := s.as(t)
		old := s.post(harness.Pin{CID: nowhere().String(), Name: "old", Meta: map[string]string{"a": "1"}})
		want := harness.Pin{CID: nowhere().String(), Name: "new"}
		now := s.replace(old.RequestID, want)
		checkStatus(t, s.cluster, now)
		if now.Status != "queued" || now.RequestID == old.RequestID || now.Created <= old.Created {
			t.Errorf("%+v after %+v", now, old)
		}
		if now.Pin.CID != want.CID || now.Pin.Name != want.Name || now.Pin.Meta != nil {
			t.Errorf("the new pin is %+v: nothing of the old one may stay", now.Pin)
		}
		if r := s.raw(http.MethodGet, "/pins/"+old.RequestID, ""); r.Status != http.StatusNotFound {
			t.Errorf("the old pin answers %d", r.Status)
		}
		if got := s.get(now.RequestID); got.RequestID != now.RequestID {
			t.Errorf("%+v", got)
		}
	})
	t.Run("55 a bad replacement leaves the old pin", func(t *testing.T) {
		s := s.as(t)
		old := s.post(harness.Pin{CID: nowhere().String(), Name: "stays"})
		for _, body := range []string{"", "{", `{}`, `{"cid":""}`, `{"cid":"x"}`, `{"cid":"` + nowhere().String() + `","name":5}`} {
			r := s.raw(http.MethodPost, "/pins/"+old.RequestID, body)
			if r.Status != http.StatusBadRequest || r.Reason() != "BAD_REQUEST" {
				t.Errorf("%q: %d %s", body, r.Status, r.Body)
			}
		}
		if got := s.get(old.RequestID); got.Pin.Name != "stays" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("53 of many replacements of one pin at once one wins", func(t *testing.T) {
		s := s.as(t)
		old := s.post(harness.Pin{CID: nowhere().String()})
		before := s.list("status", harness.AllStatuses).Count
		const racers = 9
		results := make(chan error, racers)
		for range racers {
			client := s.next()
			go func() {
				_, err := client.Replace(t.Context(), old.RequestID, harness.Pin{CID: nowhere().String()})
				results <- err
			}()
		}
		won := 0
		for range racers {
			err := <-results
			var api *harness.APIError
			switch {
			case err == nil:
				won++
			case !errors.As(err, &api) || api.Status != http.StatusNotFound:
				t.Error(err)
			}
		}
		if after := s.list("status", harness.AllStatuses).Count; won != 1 || after != before {
			t.Errorf("%d won; %d pins, before %d", won, after, before)
		}
	})
	t.Run("58 a block that both pins need outlives the old one", func(t *testing.T) {
		s := s.as(t)
		data := make([]byte, 512<<10) // two blocks
		_, _ = rand.Read(data)        // never fails
		shelf := harness.StartBoxo(t)
		whole, half := shelf.AddBytes(data), shelf.AddBytes(data[:256<<10])
		old := s.pinned(s.post(harness.Pin{CID: whole.CID, Origins: shelf.Addrs}).RequestID)
		shelf.Close() // so the half can come from the old pin's blocks only
		s.pinned(s.replace(old.RequestID, harness.Pin{CID: half.CID}).RequestID)
		for _, n := range s.cluster.Nodes {
			if !half.Matches(n.Get(half.CID)) {
				t.Errorf("%s gives other bytes", n.Name)
			}
		}
	})
}

func testDelete(t *testing.T, c *harness.Cluster, _ *harness.Boxo) {
	s := newService(t, c, "delete@example.org")
	id := s.post(harness.Pin{CID: nowhere().String()}).RequestID
	r := s.raw(http.MethodDelete, "/pins/"+id, "")
	if r.Status != http.StatusAccepted || len(r.Body) != 0 || r.Header.Get("Content-Length") != "0" {
		t.Errorf("59: %d %q, Content-Length %q", r.Status, r.Body, r.Header.Get("Content-Length"))
	}
	for range c.Nodes {
		if r := s.raw(http.MethodDelete, "/pins/"+id, ""); r.Status != http.StatusNotFound || r.Reason() != "NOT_FOUND" {
			t.Errorf("61: %d %s", r.Status, r.Body)
		}
	}
	if got := s.list("status", harness.AllStatuses); got.Count != 0 {
		t.Errorf("the list still has %d", got.Count)
	}
}

func testAuthorization(t *testing.T, c *harness.Cluster, _ *harness.Boxo) {
	s := newService(t, c, "auth@example.org")
	key := c.Nodes[0].Key("auth@example.org", "--name", "second")
	short := c.Nodes[0].Key("auth@example.org", "--ttl", "1s")
	id := s.post(harness.Pin{CID: nowhere().String()}).RequestID
	dot := strings.LastIndexByte(s.token, '.')
	none := "eyJhbGciOiJub25lIn0" + s.token[strings.IndexByte(s.token, '.'):dot] + "."
	routes := [][2]string{{http.MethodGet, "/pins"}, {http.MethodPost, "/pins"}, {http.MethodGet, "/pins/" + id}, {http.MethodPost, "/pins/" + id}, {http.MethodDelete, "/pins/" + id}}
	for name, values := range map[string][]string{
		"69 no header":               nil,
		"69 an empty header":         {""},
		"68 no space":                {"Bearer" + s.token},
		"68 two spaces":              {"Bearer  " + s.token},
		"68 a tab":                   {"Bearer\t" + s.token},
		"68 lower case":              {"bearer " + s.token},
		"68 two headers":             {"Bearer " + s.token, "Bearer " + s.token},
		"70 another scheme":          {"Basic " + s.token},
		"70 only the token":          {s.token},
		"73 a changed signature":     {"Bearer " + s.token[:dot+1] + strings.Repeat("A", len(s.token)-dot-1)},
		"73 no signature":            {"Bearer " + s.token[:dot+1]},
		"73 algorithm none":          {"Bearer " + none},
		"73 a token of another kind": {"Bearer abc.def.ghi"},
	} {
		for _, route := range routes {
			h := http.Header{"Authorization": values}
			// 28: refused before the body is read, so a bad body does not show.
			r, err := s.next().Do(t.Context(), route[0], route[1]+"?token="+s.token, h, []byte("{"))
			if err != nil {
				t.Fatal(err)
			}
			if r.Status != http.StatusUnauthorized || r.Reason() != "UNAUTHORIZED" || !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s: %s %s: %d %s, WWW-Authenticate %q", name, route[0], route[1], r.Status, r.Body, r.Header.Get("WWW-Authenticate"))
			}
		}
	}
	t.Run("71 a revoked key is refused by every node at once", func(t *testing.T) {
		s := s.as(t)
		for _, n := range s.cluster.Nodes {
			if _, err := n.Pins(key.Token).Get(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		s.cluster.Nodes[1].CLI("key", "revoke", key.ID)
		for _, n := range s.cluster.Nodes {
			_, err := n.Pins(key.Token).Get(t.Context(), id)
			if api := (*harness.APIError)(nil); !errors.As(err, &api) || api.Status != http.StatusUnauthorized {
				t.Errorf("%s: %v", n.Name, err)
			}
		}
		if got := s.get(id); got.RequestID != id {
			t.Errorf("the other key reads %+v", got)
		}
	})
	t.Run("an expired key is refused", func(t *testing.T) {
		s := s.as(t)
		harness.Eventually(t, time.Minute, "the key expires", func() (bool, error) {
			client := s.next()
			client.Token = short.Token
			_, err := client.Get(t.Context(), id)
			api := (*harness.APIError)(nil)
			return errors.As(err, &api) && api.Status == http.StatusUnauthorized, err
		})
	})
	t.Run("75 a key that may only read writes nothing", func(t *testing.T) {
		s := s.as(t)
		reader := s.cluster.Nodes[2].Key("auth@example.org", "--scope", "storage:read")
		for _, route := range routes {
			client := s.next()
			client.Token = reader.Token
			r, err := client.Do(t.Context(), route[0], route[1], nil, []byte(`{"cid":"`+nowhere().String()+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			if route[0] == http.MethodGet {
				if r.Status != http.StatusOK {
					t.Errorf("%v: %d %s", route, r.Status, r.Body)
				}
			} else if r.Status != http.StatusForbidden || r.Reason() != "FORBIDDEN" {
				t.Errorf("%v: %d %s", route, r.Status, r.Body)
			}
		}
	})
	if n := s.list("status", harness.AllStatuses).Count; n != 1 {
		t.Errorf("%d pins after all that, want 1", n)
	}
}

// errorBody checks the nested error shape.
func errorBody(t *testing.T, r harness.Response, reason string) {
	t.Helper()
	var body struct {
		Error struct {
			Reason  string `json:"reason"`
			Details string `json:"details"`
		} `json:"error"`
	}
	d := json.NewDecoder(strings.NewReader(string(r.Body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil || body.Error.Reason != reason || body.Error.Details == "" {
		t.Errorf("93: %s, want the reason %s with details: %v", r.Body, reason, err)
	}
	if ct := r.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
		t.Errorf("2: Content-Type %q", ct)
	}
}
