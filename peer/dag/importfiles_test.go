package dag

import (
	"errors"
	"io"
	"strings"
	"testing"

	blocks "github.com/ipfs/go-block-format"
)

// nextOf returns the files among the items one after the other, and then the error last.
func nextOf(items []entryOfTar, last error) NextFile {
	return func() (string, io.Reader, error) {
		for len(items) > 0 {
			i := items[0]
			items = items[1:]
			if !strings.HasSuffix(i.path, "/") {
				return i.path, strings.NewReader(i.content), nil
			}
		}
		return "", nil, last
	}
}

// Files become the folder that a tar stream of them becomes, with the folders of their paths. A folder may go on after a
// folder in it.
func TestFilesBecomeTheFolderOfTheirPaths(t *testing.T) {
	items := []entryOfTar{
		{path: "a", content: "1"}, {path: "b/"}, {path: "b/x", content: "2"}, {path: "b/c/"}, {path: "b/c/d/"}, {path: "b/c/d/y", content: "3"},
		{path: "b/z", content: strings.Repeat("4", 3<<20)}, {path: "e", content: ""},
	}
	for _, layout := range []Layout{Usual, layoutOf(t, "sha2-256", "0")} {
		_, want := importItems(t, layout, items)
		got, err := ImportFiles(t.Context(), layout, nextOf(items, io.EOF), func([]blocks.Block) error { return nil })
		if err != nil || got.Root != want.Root || got.Size != want.Size || len(got.Entries) != 3 {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

// Files whose paths make no folder are refused, and an error of the caller is returned.
func TestFilesThatMakeNoFolderAreRefused(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		paths []string
		last  error
		want  error
	}{
		"parent":            {[]string{"../x"}, io.EOF, ErrInvalidFolder},
		"absolute":          {[]string{"/etc/passwd"}, io.EOF, ErrInvalidFolder},
		"no name":           {[]string{"."}, io.EOF, ErrInvalidFolder},
		"two of one path":   {[]string{"a/x", "a/x"}, io.EOF, ErrInvalidFolder},
		"a file and folder": {[]string{"a", "a/x"}, io.EOF, ErrInvalidFolder},
		"closed folder":     {[]string{"a/x", "b/x", "a/y"}, io.EOF, ErrInvalidFolder},
		"too deep":          {[]string{strings.Repeat("d/", MaxFolderDepth) + "x"}, io.EOF, ErrTooLarge},
		"the caller":        {[]string{"a"}, broken, broken},
	} {
		var items []entryOfTar
		for _, path := range tc.paths {
			items = append(items, entryOfTar{path: path})
		}
		if _, err := ImportFiles(t.Context(), Usual, nextOf(items, tc.last), func([]blocks.Block) error { return nil }); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}
