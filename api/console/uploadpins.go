package console

import (
	"fmt"
	"io"
	"math"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/uploads"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// uploadForm has the fields of the form with files to pin, as the user entered them.
type uploadForm struct {
	Name string
	CAR  bool // the file is a CAR, of which the roots are pinned
}

// uploadPins serves POST /pins/upload, a multipart/form-data form with the form token, the kind of
// content, a name for the pin, and files. It stores and pins the files, or the DAGs in a CAR, and
// redirects to the page of the pin, or to the list if a CAR has several roots.
func (s *surface) uploadPins(c *call) error {
	form, wire, err := c.filesForm()
	if err != nil {
		return err
	}
	kind, err := form.Field("kind")
	if err != nil {
		return err
	}
	name, err := form.Field("name")
	if err != nil {
		return err
	}
	entered := uploadForm{name, kind == "car"}
	done, err := s.storePins(c, form, entered)
	if problem := refusal(err, state.CodeInvalid, state.CodeQuota, state.CodeNoSpace, state.CodeLimited); problem != "" {
		// A browser shows the answer only after it has sent everything.
		_, _ = io.CopyN(io.Discard, wire, s.MaxObject) // at worst the browser shows that the connection ended
		return s.showPinsOf(c, http.StatusBadRequest, pinsData{Upload: entered, UploadError: problem})
	}
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	if len(done.Pins) == 1 {
		return c.redirect(pathOf(done.Pins[0]))
	}
	return c.redirect("/pins")
}

// storePins stores and pins the files of a form.
func (s *surface) storePins(c *call, form *web.FilesForm, entered uploadForm) (done uploads.Result, err error) {
	ctx := c.asking(c.r.Context())
	r := uploads.Request{Account: c.who.Account, Pin: pins.Request{Name: entered.Name}}
	if entered.Name != "" {
		r.Pin.Given = state.GivenName
	}
	next := func() (string, io.Reader, error) {
		path, file, err := form.File()
		return path, &limited{file, math.MaxInt64}, err //nolint:wrapcheck // io.EOF, or an answer to the browser
	}
	if !entered.CAR {
		return s.Uploads.Files(ctx, r, next) //nolint:wrapcheck // the caller does
	}
	_, file, err := next()
	if err == io.EOF { //nolint:errorlint // the end of the form
		return done, state.Errorf(state.CodeInvalid, "the upload has no file")
	}
	if err != nil {
		return done, err
	}
	return s.Uploads.CAR(ctx, r, file) //nolint:wrapcheck // the caller does
}
