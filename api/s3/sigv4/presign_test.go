package sigv4

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A presigned URL is verified for its object until it ends, and for no other object.
func TestALinkIsVerified(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := at
	v := New(func(context.Context, string) (string, error) { return "secret", nil }, "us-east-1", func() time.Time { return now })
	verify := func(url string) error {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RequestURI = strings.TrimPrefix(url, "http://s3.test:9000")
		_, err = v.Verify(t.Context(), r)
		return err
	}
	for _, key := range []string{"cat.jpg", "a//b", "../x", "<script>", "%2F", `"`, "😀 ü+&?#", strings.Repeat("k", 1024)} {
		for _, version := range []string{"", "v 1"} {
			now = at
			url := Link{
				Scheme: "http", Host: "s3.test:9000", Path: "/photos/" + key, Version: version, Region: "us-east-1",
				AccessKey: "AK", Secret: "secret", At: at, Expires: time.Hour,
			}.URL()
			if err := verify(url); err != nil {
				t.Errorf("%q: %s: %v", key, url, err)
			}
			if err := verify(strings.Replace(url, "/photos/", "/photo/", 1)); err == nil {
				t.Errorf("%q: the link opens another object", key)
			}
			if now = at.Add(time.Hour + time.Second); verify(url) == nil {
				t.Errorf("%q: the link does not end", key)
			}
		}
	}
}
