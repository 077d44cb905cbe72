package webapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// upload sends a body with an Idempotency-Key.
func (w *world) upload(query, kind, body, key string) *http.Request {
	r := client{world: w, handler: w.handler, bearer: w.key.Token}.request("POST", "/pins/upload"+query, body)
	r.Header.Set("Content-Type", kind)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}

// A repeated upload gets the pin of the first as long as that exists, and then another. Its Idempotency-Key counts for
// one root: other content makes another pin, and another name of the same content is refused. Without a key each upload
// makes a pin.
func TestARepeatedUploadMakesNoSecondPin(t *testing.T) {
	w := newWorld(t)
	alice := client{world: w, handler: w.handler, bearer: w.key.Token}
	send := func(query, body, key string) string {
		t.Helper()
		var done uploadBody
		w.into(alice.send(w.upload(query, "", body, key)), http.StatusCreated, &done)
		return string(done.Pins[0].ID)
	}
	first := send("", "hello", "k1")
	if again := send("", "hello", "k1"); again != first {
		t.Errorf("the repeated upload made the pin %s, and the first %s", again, first)
	}
	others := map[string]string{"other content": send("", "world", "k1"), "another key": send("", "hello", "k2"), "no key": send("", "hello", "")}
	for name, id := range others {
		if id == first {
			t.Errorf("%s: the pin of the first upload", name)
		}
	}
	w.into(alice.send(w.upload("?name=x", "", "hello", "k1")), http.StatusUnprocessableEntity, nil) // another name
	w.into(alice.send(w.upload("", "", "hello", "a b")), http.StatusBadRequest, nil)                // a bad key
	w.into(alice.do("DELETE", "/pins/"+first, ""), http.StatusNoContent, nil)
	second := send("", "hello", "k1")
	if second == first {
		t.Error("the repeated upload got a pin that was deleted")
	}
	if again := send("", "hello", "k1"); again != second {
		t.Errorf("the upload that was repeated twice made the pin %s, and the second %s", again, second)
	}
	for deleted := second; ; deleted = send("", "hello", "k1") { // a bounded number of times
		w.into(alice.do("DELETE", "/pins/"+deleted, ""), http.StatusNoContent, nil)
		if answer := alice.send(w.upload("", "", "hello", "k1")); answer.Code == http.StatusUnprocessableEntity {
			break
		}
	}
}

// The tar stream of a folder is pinned as a folder, and its entries are in the answer if the request asks for them. To
// ask for them with another body, or in another word, is an error.
func TestATarStreamIsAFolder(t *testing.T) {
	w := newWorld(t)
	alice := client{world: w, handler: w.handler, bearer: w.key.Token}
	for query, entries := range map[string]int{"": 0, "?entries=true": 1} {
		var done uploadBody
		w.into(alice.send(w.upload(query, web.TarType, "a stream", "")), http.StatusCreated, &done)
		if len(done.Entries) != entries || len(done.Pins) != 1 || done.Pins[0].Name != "" {
			t.Errorf("%q: %+v", query, done)
		}
	}
	w.into(alice.send(w.upload("?entries=true", "", "x", "")), http.StatusBadRequest, nil)         // a file
	w.into(alice.send(w.upload("?entries=yes", web.TarType, "x", "")), http.StatusBadRequest, nil) // another word
	if answer := alice.send(w.upload("", web.TarType, strings.Repeat("x", 1<<20), "")); answer.Code != http.StatusCreated {
		t.Errorf("a large stream: %d", answer.Code)
	}
}
