package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// beProgram makes the test binary the program itself, so that the demo under
// test starts real processes of it.
const beProgram = "TEST_BINARY_IS_THE_PROGRAM"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(beProgram) != "":
		main() // does not return
	case os.Getenv(beJob) != "":
		os.Exit(asJob())
	}
	os.Exit(m.Run())
}

// temporary makes a folder the place of temporary ones. Its path is short,
// unlike that of t.TempDir: a socket's has to be.
func temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	return dir
}

// screen is standard output that calls seen, once, when it holds mark.
type screen struct {
	mark string
	seen func()

	mu   sync.Mutex
	text bytes.Buffer
	once sync.Once
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	n, err := s.text.Write(b)
	found := strings.Contains(s.text.String(), s.mark)
	s.mu.Unlock()
	if found {
		s.once.Do(s.seen)
	}
	return n, err
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// `holdfast demo` shows its whole tour with three real nodes, exits with code 0 after Ctrl-C, and leaves no file.
func TestDemoToursAndLeavesNothing(t *testing.T) {
	dir := temporary(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out := &screen{mark: "Ctrl-C ends everything", seen: cancel}
	var errs bytes.Buffer
	a := &app{
		version: "test", environ: append(os.Environ(), beProgram+"=1", "HOLDFAST_PINNING_LISTEN=not for the demo"),
		stdin: strings.NewReader(""), stdout: out, stderr: &errs, connect: connect,
	}
	if code := a.execute(ctx, []string{"demo"}); code != exitOK || errs.Len() > 0 {
		t.Errorf("code %d: %s", code, errs.String())
	}
	for _, want := range []string{
		"no foreign peer was given", "node3 joins", "202 queued", "GET /pins/{id} at node2: pinned",
		"is killed", "comes back", "the same bytes at node3", "the object is there too", "export TOKEN=ey", "All ended",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the tour does not say %q", want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// `holdfast demo` whose foreign peer ends at once exits with code 1 and one line that says why, and leaves no file.
func TestDemoThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	dir := temporary(t)
	var out, errs bytes.Buffer
	a := &app{
		environ: append(os.Environ(), beProgram+"=1", demoPeerVariable+"=/bin/false"),
		stdout:  &out, stderr: &errs, connect: connect,
	}
	if code := a.execute(t.Context(), []string{"demo"}); code != exitFailure || !strings.Contains(errs.String(), "the foreign peer") || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("code %d: %s", code, errs.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
