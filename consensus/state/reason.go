package state

import (
	"fmt"
	"slices"
	"strings"
)

// A remark about an origin stands in a reason between these two. Pins share the reason without
// remarks, so an account sees remarks about its own origins only.
const (
	remarkBegin = "\x02"
	remarkEnd   = "\x03"
)

// ReasonOf is the reason of a copy: a text for all whose pins name the content, and
// remarks, each an origin, ": " and what is to be said of it.
func ReasonOf(text string, remarks []string) string {
	var b strings.Builder
	b.WriteString(printable(text))
	for _, r := range remarks {
		b.WriteString(remarkBegin + "; " + printable(r) + remarkEnd)
	}
	return b.String()
}

// printable has a space for each control character.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// OwnReason is the part of a reason that may be told of a pin with these origins: all
// but the remarks about others. A remark that was cut ends with the text.
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

// closed ends the remark that a cut has left open.
func closed(reason string) string {
	if strings.LastIndex(reason, remarkBegin) > strings.LastIndex(reason, remarkEnd) {
		reason += remarkEnd
	}
	return reason
}

// maxNamedNodes is how many nodes are named for one reason.
const maxNamedNodes = 4

// failure puts the reasons of all nodes into one sentence, each reason once and with
// the nodes that gave it. None is left out: where they are too long, all are cut.
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

// nodesText names nodes, shortly and not more than maxNamedNodes.
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

// cutText cuts a text to so many bytes, between characters.
func cutText(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
