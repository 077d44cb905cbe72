package admin

import (
	"context"
	"io"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

func (f *fake) Backup(_ context.Context, w io.Writer) error {
	f.called("backup")
	if f.err != nil {
		return f.err
	}
	if _, err := w.Write(f.file); err != nil {
		return err
	}
	if f.breaks {
		return state.Errorf(state.CodeUnavailable, "the disk\nis gone")
	}
	return nil
}

// The answer to a request for a backup has its bytes, and says at its end if they are not all. An error before the first
// byte is a status.
func TestAnswersAboutBackupsKeepTheirForm(t *testing.T) {
	for _, tc := range []exchange{
		{"backup", fake{file: []byte("some bytes")}, "GET", "/backup", "", "backup"},
		{"backup_broken", fake{file: []byte("some bytes"), breaks: true}, "GET", "/backup", "", "backup"},
		{"backup_refused", fake{err: state.Errorf(state.CodeLimited, "another backup is being read")}, "GET", "/backup", "", "backup"},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.keepsItsForm(t) })
	}
}
