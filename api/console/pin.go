package console

import (
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// pinForm has the values of the form for a new pin, or for one that replaces another.
type pinForm struct {
	CID, Name string
	Origins   string // one multiaddr in each line
	Meta      string // one key=value in each line
	KeepMeta  bool   // the metadata of the pin cannot be written as lines, so the form does not change it
	Until     string // expiry: RFC 3339 time or duration; empty: the pin does not expire
}

// pinFormOf returns the form in a request.
func pinFormOf(v url.Values) pinForm {
	return pinForm{strings.TrimSpace(v.Get("cid")), v.Get("name"), v.Get("origins"), v.Get("meta"), !v.Has("meta"), strings.TrimSpace(v.Get("until"))}
}

// formOf returns the form with which an equal pin could be created.
func formOf(p state.Pin) pinForm {
	f := pinForm{CID: p.CID, Name: p.Name, Origins: strings.Join(p.Origins, "\n"), Until: pins.EndText(p.Until)}
	meta, ok := linesOf(p.Meta)
	f.Meta, f.KeepMeta = meta, !ok
	return f
}

// linesOf formats pairs as lines that parseMeta parses to the same pairs. ok is false if that is
// impossible, as for some metadata that programs set.
func linesOf(meta map[string]string) (text string, ok bool) {
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		text += k + "=" + meta[k] + "\n"
	}
	again, err := parseMeta(text)
	return text, err == nil && maps.Equal(again, meta)
}

// request converts the form to a request for Pins. Errors are state.CodeInvalid.
func (f pinForm) request() (pins.Request, error) {
	meta, err := parseMeta(f.Meta)
	if err != nil {
		return pins.Request{}, err
	}
	r := pins.Request{CID: f.CID, Name: f.Name, Origins: strings.Fields(f.Origins), Meta: meta}
	if r.Name != "" {
		r.Given |= state.GivenName
	}
	if len(r.Origins) > 0 {
		r.Given |= state.GivenOrigins
	}
	if len(r.Meta) > 0 {
		r.Given |= state.GivenMeta
	}
	if f.Until != "" {
		r.End, err = pins.ParseEnd(f.Until)
	}
	return r, err
}

// requestOf returns a request that would create an equal pin.
func requestOf(p state.Pin) pins.Request {
	return pins.Request{CID: p.CID, Given: p.Given, Name: p.Name, Origins: p.Origins, Meta: p.Meta, End: pins.End{At: p.Until}, MaxBytes: p.MaxBytes}
}

// parseMeta parses lines of key=value. Errors are state.CodeInvalid.
func parseMeta(text string) (map[string]string, error) {
	var meta map[string]string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return nil, state.Errorf(state.CodeInvalid, "%q is not key=value", line)
		}
		if _, twice := meta[key]; twice {
			return nil, state.Errorf(state.CodeInvalid, "the key %q is there twice", key)
		}
		if meta == nil {
			meta = map[string]string{}
		}
		meta[key] = strings.TrimSpace(value)
	}
	return meta, nil
}

// createPin serves POST /pins: it creates a pin and redirects to its page. For invalid input, or
// without quota or space, it answers with the page /pins and the problem.
func (s *surface) createPin(c *call) error {
	form := pinFormOf(c.r.PostForm)
	var pin pins.Record
	r, err := form.request()
	if err == nil {
		pin, err = s.Pins.Create(c.asking(c.ctx), c.who.Account, r)
	}
	if problem := refusal(err, state.CodeInvalid, state.CodeQuota, state.CodeNoSpace); problem != "" {
		return s.showPins(c, http.StatusBadRequest, form, problem)
	}
	if err != nil {
		return err
	}
	return c.redirect(pathOf(pin))
}

func pathOf(pin pins.Record) string { return "/pins/" + url.PathEscape(string(pin.ID)) }

// pinData is the data of the page of a pin.
type pinData struct {
	pins.Detail
	View template.URL // ipfs:// URL of the content, for browsers that support IPFS
	// Gateway is the host of the IPFS gateway, and AtGateway the URL of the content there. Both are
	// empty if the settings name no gateway.
	Gateway, AtGateway string
	Form               pinForm
	Error              string
}

// copyShapes maps the phases of a copy to the pin statuses whose symbols stand for them. copyWords maps
// them to words.
var (
	copyShapes = map[state.Phase]state.Status{state.Assigned: state.Queued, state.Fetching: state.Pinning, state.Held: state.Pinned, state.GaveUp: state.Failed}
	copyWords  = map[state.Phase]string{state.Assigned: "waiting", state.Fetching: "fetching", state.Held: "verified", state.GaveUp: "gave up"}
)

// pinID returns the id of the pin in the path.
func pinID(c *call) state.RequestID { return state.RequestID(c.r.PathValue("id")) }

// pinPage serves GET /pins/{id}, the page of one pin.
func (s *surface) pinPage(c *call) error { return s.showPin(c, http.StatusOK, nil, "") }

// showPin answers with the page of a pin. form has rejected values, or is nil; problem is why
// they were rejected.
func (s *surface) showPin(c *call, status int, form *pinForm, problem string) error {
	pin, err := s.Pins.Detail(c.ctx, c.who.Account, pinID(c))
	if err != nil {
		return err
	}
	d := pinData{Detail: pin, View: viewOf(pin.CID), Form: formOf(pin.Pin), Error: problem}
	if s.IPFSGateway != "" {
		_, d.Gateway, _ = strings.Cut(s.IPFSGateway, "://")
		d.AtGateway = s.IPFSGateway + "/ipfs/" + url.PathEscape(pin.CID)
	}
	if form != nil {
		d.Form = *form
	}
	title := pin.Name
	if title == "" {
		title = short(pin.CID)
	}
	return s.show(c, status, "pin", title, "pins", d)
}

// viewOf returns the ipfs:// URL of a CID for browsers that support IPFS. It contains a version 1
// CID in base32, because browsers convert it to lower case like a host name.
func viewOf(text string) template.URL {
	c, err := cid.Decode(text)
	if err != nil {
		return ""
	}
	return template.URL("ipfs://" + state.RootOf(c).Cid().String()) //nolint:gosec // it has letters and digits
}

// replacePin serves POST /pins/{id}/replace: it replaces this pin by the one in the form.
func (s *surface) replacePin(c *call) error {
	form := pinFormOf(c.r.PostForm)
	var pin pins.Record
	r, err := form.request()
	if err == nil && form.KeepMeta {
		var old pins.Record
		old, err = s.Pins.Get(c.ctx, c.who.Account, pinID(c))
		r.Meta, r.Given = old.Meta, r.Given|old.Given&state.GivenMeta
	}
	if err == nil {
		pin, err = s.Pins.Replace(c.asking(c.ctx), c.who.Account, pinID(c), r)
	}
	if problem := refusal(err, state.CodeInvalid, state.CodeQuota, state.CodeNoSpace); problem != "" {
		return s.showPin(c, http.StatusBadRequest, &form, problem)
	}
	if err != nil {
		return err
	}
	return c.redirect(pathOf(pin))
}

// retryPin serves POST /pins/{id}/retry: it replaces a failed pin by an equal new pin, which the
// cluster tries to fetch again.
func (s *surface) retryPin(c *call) error {
	pin, err := s.retry(c, pinID(c))
	if problem := refusal(err, state.CodeQuota, state.CodeNoSpace); problem != "" {
		return s.showPin(c, http.StatusBadRequest, nil, problem)
	}
	if err != nil {
		return err
	}
	return c.redirect(pathOf(pin))
}

// retry replaces a pin by a new pin with the same values, so that the cluster tries to fetch its
// content again.
func (s *surface) retry(c *call, id state.RequestID) (pins.Record, error) {
	old, err := s.Pins.Get(c.ctx, c.who.Account, id)
	if err != nil {
		return pins.Record{}, err
	}
	return s.Pins.Replace(c.asking(c.ctx), c.who.Account, id, requestOf(old.Pin))
}

// deletePin serves POST /pins/{id}/delete: it deletes a pin.
func (s *surface) deletePin(c *call) error {
	if err := s.Pins.Delete(c.asking(c.ctx), c.who.Account, pinID(c)); err != nil {
		return err
	}
	return c.redirect("/pins")
}
