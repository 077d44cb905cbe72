package s3

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// repeated stands for a text many times: {{x*1000}}.
var repeated = regexp.MustCompile(`\{\{(.+?)\*(\d+)\}\}`)

func (w *world) expand(text string) string {
	text = strings.NewReplacer("{alice}", w.alice.Token, "{bob}", w.bob.Token, "{reader}", w.reader.Token, "{writer}", w.writer.Token,
		"{revoked}", w.revoked.Token, "{id}", string(w.who.Account), "{marker}", string(w.marker), `\r`, "\r", `\n`, "\n", `\xff`, "\xff", `\x01`, "\x01").Replace(text)
	return repeated.ReplaceAllStringFunc(text, func(match string) string {
		parts := repeated.FindStringSubmatch(match)
		n, err := strconv.Atoi(parts[2])
		if err != nil {
			panic(err)
		}
		return strings.Repeat(parts[1], n)
	})
}

// everything returns all that the fake has.
func (f *fake) everything() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, a := range slices.Sorted(maps.Keys(f.buckets)) {
		for _, name := range slices.Sorted(maps.Keys(f.buckets[a])) {
			bucket := f.buckets[a][name]
			fmt.Fprintln(&b, a, name, bucket.Bucket, bucket.cors, bucket.tags, bucket.objects, bucket.old)
			for _, id := range slices.Sorted(maps.Keys(bucket.uploads)) {
				fmt.Fprintln(&b, *bucket.uploads[id])
			}
		}
	}
	return b.String()
}

// Each bad request of testdata/bad.tsv gets its status and code in a well-formed error and changes nothing.
func TestBadRequestsAreRefusedAndChangeNothing(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "bad.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.scene(t)
	w.versions(t)
	w.shown(t)
	before := w.fake.everything()
	n := 0
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		n++
		fields := append(strings.Split(line, "\t"), "", "")
		c := call{method: fields[2], path: w.expand(fields[3]), body: w.expand(fields[5])}
		if fields[4] != "" {
			c.header = strings.Split(w.expand(fields[4]), "|")
		}
		rec := w.do(t, c)
		name := fmt.Sprintf("line %d: %.200s", i+1, line)
		if got := fmt.Sprint(rec.Code); got != fields[0] || rec.Header().Get("X-Amz-Error-Code") != fields[1] {
			t.Errorf("%s\n%d %s %.300s", name, rec.Code, rec.Header().Get("X-Amz-Error-Code"), rec.Body)
		}
		checkErrorBody(t, name, c.method, rec)
		if after := w.fake.everything(); after != before {
			t.Fatalf("%s changed something:\n%s\n%s", name, before, after)
		}
	}
	if n < 300 {
		t.Errorf("%d bad requests", n)
	}
}

// checkErrorBody looks at what every error has to be.
func checkErrorBody(t *testing.T, name, method string, rec *httptest.ResponseRecorder) {
	t.Helper()
	if rec.Header().Get("X-Amz-Request-Id") == "" {
		t.Errorf("%s: no request id", name)
	}
	if method == "HEAD" {
		if rec.Body.Len() != 0 {
			t.Errorf("%s: a body: %s", name, rec.Body)
		}
		return
	}
	var e struct {
		XMLName                                        xml.Name `xml:"Error"`
		Code, Message, Resource, RequestId, BucketName string   //nolint:revive // as S3 has it
	}
	d := xml.NewDecoder(bytes.NewReader(rec.Body.Bytes()))
	if err := d.Decode(&e); err != nil {
		t.Errorf("%s: %v: %s", name, err, rec.Body)
		return
	}
	f := codes[Code(e.Code)]
	if e.Code != rec.Header().Get("X-Amz-Error-Code") || e.Message == "" || e.RequestId != rec.Header().Get("X-Amz-Request-Id") || f.bucket && e.BucketName == "" && !strings.HasPrefix(e.Resource, "//") {
		t.Errorf("%s: %s", name, rec.Body)
	}
	if got := rec.Header().Get("Content-Type"); got != "application/xml" {
		t.Errorf("%s: Content-Type %s", name, got)
	}
}
