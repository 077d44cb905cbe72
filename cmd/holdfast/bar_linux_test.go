package main

import (
	"regexp"
	"testing"
	"time"
)

// A progress bar whose size is set later, as of a sync and of a download, shows the rate and the time that is left.
func TestABarShowsTheTimeLeft(t *testing.T) {
	for _, size := range []int64{0, 1 << 30} {
		person, terminal := newTerminal(t)
		a, _ := testApp(t, &fakeNode{}, "")
		a.stderr = terminal
		bar := a.newBar(size, "copying")
		bar.ChangeMax64(1 << 30)
		if err := bar.Add64(1 << 20); err != nil {
			t.Fatal(err)
		}
		if err := bar.RenderBlank(); err != nil { // without the pause between two updates
			t.Fatal(err)
		}
		shows := regexp.MustCompile(`copying .*[KMGTPE]iB/s.* \[[0-9hms]+:[0-9hms]+\]`)
		if err := person.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		var all []byte
		for part := make([]byte, 4096); !shows.Match(all); {
			n, err := person.Read(part)
			if all = append(all, part[:n]...); err != nil {
				t.Fatalf("a bar of size %d shows %q: %v", size, all, err)
			}
		}
	}
}
