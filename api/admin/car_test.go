package admin

import (
	"context"
	"io"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

func (f *fake) ImportCAR(ctx context.Context, r io.Reader) (content.CAR, error) {
	c, size, err := f.Add(ctx, r, content.Layout{})
	return content.CAR{Roots: []cid.Cid{c, c}, Blocks: 3, Bytes: size}, err
}

func (f *fake) ExportCAR(ctx context.Context, w io.Writer, text string) error {
	_, _, err := f.Open(ctx, text)
	if err != nil {
		return err
	}
	if _, err := w.Write(f.file); err != nil {
		return err
	}
	if f.breaks {
		return state.Errorf(state.CodeUnavailable, "a block is missing,\nit is ü")
	}
	return f.err
}

func (f *fake) ExportCARFor(ctx context.Context, w io.Writer, account state.AccountID, text string) error {
	f.called("export as %s", account)
	return f.ExportCAR(ctx, w, text)
}

// Requests for CARs call their use case, and their answers are the golden files, byte for byte. A CAR that is not valid
// is answered 422 and not 400, with which commands blame their arguments.
func TestAnswersAboutCARsKeepTheirForm(t *testing.T) {
	for _, tc := range []exchange{
		{"car_import", fake{}, "POST", "/car?user=alice@example.org", "some bytes", ""},
		{"car_import_invalid", fake{err: state.Errorf(state.CodeInvalid, "at byte 7")}, "POST", "/car", "some bytes", ""},
		{"car_import_unknown_user", fake{}, "POST", "/car?user=nobody@example.org", "some bytes", ""},
		{"car_export", fake{file: []byte("some bytes")}, "GET", "/car/" + fileCID, "", ""},
		{"car_export_user", fake{file: []byte("some bytes")}, "GET", "/car/" + fileCID + "?user=alice@example.org", "", "export as a1"},
		{"car_export_broken", fake{file: []byte("some bytes"), breaks: true}, "GET", "/car/" + fileCID, "", ""},
		{"car_export_bad_cid", fake{}, "GET", "/car/hello", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.keepsItsForm(t) })
	}
}
