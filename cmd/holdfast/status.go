package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster as this node sees it",
		Long: `Shows the cluster as this node sees it. In the table an asterisk marks this
node, and the role "leader" marks the leader. Exit code 1 means that the
cluster cannot write, because no majority of its voters answers. The command
prints the status in that case too.`,
		Example: `  holdfast status --data ~/node1
  holdfast status --json`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			s, err := o.Status(cmd.Context())
			if err != nil {
				return err
			}
			q, err := quorumOf(cmd.Context(), o, &s)
			if err != nil {
				return err
			}
			if asJSON {
				s.Node.Admin, s.Node.TLS = "", false // scripts may reject fields that are not in the contract
				if err := a.printJSON(s); err != nil {
					return err
				}
			} else {
				writeStatus(a.stdout, paletteOf(a.stdout, a.environ), s)
				writeVotes(a.stdout, paletteOf(a.stdout, a.environ), &q)
			}
			if !q.Writable {
				return fmt.Errorf("the cluster cannot write: %s", q.Why)
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// quorumOf returns the quorum that the node reports. A node of an older release cannot report it;
// quorumOf then calls the cluster writable if s has a leader.
func quorumOf(ctx context.Context, o operator, s *client.Status) (client.Quorum, error) {
	q, err := o.Quorum(ctx)
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return client.Quorum{Writable: s.Leader != "", Why: "no leader is known"}, nil
	}
	return q, err
}

// writeVotes prints a line if the cluster cannot write or has a warning about its votes, and
// nothing otherwise.
func writeVotes(w io.Writer, p palette, q *client.Quorum) {
	switch {
	case !q.Writable:
		_, _ = fmt.Fprintf(w, "%s  %s\n", p.red("cannot write"), printable(q.Why))
	case q.Warning != "":
		_, _ = fmt.Fprintf(w, "%s  %s\n", p.yellow("warning"), q.Warning)
	}
}

// writeStatus prints the status of the cluster for users.
func writeStatus(w io.Writer, p palette, s client.Status) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
	leader := p.red("no leader")
	for _, peer := range s.Peers {
		if peer.ID == s.Leader && peer.ID != "" {
			leader = "leader " + peer.Name + " (…" + tail(peer.ID) + ")"
		}
	}
	say("%s %s  %s, %s, index %d\n", p.bold("cluster"), s.ClusterID, plural(len(s.Peers), "member"), leader, s.Index)
	say("%s    %s  %s\n", p.bold("node"), s.Node.Name, s.Node.ID)
	for _, row := range [][2]string{
		{"pinning", link(shown(s.Node.Pinning), "", s.Node.TLS)},
		{"s3", link(shown(s.Node.S3), "", s.Node.TLS)},
		{"console", link(shown(s.Node.Console), "", s.Node.TLS)},
		{"paid", link(shown(s.Node.Paid), "", s.Node.TLS)},
		{"gateway", link(shown(s.Node.Gateway), "", s.Node.TLS)},
		{"metrics", link(shown(s.Node.Admin), "/metrics", false)},
	} {
		if row[1] != "" {
			say("  %s  %s\n", p.dim(pad(row[0], 7)), row[1])
		}
	}
	for _, addr := range s.Node.Addrs {
		say("  %s  %s\n", p.dim("public "), addr)
	}
	for _, addr := range s.Node.ClusterAddrs {
		say("  %s  %s\n", p.dim("cluster"), addr)
	}
	say("\n")
	writePeers(w, p, &s)
	for _, peer := range s.Peers {
		if peer.Quarantine != "" {
			say("\n%s  %s (…%s) neither votes nor serves: %s\n", p.red("quarantine"), peer.Name, tail(peer.ID), peer.Quarantine)
		}
	}
	say("\n%s    %d queued, %d pinning, %s, %s", p.bold("pins"), s.Pins.Queued, s.Pins.Pinning,
		p.count("pinned", s.Pins.Pinned), p.count("failed", s.Pins.Failed))
	if s.Pins.UnderReplicated > 0 {
		say("; %s with too few copies", p.yellow(strconv.FormatUint(s.Pins.UnderReplicated, 10)))
	}
	say("\n")
}

// count returns a number of pins with the name of their state. It colours pinned and failed
// unless the number is 0.
func (p palette) count(name string, n uint64) string {
	text := strconv.FormatUint(n, 10) + " " + name
	switch {
	case n > 0 && name == "pinned":
		return p.green(text)
	case n > 0 && name == "failed":
		return p.red(text)
	}
	return text
}

// unknown is the text in the table of members for a value that the member has not reported yet.
const unknown = "-"

// writePeers prints a table of the members. An asterisk marks this node, and the role leader
// marks the leader.
func writePeers(w io.Writer, p palette, s *client.Status) {
	t := table{
		head:   []string{"", "NAME", "ROLE", "STATE", "PINS", "USED", "FREE", "QUEUE", "VERSION", "ID"},
		right:  []int{4, 5, 6, 7},
		states: 3,
	}
	for _, peer := range s.Peers {
		mark := ""
		if peer.ID == s.Node.ID && peer.ID != "" {
			mark = "*"
		}
		role := peer.Role
		if peer.ID == s.Leader && peer.ID != "" {
			role = "leader" // every leader is a voter
		}
		used, free, queue := sizeFor(w, peer.UsedBytes), sizeFor(w, peer.FreeBytes), strconv.Itoa(peer.Queue)
		switch {
		case peer.Full:
			free += " full"
		case peer.FreeBytes == 0: // a member that has reported a disk without free bytes is full
			used, free, queue = unknown, unknown, unknown
		}
		pins := strconv.FormatUint(peer.Pins, 10)
		if peer.PinsPartial {
			pins = "≥" + pins
		}
		t.add(mark, printable(peer.Name), role, peer.State, pins,
			used, free, queue, peer.Version, peer.ID)
	}
	t.write(w, p)
}

// idTail is the number of characters at the end of a node id that status shows. They are enough
// to distinguish nodes.
const idTail = 6

func tail(id string) string { return id[max(0, len(id)-idTail):] }

func plural(n int, what string) string { return pluralOf(uint64(n), what) }

// pluralOf returns n and the noun what, with an s unless n is 1, such as "1,024 pins".
func pluralOf(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

// thousands formats n with a comma between groups of three digits.
func thousands(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
