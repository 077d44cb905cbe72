package console

import (
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// luminance returns the relative luminance of a colour as WCAG 2.2 defines it.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	var rgb [3]uint8
	if _, err := fmt.Sscanf(colour, "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2]); err != nil {
		t.Fatalf("%q: %v", colour, err)
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(rgb[i]) / 255
		if c <= 0.04045 {
			sum += weight * c / 12.92
		} else {
			sum += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return sum
}

// In light and in dark, text has a contrast of at least 4.5:1 with what is behind it, and the edge of a field one of at
// least 3:1 (WCAG 2.2, 1.4.3 and 1.4.11).
func TestColoursHaveContrast(t *testing.T) {
	text, err := fs.ReadFile(files, "static/tokens.css")
	if err != nil {
		t.Fatal(err)
	}
	schemes := strings.Split(string(text), "--ink:")[1:]
	if len(schemes) != 3 {
		t.Fatalf("there are %d schemes", len(schemes))
	}
	for i, scheme := range schemes {
		colours := map[string]string{}
		for _, found := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch("--ink:"+scheme, -1) {
			colours[found[1]] = found[2]
		}
		least := map[string]float64{"ink": 4.5, "muted": 4.5, "accent": 4.5, "good": 4.5, "busy": 4.5, "wait": 4.5, "bad": 4.5, "edge": 3}
		for name, ratio := range least {
			for _, ground := range []string{"ground", "raised"} {
				a, b := luminance(t, colours[name]), luminance(t, colours[ground])
				if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < ratio {
					t.Errorf("scheme %d: %s on %s has a contrast of %.2f", i, name, ground, got)
				}
			}
		}
	}
}

// A browser keeps the colours that the person chose, on every page, and has those of the system again
// when the person wants that.
func TestColoursAreChosen(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	for _, step := range []struct{ scheme, html, meta string }{
		{"dark", `<html lang="en" data-colours="dark">`, `name="color-scheme" content="dark"`},
		{"light", `<html lang="en" data-colours="light">`, `name="color-scheme" content="light"`},
		{"", `<html lang="en">`, `name="color-scheme" content="light dark"`},
	} {
		if answer := b.post("/account", "/account/colours", url.Values{"scheme": {step.scheme}}); answer.Code != http.StatusSeeOther {
			t.Fatalf("%q is answered with %d", step.scheme, answer.Code)
		}
		for _, page := range []string{"/", "/nowhere"} {
			if _, body := b.get(page); !strings.Contains(body, step.html) || !strings.Contains(body, step.meta) {
				t.Errorf("with %q %s is %s", step.scheme, page, body)
			}
		}
	}
	if answer := b.post("/account", "/account/colours", url.Values{"scheme": {"pink"}}); answer.Code != http.StatusBadRequest {
		t.Errorf("an unknown scheme is answered with %d", answer.Code)
	}
}

// The scopes of a key are told in words.
func TestScopesInWords(t *testing.T) {
	for scopes, want := range map[string]string{
		"storage:read": "read", "storage:read storage:write": "read and write",
		"storage:read storage:write storage:delete": "read, write and delete", "other": "other", "": "",
	} {
		if got := mayText(scopes); got != want {
			t.Errorf("%q is %q, not %q", scopes, got, want)
		}
	}
}
