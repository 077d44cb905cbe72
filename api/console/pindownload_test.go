package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// keptContent is content of any CID: a file with a text, or a folder.
type keptContent struct {
	folder bool
	bytes  int   // of the tar stream or CAR before err
	err    error // at their end
	asked  []state.AccountID
	open   int
}

type keptFile struct {
	*strings.Reader

	of *keptContent
}

// Close implements io.Closer.
func (f *keptFile) Close() error { f.of.open--; return nil }

// WriteTar implements content.Folder.
func (f *keptFile) WriteTar(_ context.Context, w io.Writer) error { return f.of.write(w, "tar") }

func (k *keptContent) write(w io.Writer, text string) error {
	if k.bytes > 0 {
		text = strings.Repeat("x", k.bytes)
	} else if k.err != nil {
		return k.err
	}
	_, err := io.WriteString(w, text)
	return errors.Join(err, k.err)
}

func (k *keptContent) OpenFor(_ context.Context, a state.AccountID, _ string) (io.ReadSeekCloser, uint64, error) {
	k.asked = append(k.asked, a)
	if k.folder {
		return nil, 0, content.ErrFolder
	}
	k.open++
	return &keptFile{strings.NewReader("purr. purr."), k}, 11, nil
}

func (k *keptContent) OpenFolderFor(_ context.Context, a state.AccountID, _ string) (content.Folder, error) {
	k.asked = append(k.asked, a)
	k.open++
	return &keptFile{of: k}, nil
}

func (k *keptContent) ExportCARFor(_ context.Context, w io.Writer, a state.AccountID, _ string) error {
	k.asked = append(k.asked, a)
	return k.write(w, "car")
}

// The content of a pin is downloaded as a file, a folder as a tar stream, and each as a CAR, by the account of the pin
// alone. An answer that ends too early does not look complete.
func TestTheContentOfAPinIsDownloaded(t *testing.T) {
	w := newWorld(t)
	kept := &keptContent{}
	w.options.Content = kept
	w.renew()
	b := w.browser()
	b.signIn("alice")
	path := b.post("/pins", "/pins", url.Values{"cid": {testCID(t, "cat")}, "name": {"a cat/1"}}).Header().Get("Location") + "/download"
	for _, tc := range []struct {
		folder           bool
		query, name, has string
	}{
		{false, "", "a%20cat%2F1", "purr. purr."},
		{true, "", "a%20cat%2F1.tar", "tar"},
		{true, "?as=car", "a%20cat%2F1.car", "car"},
	} {
		kept.folder = tc.folder
		answer := b.do(httptest.NewRequest(http.MethodGet, path+tc.query, nil))
		if got := answer.Header().Get("Content-Disposition"); answer.Code != http.StatusOK || answer.Body.String() != tc.has || got != "attachment; filename*=UTF-8''"+tc.name ||
			answer.Header().Get("Content-Security-Policy") != sandbox {
			t.Errorf("%+v: %d %q %v", tc, answer.Code, answer.Body, answer.Header())
		}
	}
	kept.folder = false
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Range", "bytes=6-")
	if answer := b.do(r); answer.Code != http.StatusPartialContent || answer.Body.String() != "purr." {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
	if answer := b.do(httptest.NewRequest(http.MethodGet, path+"?as=zip", nil)); answer.Code != http.StatusBadRequest {
		t.Errorf("%d", answer.Code)
	}
	other, asked := w.browser(), len(kept.asked)
	other.signIn("bob")
	if answer := other.do(httptest.NewRequest(http.MethodGet, path, nil)); answer.Code != http.StatusNotFound || len(kept.asked) != asked {
		t.Errorf("another account is answered with %d", answer.Code)
	}
	for _, a := range kept.asked {
		if a != w.account("alice") {
			t.Errorf("content was read with the rights of %s", a)
		}
	}

	kept.folder, kept.err = true, state.ErrUnavailable
	for _, query := range []string{"", "?as=car"} {
		answer := b.do(httptest.NewRequest(http.MethodGet, path+query, nil))
		if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Content-Disposition") != "" || !strings.Contains(answer.Body.String(), "<h1>") {
			t.Errorf("content that cannot be read is answered with %d, %v", answer.Code, answer.Header())
		}
	}
	kept.bytes = 100_000
	for _, query := range []string{"", "?as=car"} {
		if status, err := b.read(httptest.NewRequest(http.MethodGet, path+query, nil)); status != http.StatusOK || err == nil {
			t.Errorf("content that cannot be read to its end is answered with %d, %v", status, err)
		}
	}
	if kept.open != 0 {
		t.Errorf("%d files or folders stay open", kept.open)
	}
}
