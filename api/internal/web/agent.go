package web

import "strings"

// maxAgent is how many bytes of the User-Agent header Browser looks at.
const maxAgent = 512

// browsers maps a token in the User-Agent header to the name of a browser. Most browsers also
// send the tokens of older browsers, so Browser uses the first entry whose token is in the
// header.
var browsers = [...][2]string{
	{"Edg/", "Edge"},
	{"EdgA/", "Edge"},
	{"EdgiOS/", "Edge"},
	{"OPR/", "Opera"},
	{"SamsungBrowser/", "Samsung Internet"},
	{"FxiOS/", "Firefox"},
	{"Firefox/", "Firefox"},
	{"CriOS/", "Chrome"},
	{"HeadlessChrome/", "Chrome"},
	{"Chrome/", "Chrome"},
	{"Version/", "Safari"},
}

// systems maps a word in the User-Agent header to the name of an operating system. The first
// entry whose word is in the header applies.
var systems = [...][2]string{
	{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"CrOS", "ChromeOS"}, {"Windows", "Windows"}, {"Macintosh", "macOS"}, {"Linux", "Linux"},
}

// Browser returns a short name of the program that sent a User-Agent header, such as "Firefox 140
// on Linux" or "curl/8.5.0". For an unknown browser it returns the header, cut to maxAgent bytes.
// The result is not trustworthy, because the client chooses the header.
func Browser(userAgent string) string {
	said := strings.TrimSpace(userAgent[:min(len(userAgent), maxAgent)])
	if !strings.HasPrefix(said, "Mozilla/") {
		name, _, _ := strings.Cut(said, " ")
		return name
	}
	for _, b := range browsers {
		_, rest, found := strings.Cut(said, " "+b[0])
		if !found || b[1] == "Safari" && !strings.Contains(rest, "Safari/") {
			continue
		}
		name := b[1]
		if version := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]; version != "" {
			name += " " + version
		}
		for _, s := range systems {
			if strings.Contains(said, s[0]) {
				return name + " on " + s[1]
			}
		}
		return name
	}
	return said
}
