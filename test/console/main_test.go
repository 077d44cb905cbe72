//go:build conformance

package console

import (
	"flag"
	"os"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// pictures is where screenshots of all pages are written.
var pictures = flag.String("pictures", "", "write a screenshot of every page into this `folder`")

// long asks for all tests, in their full length.
var long = flag.Bool("long", false, "all tests, in their full length")

// longForm leaves a test to `make console-long` and to `make console-pictures`: of pages and flows that are
// like those of other tests.
func longForm(t *testing.T) {
	t.Helper()
	if !*long && *pictures == "" {
		t.Skip("in the long form: make console-long")
	}
}

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
