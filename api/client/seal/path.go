package seal

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// maxPath is the maximum length of a path in bytes. It is also the limit of S3 for keys.
const maxPath = 1024

// CleanPath returns p without dot segments, double slashes and a trailing slash. The error is
// [ErrPath] if p is not absolute, not UTF-8 or too long. It is [ErrPathEscape] if p leads above
// the root, or contains a backslash or a percent escape of a dot, slash, backslash, percent sign
// or NUL, which a server may decode.
func CleanPath(p string) (string, error) {
	if !strings.HasPrefix(p, "/") || len(p) > maxPath || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("%w: %.64q", ErrPath, p)
	}
	if what := hidden(p); what != "" {
		return "", fmt.Errorf("%w: %.64q has %s", ErrPathEscape, p, what)
	}
	depth := 0
	for segment := range strings.SplitSeq(p, "/") {
		switch segment {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return "", fmt.Errorf("%w: %.64q", ErrPathEscape, p)
			}
		default:
			depth++
		}
	}
	return path.Clean(p), nil
}

// hidden returns the first sequence in p that a server or a file system may interpret as a
// separator, a dot or the end of the path, or "" if there is none.
func hidden(p string) string {
	lower := strings.ToLower(p)
	for _, part := range []string{"%2e", "%2f", "%5c", "%25", "%00"} {
		if strings.Contains(lower, part) {
			return part
		}
	}
	if strings.Contains(p, `\`) {
		return "a backslash"
	}
	return ""
}

// CheckPath returns an error unless a new object may have the path p. The error is [ErrPath] if p
// is the root, not absolute or not in its shortest form. It is [ErrPathUnreadable] if recipients
// of a share would reject p, that is if [CleanPath] would. [New] calls CheckPath. A caller that
// reads or sends content before New should call it first.
func CheckPath(p string) error {
	if err := checkPath(p); err != nil {
		return err
	}
	if what := hidden(p); what != "" {
		return fmt.Errorf("%w: it has %s", ErrPathUnreadable, what)
	}
	return nil
}

// within returns the part of p below folder, and false if p is not in folder. Both paths must be
// clean. They are compared by whole segments.
func within(folder, p string) (string, bool) {
	if folder == "/" || p == folder {
		return strings.TrimPrefix(p, folder), true
	}
	return strings.CutPrefix(p, folder+"/")
}

// checkPath returns [ErrPath] if the path of an object is the root, not absolute or not in its
// shortest form, so that each object has only one path and one storage key. Unlike CheckPath it
// accepts paths that recipients reject, because the owner must be able to read and remove such an
// object.
func checkPath(p string) error {
	if p == "/" {
		return fmt.Errorf("%w: it is the root", ErrPath)
	}
	return checkFolder(p)
}

// checkFolder returns [ErrPath] if the path of a folder is not absolute or not in its shortest
// form. The root is allowed.
func checkFolder(p string) error {
	if !strings.HasPrefix(p, "/") || len(p) > maxPath || !utf8.ValidString(p) || strings.ContainsRune(p, 0) || path.Clean(p) != p {
		return fmt.Errorf("%w: %.64q", ErrPath, p)
	}
	return nil
}

// isSegment reports whether name is one segment of a clean path.
func isSegment(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// parent returns the folder of a clean path.
func parent(p string) string { return path.Dir(p) }
