package web

import "strings"

// CSVText returns a text for a field of comma-separated values. Spreadsheets run a text that begins
// with one of the characters =, +, -, @, tab or carriage return as a formula, so CSVText puts an
// apostrophe before it. Numbers need no such care, because a field with a number is only a number.
func CSVText(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
