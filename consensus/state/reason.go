package state

import (
	"fmt"
	"slices"
	"strings"
)

// remarkBegin and remarkEnd enclose a remark about an origin in a reason. All pins of the
// content show the rest of the reason; an account sees remarks about its own origins only.
const (
	remarkBegin = "\x02"
	remarkEnd   = "\x03"
)

// ReasonOf returns the reason that a copy stores: text, which every account with a pin of
// the content may read, followed by the remarks, which only pins with that origin show. A
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

// OwnReason returns reason without the remarks about origins that are not in origins. A
// remark without an end mark, because the reason was truncated, ends with the reason.
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

// closed returns reason with an end mark added if truncation removed that of the last remark.
func closed(reason string) string {
	if strings.LastIndex(reason, remarkBegin) > strings.LastIndex(reason, remarkEnd) {
		reason += remarkEnd
	}
	return reason
}

// maxNamedNodes is the largest number of nodes that a failure names for one reason.
const maxNamedNodes = 4

// failure joins the reasons of all nodes into one sentence. It contains each reason once, with
// the nodes that gave it. If the reasons are too long, all of them are shortened and none is
// left out.
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

// nodesText names up to maxNamedNodes nodes by short ids.
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

// cutText cuts a text to the given number of bytes, at the end of a character.
func cutText(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
