package console

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// manyEntries are use cases of objects in a bucket with too many entries to sort.
type manyEntries struct{ Objects }

func (manyEntries) Sorted(context.Context, state.AccountID, string, objects.SortedQuery) (state.ObjectsPage, bool, error) {
	return state.ObjectsPage{}, true, nil
}

var (
	entryName = regexp.MustCompile(`<td><a [^>]*><bdi>([^<]*)</bdi>`)
	nextPage  = regexp.MustCompile(`<a href="([^"]+)" rel="next">`)
)

// walk opens a page of a bucket and all that follow, and returns the names on them.
func (b *browser) walk(address string) (names []string, pages int) {
	b.t.Helper()
	for address != "" {
		status, body := b.get(address)
		if pages++; status != 200 || pages > 10 {
			b.t.Fatalf("%s is answered with %d", address, status)
		}
		for _, m := range entryName.FindAllStringSubmatch(body, -1) {
			names = append(names, m[1])
		}
		address = ""
		if m := nextPage.FindStringSubmatch(body); m != nil {
			address = html.UnescapeString(m[1])
		}
	}
	return names, pages
}

// The address of a bucket has the order of its list, over all pages and in its folders. Folders come
// first, and unknown orders are by name.
func TestTheListOfABucketIsSorted(t *testing.T) {
	w := newWorld(t)
	w.photos("many/000")
	b := w.browser()
	b.signIn("alice")
	var want []string // the later ones are smaller
	for i := 1; i <= 120; i++ {
		name := fmt.Sprintf("%03d", i*7%121)
		want = append(want, name)
		w.store("many/"+name, "text/plain", strings.Repeat("x", 200-i))
	}
	w.store("many/zz/deep", "text/plain", "x")
	byKey := append([]string{"000"}, slices.Sorted(slices.Values(want))...)
	smallest := slices.Concat([]string{"zz/", "000"}, backward(want)) // "000" has 5 bytes
	for sort, want := range map[string][]string{
		"":      append(slices.Clone(byKey), "zz/"),
		"-name": backward(append(slices.Clone(byKey), "zz/")),
		"size":  smallest, "-size": append([]string{"zz/"}, backward(smallest[1:])...),
		"time": w.byTime(1), "-time": w.byTime(-1),
		"nothing": append(slices.Clone(byKey), "zz/"),
	} {
		got, pages := b.walk("/buckets/photos?prefix=many%2F&sort=" + sort)
		if sort == "" || sort == "-name" || sort == "nothing" { // folders are first on their page only
			got = slices.DeleteFunc(got, func(n string) bool { return n == "zz/" })
			want = slices.DeleteFunc(slices.Clone(want), func(n string) bool { return n == "zz/" })
		}
		if !slices.Equal(got, want) || pages != 2 {
			t.Errorf("by %q, %d pages: %q, want %q", sort, pages, got, want)
		}
	}
	_, body := b.get("/buckets/photos?sort=-size")
	for _, part := range []string{
		`<option value="-size" selected>largest first</option>`, `aria-sort="descending"><a href="/buckets/photos?sort=size">Size</a>`,
		`aria-sort="none"><a href="/buckets/photos">Name</a>`, `href="/buckets/photos?prefix=many%2F&amp;sort=-size" class="folder"`,
	} {
		if !strings.Contains(body, part) {
			t.Errorf("the page does not have %s: %s", part, body)
		}
	}
	for _, bad := range []string{"&at=x", "&after=many/zz/&at=9", "&after=%00&at=-9223372036854775808", "&after=nothing&at=99999999999999999999"} {
		if status, _ := b.get("/buckets/photos?prefix=many%2F&sort=size" + bad); status != 200 {
			t.Errorf("%s is answered with %d", bad, status)
		}
	}
}

// byTime returns the entries of the folder by the times of the objects, ascending with way 1 and
// descending with -1. Objects of one millisecond are by name.
func (w *world) byTime(way int) []string {
	w.t.Helper()
	page, err := w.objects.List(w.t.Context(), w.account("alice"), "photos", state.ObjectsQuery{Prefix: "many/", Delimiter: "/", Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.SortStableFunc(page.Objects, func(a, b state.Object) int { return way * cmp.Compare(a.Created, b.Created) })
	names := []string{"zz/"}
	for _, o := range page.Objects {
		names = append(names, strings.TrimPrefix(o.Key, "many/"))
	}
	return names
}

func backward(names []string) []string {
	names = slices.Clone(names)
	slices.Reverse(names)
	return names
}

// A list that is too long to sort by size is by name, and says so and how to narrow it.
func TestALongListIsByName(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	w.store("ant.txt", "text/plain", "a longer text")
	b := w.another(func(o *Options) { o.Objects = manyEntries{o.Objects} }).browser()
	b.signIn("alice")
	_, body := b.get("/buckets/photos?sort=-size")
	if !strings.Contains(body, "These are by name: more than 10,000 entries") || strings.Index(body, "ant.txt</bdi>") > strings.Index(body, "cat.txt</bdi>") || !strings.Contains(body, `aria-sort="ascending"><a`) {
		t.Errorf("the page is %s", body)
	}
}
