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

// hidden returns the first part of p that a server or a file system may take for a separator, a dot
// or the end of a path, and "" if p has none.
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

// CheckPath returns an error unless a writer may store an object under p, so that a recipient of a
// share can read each object: [CleanPath] returns such a path as it is. The error is [ErrPath] if p
// is the root, not absolute or not in its shortest form, and [ErrPathUnreadable] if a recipient
// would refuse p. [New] calls CheckPath; a caller that first reads or sends content calls it before.
func CheckPath(p string) error {
	if err := checkPath(p); err != nil {
		return err
	}
	if what := hidden(p); what != "" {
		return fmt.Errorf("%w: it has %s", ErrPathUnreadable, what)
	}
	return nil
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
// so that each object has only one path and one storage key. Unlike CheckPath, checkPath accepts the
// paths that a recipient refuses: its owner reads and removes an object that has such a path.
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
