package seal

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// maxPath is the largest path in bytes, which is also the bound of S3 for keys.
const maxPath = 1024

// CleanPath returns path without dot segments, double slashes and a slash at the end. The error is
// [ErrPath] if path is not absolute. The error is [ErrPathEscape] if path leaves the root, or hides
// a dot, slash or backslash in a percent escape, which a server may decode.
func CleanPath(p string) (string, error) {
	if !strings.HasPrefix(p, "/") || len(p) > maxPath || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("%w: %.64q", ErrPath, p)
	}
	lower := strings.ToLower(p)
	for _, hidden := range []string{"%2e", "%2f", "%5c", "%25", "%00"} {
		if strings.Contains(lower, hidden) {
			return "", fmt.Errorf("%w: %.64q has %s", ErrPathEscape, p, hidden)
		}
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
			if strings.Contains(segment, `\`) {
				return "", fmt.Errorf("%w: %.64q has a backslash", ErrPathEscape, p)
			}
			depth++
		}
	}
	return path.Clean(p), nil
}

// within returns the part of p below folder, and false if p is not in folder. Both paths are clean,
// and are compared by whole segments.
func within(folder, p string) (string, bool) {
	if folder == "/" || p == folder {
		return strings.TrimPrefix(p, folder), true
	}
	return strings.CutPrefix(p, folder+"/")
}

// checkPath returns [ErrPath] if the path of an object is not absolute or not in its shortest form,
// so that each object has only one path and one storage key.
func checkPath(p string) error {
	if p == "/" {
		return fmt.Errorf("%w: it is the root", ErrPath)
	}
	return checkFolder(p)
}

// checkFolder returns [ErrPath] if the path of a folder is not absolute or not in its shortest
// form. Unlike the path of an object, the path of a folder may be the root.
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
