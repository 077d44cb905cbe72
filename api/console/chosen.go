package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits of what is chosen in the list of a bucket.
const (
	maxChosen  = 2 * objectRows // rows that one request names
	maxCounted = 10_000         // objects that are counted before the user confirms
	maxDoomed  = 10_000         // objects that one request deletes
)

// chosen are rows of the list of a bucket: objects by their keys, and folders by the prefixes of the
// keys in them.
type chosen struct{ Objects, Folders []string }

// chosenOf returns the rows that are ticked in a form. Their values are encoded, because a browser
// changes line ends in the values of a form.
func chosenOf(form url.Values) (of chosen, err error) {
	if n := len(form["object"]) + len(form["folder"]); n == 0 || n > maxChosen {
		return chosen{}, web.BadRequest("choose between 1 and %d objects and folders", maxChosen)
	}
	decode := func(values []string) (all []string) {
		for _, v := range values {
			text, derr := url.QueryUnescape(v)
			if derr != nil || text == "" || len(text) > state.MaxKeyBytes {
				err = web.BadRequest("%q is no key", v)
			}
			all = append(all, text)
		}
		return all
	}
	of.Objects, of.Folders = decode(form["object"]), decode(form["folder"])
	for _, f := range of.Folders {
		if !strings.HasSuffix(f, "/") {
			err = web.BadRequest("%q is no folder", f)
		}
	}
	return of, err
}

// Choice returns the value of the checkbox of an object or a folder.
func (bucketData) Choice(key string) string { return url.QueryEscape(key) }

// names returns the names of the rows below the folder that is shown.
func (ch chosen) names(folder string) (all []string) {
	for _, f := range ch.Folders {
		all = append(all, below(f, folder))
	}
	for _, o := range ch.Objects {
		all = append(all, below(o, folder))
	}
	return all
}

// eachChosen calls visit with the chosen objects, page by page: those of a folder as they are in a list,
// which lacks some of their fields, and single ones whole. Objects that do not exist are left out. It
// ends early, without an error, when visit returns false. ctx returns the context of the next call.
func (s *surface) eachChosen(c *call, ctx func() context.Context, of chosen, visit func(page []state.Object) (bool, error)) error {
	bucket := c.bucketName()
	for _, key := range of.Objects {
		o, err := s.Objects.Object(ctx(), c.who.Account, bucket, key, "")
		if isAbsent(err) || err == nil && o.Marker {
			continue
		}
		if err != nil {
			return fmt.Errorf("find object: %w", err)
		}
		if more, err := visit([]state.Object{o}); err != nil || !more {
			return err
		}
	}
	for _, folder := range of.Folders {
		q := state.ObjectsQuery{Prefix: folder, Limit: state.MaxListLimit}
		for more := true; more; {
			page, err := s.Objects.List(ctx(), c.who.Account, bucket, q)
			if err != nil {
				return fmt.Errorf("list objects: %w", err)
			}
			if len(page.Objects) > 0 {
				if next, err := visit(page.Objects); err != nil || !next {
					return err
				}
			}
			more, q.After = page.Truncated, page.Next
		}
	}
	return nil
}

// within returns the context for one call of the application logic, which has the time of the request.
func (c *call) within() context.Context { return c.asking(c.ctx) }

// chosenData is the data of the page on which a user confirms a deletion.
type chosenData struct {
	Bucket  string
	Objects []string // values of the form
	Folders []string
	Names   []string // what was chosen
	Count   int      // objects, at most maxCounted
	Bytes   uint64
	More    bool   // there are more than Count
	Keeps   bool   // the bucket keeps versions
	Deleted int    // by the request that this page answers
	Action  string // address that the form is sent to
	Back    string // address of the list
}

// deleteChosen serves POST /buckets/{bucket}/delete-many. It first answers with a page that says how
// much is chosen, and deletes it when the user has confirmed that. One request deletes at most maxDoomed
// objects; then the page asks for the rest.
func (s *surface) deleteChosen(c *call) error {
	b, err := s.Objects.Bucket(c.within(), c.who.Account, c.bucketName())
	if err != nil {
		return fmt.Errorf("find bucket: %w", err)
	}
	of, err := chosenOf(c.r.PostForm)
	if err != nil {
		return err
	}
	prefix := c.r.URL.Query().Get("prefix")
	d := chosenData{
		Bucket: b.Name, Objects: c.r.PostForm["object"], Folders: c.r.PostForm["folder"],
		Names: of.names(prefix[:strings.LastIndexByte(prefix, '/')+1]),
		Keeps: b.Versioning == state.Versioned, Action: c.r.URL.RequestURI(), Back: bucketAddress(b.Name, prefix),
	}
	if c.r.PostForm.Get("sure") != "" {
		end, err := s.removeChosen(c, of, &d)
		defer end()
		if err != nil {
			return err
		}
		if !d.More {
			return c.redirect(d.Back)
		}
	}
	if err := s.countChosen(c, of, &d); err != nil {
		return err
	}
	return s.show(c, http.StatusOK, "chosen", b.Name, "buckets", d)
}

// removeChosen deletes up to maxDoomed chosen objects. d gets how many were deleted, and whether
// there are more. The caller calls end when the request is answered.
func (s *surface) removeChosen(c *call, of chosen, d *chosenData) (end context.CancelFunc, err error) {
	var ends []context.CancelFunc
	end = func() {
		for _, e := range ends {
			e()
		}
	}
	var doomed []objects.Doomed
	flush := func() error {
		if len(doomed) == 0 {
			return nil
		}
		if _, err := s.Objects.DeleteMany(c.within(), c.who.Account, d.Bucket, doomed); err != nil {
			return fmt.Errorf("delete objects: %w", err)
		}
		d.Deleted += len(doomed)
		doomed = doomed[:0]
		ends = append(ends, c.renew()) // the next thousand has as much time
		return nil
	}
	err = s.eachChosen(c, c.within, of, func(page []state.Object) (bool, error) {
		for i := range page {
			if d.Deleted+len(doomed) == maxDoomed {
				d.More = true
				return false, nil
			}
			if doomed = append(doomed, objects.Doomed{Key: page[i].Key}); len(doomed) == state.MaxDeleteKeys {
				if err := flush(); err != nil {
					return false, err
				}
			}
		}
		return true, nil
	})
	if err == nil {
		err = flush()
	}
	return end, err
}

// countChosen sets the numbers of d.
func (s *surface) countChosen(c *call, of chosen, d *chosenData) error {
	d.Count, d.Bytes, d.More = 0, 0, false
	return s.eachChosen(c, c.within, of, func(page []state.Object) (bool, error) {
		for i := range page {
			if d.Count == maxCounted {
				d.More = true
				return false, nil
			}
			d.Count++
			d.Bytes += page[i].Size
		}
		return true, nil
	})
}
