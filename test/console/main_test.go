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

// long adds what takes many minutes.
var long = flag.Bool("long", false, "the long form too")

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
