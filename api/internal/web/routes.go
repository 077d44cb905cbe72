package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Route is one row of the route table of an API. A request that matches no row gets 404 or 405.
type Route struct {
	Method string // GET also serves HEAD
	// Path has literal segments and segments {name}. A segment {name} matches one segment that is
	// not empty; the handler reads it with PathValue. A last segment {name...} matches the rest of
	// the path with its slashes, which must not be empty.
	Path  string
	Serve Handler
}

type path struct {
	segments []string
	methods  map[string]Handler
	allow    []string
}

// Routes returns a handler that serves the routes of table. It matches the escaped path as the
// client sent it, segment by segment, without cleaning or redirects, so an escaped slash stays
// part of its segment. It answers OPTIONS with the methods of the path.
func Routes(table []Route) Handler {
	var paths []*path
	for _, r := range table {
		segments := strings.Split(r.Path, "/")
		i := slices.IndexFunc(paths, func(p *path) bool { return slices.Equal(p.segments, segments) })
		if i < 0 {
			i = len(paths)
			paths = append(paths, &path{segments, map[string]Handler{}, []string{http.MethodOptions}})
		}
		p := paths[i]
		p.methods[r.Method] = named(r.Method+" "+r.Path, r.Serve)
		p.allow = append(p.allow, r.Method)
		if r.Method == http.MethodGet {
			p.methods[http.MethodHead] = named(http.MethodHead+" "+r.Path, r.Serve)
			p.allow = append(p.allow, http.MethodHead)
		}
	}
	for _, p := range paths {
		slices.Sort(p.allow)
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		sent := r.URL.EscapedPath()
		for _, p := range paths {
			if !p.match(sent, r) {
				continue
			}
			serve, ok := p.methods[r.Method]
			switch {
			case ok:
				return serve(w, r)
			case r.Method == http.MethodOptions:
				w.Header().Set("Allow", strings.Join(p.allow, ", "))
				return Empty(w, http.StatusNoContent)
			default:
				return MethodNotAllowed(p.allow...)
			}
		}
		return NoSuchRoute()
	}
}

// named returns a handler that sets name as the operation in the metrics and calls serve.
func named(name string, serve Handler) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		Operation(w, name)
		return serve(w, r)
	}
}

// match reports whether the escaped path sent matches the pattern p. It sets the path values of
// r.
func (p *path) match(sent string, r *http.Request) bool {
	last := len(p.segments) - 1
	rest := strings.HasSuffix(p.segments[last], "...}")
	if slashes := strings.Count(sent, "/"); slashes < last || slashes > last && !rest {
		return false
	}
	for i, want := range p.segments {
		var got string
		if i == last {
			got = sent
		} else {
			got, sent, _ = strings.Cut(sent, "/")
		}
		name, named := strings.CutPrefix(want, "{")
		if !named {
			if got != want {
				return false
			}
			continue
		}
		value, err := url.PathUnescape(got)
		if err != nil || value == "" {
			return false
		}
		r.SetPathValue(strings.TrimSuffix(strings.TrimSuffix(name, "}"), "..."), value)
	}
	return true
}
