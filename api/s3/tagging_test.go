package s3

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const oneTag = "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>"

// A change of tags answers with the id of the version that it changed, whether the request names it or not.
func TestWhoTagsIsToldWhichVersion(t *testing.T) {
	w := newWorld(t)
	versions := func(to string) {
		w.must(t, 200, call{method: "PUT", path: "/photos?versioning", body: versioningOf(to)})
	}
	put := func() string {
		return w.must(t, 200, call{method: "PUT", path: "/photos/k", body: "x"}).Header().Get("X-Amz-Version-Id")
	}
	tagged := func(query, want string) {
		t.Helper()
		for _, c := range []call{{method: "PUT", body: oneTag}, {method: "DELETE"}} {
			c.path = "/photos/k?tagging" + query
			status := map[string]int{"PUT": 200, "DELETE": 204}[c.method]
			if got := w.must(t, status, c).Header().Get("X-Amz-Version-Id"); got != want {
				t.Errorf("%s %s: %q, want %q", c.method, c.path, got, want)
			}
		}
	}
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	first := put()
	tagged("", "") // as Amazon S3 has it where there are no versions
	tagged("&versionId="+first, first)
	versions(versioningEnabled)
	tagged("", "null")
	second := put()
	tagged("", second)
	tagged("&versionId=null", "null")
	third := put()
	tagged("&versionId="+second, second)
	tagged("", third)
	versions(versioningSuspended)
	tagged("", third)
	put()
	tagged("", "null")
	w.must(t, 204, call{method: "DELETE", path: "/photos/k"})
	rec := w.must(t, 404, call{method: "PUT", path: "/photos/k?tagging", body: oneTag})
	if rec.Header().Get("X-Amz-Delete-Marker") != "true" {
		t.Errorf("of a deleted object: %v", rec.Header())
	}
}

// interrupted is a fake in which something happens after an object was looked at.
type interrupted struct {
	*fake
	by func()
}

func (f *interrupted) Object(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID) (state.Object, error) {
	o, err := f.fake.Object(ctx, a, bucket, key, id)
	if by := f.by; by != nil {
		f.by = nil
		by()
	}
	return o, err
}

// Tags are set on the version that was current when the request came, or 409 if it is gone meanwhile.
func TestTagsAreOfTheVersionThatWasCurrent(t *testing.T) {
	w := newWorld(t)
	objects := &interrupted{fake: w.fake}
	w.options.Objects = objects
	w.rebuild(t)
	w.must(t, 200, call{method: "PUT", path: "/photos"})
	w.must(t, 200, call{method: "PUT", path: "/photos?versioning", body: versioningOf(versioningEnabled)})
	w.put(t, "/photos/k", "one")
	one := w.must(t, 200, call{method: "HEAD", path: "/photos/k"}).Header().Get("X-Amz-Version-Id")
	objects.by = func() { w.put(t, "/photos/k", "two") }
	rec := w.must(t, 200, call{method: "PUT", path: "/photos/k?tagging", body: oneTag})
	if got := rec.Header().Get("X-Amz-Version-Id"); got != one {
		t.Errorf("tagged %s, want %s", got, one)
	}
	for id, want := range map[string]string{"?versionId=" + one: "1", "": ""} {
		if got := w.must(t, 200, call{method: "HEAD", path: "/photos/k" + id}).Header().Get("X-Amz-Tagging-Count"); got != want {
			t.Errorf("%q has %q tags", id, got)
		}
	}
	two := w.must(t, 200, call{method: "HEAD", path: "/photos/k"}).Header().Get("X-Amz-Version-Id")
	objects.by = func() { w.must(t, 204, call{method: "DELETE", path: "/photos/k?versionId=" + two}) }
	rec = w.must(t, 409, call{method: "PUT", path: "/photos/k?tagging", body: oneTag})
	if !strings.Contains(rec.Body.String(), "<Code>OperationAborted</Code>") || rec.Header().Get("X-Amz-Version-Id") != "" {
		t.Errorf("%v %s", rec.Header(), rec.Body)
	}
}

// A bucket has tags of its own, in the order in which they were given, and its objects do not have them.
func TestBucketsHaveTags(t *testing.T) {
	w := newWorld(t)
	w.scene(t)
	get := call{method: "GET", path: "/photos?tagging"}
	w.must(t, 404, get)
	var set, want strings.Builder
	for i := range state.MaxBucketTags {
		fmt.Fprintf(&set, "<Tag><Value>%d &amp;</Value><Key>key %d</Key></Tag>", i, 99-i)
		fmt.Fprintf(&want, "<Tag><Key>key %d</Key><Value>%d &amp;</Value></Tag>", 99-i, i)
	}
	w.must(t, 204, call{method: "PUT", path: "/photos?tagging", body: "<Tagging><TagSet>" + set.String() + "</TagSet></Tagging>"})
	if rec := w.must(t, 200, get); !strings.Contains(rec.Body.String(), "<TagSet>"+want.String()+"</TagSet>") {
		t.Errorf("%s", rec.Body)
	}
	w.must(t, 404, call{method: "GET", path: "/empty?tagging"})
	if rec := w.must(t, 200, call{method: "GET", path: "/photos/sealed?tagging"}); strings.Contains(rec.Body.String(), "<Tag>") {
		t.Errorf("an object has the tags of its bucket: %s", rec.Body)
	}
	w.must(t, 204, call{method: "DELETE", path: "/photos?tagging"})
	w.must(t, 404, get)
	w.must(t, 204, call{method: "DELETE", path: "/photos?tagging"})
}
