package state

import (
	"fmt"
	"slices"
	"strings"
)

// remarkBegin and remarkEnd enclose, in a stored failure reason, a remark about an origin. All
// pins of the content show the rest of the reason; an account sees only remarks about origins of
// its own pins.
const (
	remarkBegin = "\x02"
	remarkEnd   = "\x03"
)

// ReasonOf returns the failure reason to store: text, which every account with a pin of the
// content may read, followed by the remarks, each of which only pins with that origin show. A
// remark has the form "origin: message". Control characters become spaces.
func ReasonOf(text string, remarks []string) string {
	var b strings.Builder
	b.WriteString(printable(text))
	for _, r := range remarks {
		b.WriteString(remarkBegin + "; " + printable(r) + remarkEnd)
	}
	return b.String()
}

// printable returns text with each control character replaced by a space.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// OwnReason returns a stored reason without the remarks about origins that are not in origins,
// for a pin with these origins. If the reason was truncated within a remark, the remark extends
// to the end.
func OwnReason(reason string, origins []string) string {
	var b strings.Builder
	for {
		text, rest, found := strings.Cut(reason, remarkBegin)
		b.WriteString(text)
		if !found {
			return b.String()
		}
		remark, after, _ := strings.Cut(rest, remarkEnd)
		if slices.ContainsFunc(origins, func(o string) bool { return strings.HasPrefix(remark, "; "+printable(o)+": ") }) {
			b.WriteString(remark)
		}
		reason = after
	}
}

// closed returns reason, and appends remarkEnd if truncation has removed that of the last remark.
func closed(reason string) string {
	if strings.LastIndex(reason, remarkBegin) > strings.LastIndex(reason, remarkEnd) {
		reason += remarkEnd
	}
	return reason
}

// maxNamedNodes is the largest number of nodes that a failure message names for one reason.
const maxNamedNodes = 4

// failure joins the reasons of all copies of a root into one message. It contains each reason
// once, preceded by the nodes that gave it. If the message would be too long, it shortens all
// reasons and omits none.
func failure(root *Root) string {
	var reasons []string
	nodes := map[string][]NodeID{}
	for _, c := range root.Copies {
		if c.Reason == "" {
			continue
		}
		if len(nodes[c.Reason]) == 0 {
			reasons = append(reasons, c.Reason)
		}
		nodes[c.Reason] = append(nodes[c.Reason], c.Node)
	}
	share := MaxReasonLen / max(len(reasons), 1)
	whole := make([]string, len(reasons))
	for i, reason := range reasons {
		whole[i] = nodesText(nodes[reason]) + ": " + closed(reason)
	}
	text := strings.Join(whole, "; ")
	if len(text) <= MaxReasonLen {
		return text
	}
	for i := range whole {
		whole[i] = closed(cutText(whole[i], share-len("; ")-len(remarkEnd)))
	}
	return strings.Join(whole, "; ")
}

// nodesText returns a text that names up to maxNamedNodes nodes by their short ids.
func nodesText(nodes []NodeID) string {
	text := "node "
	if len(nodes) > 1 {
		text = "nodes "
	}
	for i, n := range nodes {
		switch {
		case i == maxNamedNodes:
			return text + fmt.Sprintf(" and %d more", len(nodes)-i)
		case i > 0:
			text += ", "
		}
		text += n.Short()
	}
	return text
}

// cutText returns at most the first most bytes of a text, without splitting a UTF-8 character.
func cutText(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
