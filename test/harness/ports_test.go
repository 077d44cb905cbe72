package harness

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// portVariable tells a second process of the test which port to ask for.
const portVariable = "HARNESS_TEST_PORT"

// A port that this process has is given to no other process, although nobody listens there, until this one lets go of
// it. So it is between the stop and the start of a node.
func TestAPortIsGivenToOneProcess(t *testing.T) {
	if port, err := strconv.Atoi(os.Getenv(portVariable)); err == nil {
		m, err := mark(port)
		if err == nil {
			m.Close()
		}
		fmt.Printf("given=%t\n", err == nil)
		return
	}
	asks := func(port int) string {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", portVariable, port))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		said, _, _ := strings.Cut(string(out), "\n")
		return said
	}
	var g given
	port, err := g.free()
	if err != nil {
		t.Fatal(err)
	}
	if !unused(port) {
		t.Fatalf("somebody listens on %d", port)
	}
	if got := asks(port); got != "given=false" {
		t.Errorf("a port of this process: %s", got)
	}
	for _, m := range g.marks {
		m.Close()
	}
	if got := asks(port); got != "given=true" {
		t.Errorf("a port that nobody has any more: %s", got)
	}
}
