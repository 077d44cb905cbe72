package web

import "strings"

// maxAgent is how many bytes of the User-Agent header are read.
const maxAgent = 512

// browsers are the products by which browsers are known, and the names of the browsers. A browser
// also names older ones that it is like, so the first product that is there decides.
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

// systems are words by which systems are known, and the names of the systems, in the same way.
var systems = [...][2]string{
	{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"CrOS", "ChromeOS"}, {"Windows", "Windows"}, {"Macintosh", "macOS"}, {"Linux", "Linux"},
}

// Browser returns a short name of the program that sends a User-Agent header, such as "Firefox 140 on
// Linux", or "curl/8.5.0". Of an unknown browser it returns the header. The result is what the client
// says, and may be any text.
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
