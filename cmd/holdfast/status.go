package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster as this node sees it",
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
			if asJSON {
				s.Node.Admin, s.Node.TLS = "", false // scripts know the fields of old, and may refuse others
				return a.printJSON(s)
			}
			writeStatus(a.stdout, paletteOf(a.stdout, a.environ), s)
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// writeStatus is status for people.
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
		{"pinning", link(s.Node.Pinning, "", s.Node.TLS)},
		{"s3", link(s.Node.S3, "", s.Node.TLS)},
		{"console", link(s.Node.Console, "", s.Node.TLS)},
		{"metrics", link(s.Node.Admin, "/metrics", false)},
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
	writePeers(w, p, s.Peers, s.Node.ID)
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

// count is a count of pins in a state, painted when there are any.
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

// writePeers is the members for people; own is marked.
func writePeers(w io.Writer, p palette, peers []client.Peer, own string) {
	t := table{
		head:   []string{"", "NAME", "ROLE", "STATE", "PINS", "USED", "FREE", "QUEUE", "VERSION", "ID"},
		right:  []int{4, 5, 6, 7},
		states: 3,
	}
	for _, peer := range peers {
		mark := ""
		if peer.ID == own && own != "" {
			mark = "*"
		}
		free := humanBytes(peer.FreeBytes)
		if peer.Full {
			free += " full"
		}
		t.add(mark, peer.Name, peer.Role, peer.State, strconv.FormatUint(peer.Pins, 10),
			humanBytes(peer.UsedBytes), free, strconv.Itoa(peer.Queue), peer.Version, peer.ID)
	}
	t.write(w, p)
}

// idTail is how many characters at the end of an id tell nodes apart.
const idTail = 6

func tail(id string) string { return id[max(0, len(id)-idTail):] }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
