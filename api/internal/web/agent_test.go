package web

import (
	"strings"
	"testing"
)

// A browser has a short name with version and system, and another program the name of its product.
func TestBrowser(t *testing.T) {
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                                                     "Firefox 140 on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36":                            "Chrome 141 on Windows",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0":              "Edge 141 on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15":                      "Safari 18 on macOS",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/141.0.0.0 Mobile/15E148 Safari/604.1": "Chrome 141 on iPhone",
		"Mozilla/5.0 (Linux; Android 14; SM-S911B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/26.0 Chrome/122.0.0.0 Mobile Safari/537.36": "Samsung Internet 26 on Android",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/141.0.0.0 Safari/537.36":                              "Chrome 141 on Linux",
		"Mozilla/5.0 (X11; FreeBSD amd64; rv:140.0) Gecko/20100101 Firefox/":                                                                         "Firefox",
		"Mozilla/5.0 (compatible; Something/1.0)": "Mozilla/5.0 (compatible; Something/1.0)",
		"Mozilla/5.0 (compatible) Version/4":      "Mozilla/5.0 (compatible) Version/4",
		"curl/8.5.0":                              "curl/8.5.0",
		"Go-http-client/1.1 more":                 "Go-http-client/1.1",
		"":                                        "",
		"  ":                                      "",
		"<script>alert(1)</script> x":             "<script>alert(1)</script>",
		strings.Repeat("a", 10_000):               strings.Repeat("a", maxAgent),
	} {
		if got := Browser(agent); got != want {
			t.Errorf("%.80q is %q, want %q", agent, got, want)
		}
	}
}
