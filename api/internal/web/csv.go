package web

import "strings"

// CSVText makes a text safe as a field of a CSV file. A spreadsheet evaluates a field that begins
// with =, +, -, @, tab or carriage return as a formula, so CSVText puts an apostrophe before such
// a text. Do not use it for numbers, which may begin with a minus sign.
func CSVText(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
