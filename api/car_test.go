package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// half is the text of content whose export breaks off in the middle.
var half = bytes.Repeat([]byte("half"), 300_000)

func (n *node) ImportCAR(ctx context.Context, r io.Reader) (content.CAR, error) {
	root, size, err := n.Add(ctx, r, content.Layout{})
	return content.CAR{Roots: []cid.Cid{root}, Blocks: 1, Bytes: size}, err
}

func (n *node) ExportCAR(ctx context.Context, w io.Writer, text string) error {
	f, _, err := n.Open(ctx, text)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if bytes.Equal(data, half) {
		data, err = data[:len(data)/2], state.Errorf(state.CodeUnavailable, "block 7 is missing, %s", "100 % ü\n")
	}
	_, writing := w.Write(data)
	return errors.Join(writing, err)
}

func (n *node) ExportCARFor(ctx context.Context, w io.Writer, account state.AccountID, text string) error {
	return state.Errorf(state.CodeNotFound, "nobody has %s for %s", text, account)
}

// exchangesCARs has the client import CARs, and export them again: one that is whole, and one whose export breaks off,
// which the client notices with the reason.
func exchangesCARs(t *testing.T, c *client.Client, data []byte) {
	t.Helper()
	ctx := t.Context()
	car := must[client.CAR](t)(c.ImportCAR(ctx, "", bytes.NewReader(data)))
	if len(car.Roots) != 1 || car.Bytes != uint64(len(data)) {
		t.Fatalf("%+v", car)
	}
	if _, err := c.ImportCAR(ctx, "nobody@example.org", bytes.NewReader(data)); err == nil || err.Error() != "there is no account with this e-mail address" {
		t.Error(err)
	}
	read := func(root string) ([]byte, error) {
		t.Helper()
		body := must[io.ReadCloser](t)(c.ExportCAR(ctx, "", root))
		got, err := io.ReadAll(body)
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		return got, err
	}
	if got, err := read(car.Roots[0]); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d: %v", len(got), len(data), err)
	}
	if _, err := c.ExportCAR(ctx, "", "hello"); err == nil || err.Error() != "nobody has hello" {
		t.Error(err)
	}
	if _, err := c.ExportCAR(ctx, "nobody@example.org", car.Roots[0]); err == nil || err.Error() != "there is no account with this e-mail address" {
		t.Error(err)
	}
	added := must[client.Content](t)(c.AddContent(ctx, bytes.NewReader(half)))
	got, err := read(added.CID)
	if !errors.Is(err, client.ErrIncompleteCAR) || err.Error() != "the CAR is not complete: block 7 is missing, 100 % ü\n" || len(got) != len(half)/2 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
