//go:build conformance

package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// uploaded is the answer to an upload.
type uploaded struct {
	Pins []struct{ ID, CID, Name, Status string }
	Size int
}

// upload sends a body to POST /pins/upload of the web API of a node.
func upload(t *testing.T, n *harness.Node, token, query, kind string, body io.Reader, want int) (out uploaded) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.ConsoleURL()+"/api/v1/pins/upload"+query, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != want {
		t.Fatalf("%s answers %d, %v and not %d: %s", n.Name, answer.StatusCode, err, want, text)
	}
	if want == http.StatusCreated {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return out
}

// filesForm is a form with files, as curl -F sends it.
func filesForm(t *testing.T, files [][2]string) (kind string, body io.Reader) {
	t.Helper()
	out := new(bytes.Buffer)
	form := multipart.NewWriter(out)
	for _, f := range files {
		part, err := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + f[0] + `"`}})
		if err == nil {
			_, err = io.WriteString(part, f[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	return form.FormDataContentType(), out
}

// TestUploadsArePinned promises that a user without access to the machine of a node uploads a file, a folder and a CAR with
// an API key, that each gets the CID that `holdfast add` gives it, is pinned and read on all nodes, and that what is bad
// or larger than the account may store pins nothing.
func TestUploadsArePinned(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, harness.Options{})
	first, second, third := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	key := first.UserKey("ada@example.org")
	pins := third.Pins(key.Token)

	text := strings.Repeat("a file of the user\n", 200_000)
	file := upload(t, second, key.Token, "?name=notes", "", strings.NewReader(text), http.StatusCreated)
	trip := map[string]string{"a.txt": "1", "day 1/b.txt": strings.Repeat("2", 3<<20), "day 1/noon/c.txt": "3", "z": ""}
	kind, body := filesForm(t, [][2]string{{"trip/a.txt", trip["a.txt"]}, {"trip/day 1/b.txt", trip["day 1/b.txt"]}, {"trip/day 1/noon/c.txt", trip["day 1/noon/c.txt"]}, {"trip/z", ""}})
	folder := upload(t, second, key.Token, "?hash=sha2-256&cid_version=0", kind, body, http.StatusCreated)
	if len(file.Pins) != 1 || len(folder.Pins) != 1 || file.Size != len(text) || file.Pins[0].Name != "notes" || folder.Pins[0].Name != "trip" {
		t.Fatalf("%+v and %+v", file, folder)
	}
	for _, u := range []uploaded{file, folder} {
		if _, err := harness.WaitPinned(t.Context(), pins, u.Pins[0].ID, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	dir := writeFiles(t, "trip", trip)
	added := strings.Fields(third.CLI("add", dir, "--hash", "sha2-256", "--cid-version", "0"))
	if got := added[len(added)-1]; got != folder.Pins[0].CID {
		t.Errorf("the upload has the CID %s, and holdfast add gives %s", folder.Pins[0].CID, got)
	}
	if got := third.Get(file.Pins[0].CID); string(got) != text {
		t.Errorf("%d bytes are read", len(got))
	}
	if got := first.CLI("get", folder.Pins[0].CID+"/day 1/noon/c.txt", "-o", "-"); got != "3" {
		t.Errorf("a file in the folder is %q", got)
	}

	car := filepath.Join(t.TempDir(), "trip.car")
	third.CLI("car", "export", folder.Pins[0].CID, "-o", car)
	data, err := os.ReadFile(car)
	if err != nil {
		t.Fatal(err)
	}
	other := first.UserKey("bob@example.org")
	of := upload(t, third, other.Token, "", "application/vnd.ipld.car", bytes.NewReader(data), http.StatusCreated)
	if len(of.Pins) != 1 || of.Pins[0].CID != folder.Pins[0].CID {
		t.Errorf("the CAR is pinned as %+v", of)
	}

	upload(t, third, other.Token, "", "application/vnd.ipld.car", bytes.NewReader(data[:len(data)-1]), http.StatusBadRequest)
	upload(t, third, "none", "", "", strings.NewReader("x"), http.StatusUnauthorized)
	kind, body = filesForm(t, [][2]string{{"../x", "1"}})
	upload(t, third, other.Token, "", kind, body, http.StatusBadRequest)
	first.CLI("user", "quota", "bob@example.org", "20MiB")
	upload(t, third, other.Token, "", "", bytes.NewReader(make([]byte, 21<<20)), http.StatusConflict)
	if list, err := third.Pins(other.Token).List(t.Context(), url.Values{"status": {"queued,pinning,pinned,failed"}}); err != nil || list.Count != 1 {
		t.Errorf("bob has %+v, %v", list, err)
	}
}
