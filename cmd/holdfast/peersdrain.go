package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

func (a *app) peersDrainCommand() *cobra.Command {
	var (
		cancel, wait bool
		r            *removal
	)
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move the content of a member to the others",
		Long: `Drains a member of the cluster, given by its id or its name: it gets no new
content, and the cluster moves its content to other members. A copy leaves the
member only when enough others hold it. The member stays in the cluster, votes
and serves as before; holdfast peers rm removes it afterwards. On a terminal
the command asks first.

The drain goes on after the command has ended; status shows the member as
draining. With --wait the command ends when the member holds nothing any more,
and can be interrupted and started again; meanwhile it prints how much content
is left, the rate of the last minute and the time left. --json has the same
under "drain". --cancel ends a drain: the member is
given content again.`,
		Example: `  holdfast peers drain node3 --wait
  holdfast peers drain node3 --cancel`,
		Args: arguments("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cancel && wait {
				return usagef("%s: give --cancel or --wait, not both", called(cmd))
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			plan, err := o.DrainPlan(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !cancel {
				if err := a.confirm(cmd.Context(), r, drains(&plan)...); err != nil {
					return err
				}
			}
			if err := o.DrainPeer(cmd.Context(), plan.ID, !cancel); err != nil {
				return err
			}
			if wait {
				if plan, err = a.waitDrained(cmd.Context(), o, plan.ID); err != nil {
					return err
				}
			}
			return a.did(r.json, plan, "%s", drainText(&plan, cancel, wait))
		},
	}
	r = removalFlags(cmd)
	cmd.Flags().BoolVar(&cancel, "cancel", false, "end the drain: the member is given content again")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the member holds nothing any more")
	return cmd
}

// drains returns lines of text that describe the effect of draining a member.
func drains(p *client.DrainPlan) []string {
	lines := []string{
		fmt.Sprintf("This drains member %s (%s): %s, %s.", nameOf(&p.Peer), p.ID, p.Role, p.State),
		fmt.Sprintf("It holds %s, %s in all. %s keep content then and have %s free.",
			pluralOf(p.Roots, "root"), humanBytes(p.UsedBytes), plural(p.Others, "other member"), humanBytes(p.OthersFree)),
	}
	if p.CopiesThen < p.Copies {
		lines = append(lines, fmt.Sprintf("Copies of each content without it: %d instead of %d.", p.CopiesThen, p.Copies))
	}
	if p.Tight {
		lines = append(lines, "The others may have too little room: the drain then stops until they have more.")
	}
	return lines
}

// drainText returns the message of the command at its end. cancelled and waited are its flags
// --cancel and --wait.
func drainText(p *client.DrainPlan, cancelled, waited bool) string {
	name := fmt.Sprintf("member %s (%s)", nameOf(&p.Peer), p.ID)
	switch {
	case cancelled:
		return name + " is given content again"
	case waited:
		return fmt.Sprintf("drained %s: it holds nothing any more; holdfast peers rm %s removes it", name, p.ID)
	}
	return fmt.Sprintf("draining %s: %s move to the other members; holdfast peers drain %s --wait waits for the end", name, pluralOf(p.Roots, "root"), p.ID)
}

// drainLeft returns a progress message for a drain: how much content is still on the member, at
// which rate it moves away, and how much time is left.
func drainLeft(p *client.DrainPlan) string {
	text := fmt.Sprintf("%s left on %s", pluralOf(p.Roots, "root"), nameOf(&p.Peer))
	d := p.Drain
	if d == nil {
		return text // a node of an older release
	}
	if d.BytesLeft != nil {
		text = fmt.Sprintf("%s, %s left on %s", pluralOf(p.Roots, "root"), humanBytes(*d.BytesLeft), nameOf(&p.Peer))
	}
	switch {
	case d.RootsPerMinute == nil:
		return text + "; the rate is not known yet"
	case *d.RootsPerMinute == 0:
		return text + "; none left it in the last minute, so the time is not known"
	}
	text += fmt.Sprintf("; %s a minute", pluralOf(uint64(math.Ceil(*d.RootsPerMinute)), "root"))
	if *d.BytesPerMinute > 0 {
		text += fmt.Sprintf(", %s/s", humanBytes(uint64(*d.BytesPerMinute/60)))
	}
	if d.SecondsLeft == nil {
		return text + "; the time left is not known"
	}
	return text + "; " + humanTime(time.Duration(*d.SecondsLeft)*time.Second) + " left"
}

const (
	drainPoll = time.Second      // interval at which waitDrained requests the state of a drain
	drainTold = 10 * time.Second // interval of its progress messages
)

// waitDrained waits until the member id stores no content, and prints progress messages. The
// drain continues if ctx ends.
func (a *app) waitDrained(ctx context.Context, o operator, id string) (plan client.DrainPlan, err error) {
	ticker := time.NewTicker(drainPoll)
	defer ticker.Stop()
	var told time.Time
	for {
		if plan, err = o.DrainPlan(ctx, id); err != nil {
			return plan, err
		}
		if plan.Roots == 0 {
			return plan, nil
		}
		if now := time.Now(); now.Sub(told) >= drainTold {
			told = now
			a.say(a.stderr, "%s\n", drainLeft(&plan))
		}
		select {
		case <-ctx.Done():
			return plan, fmt.Errorf("the drain goes on, the wait for it ended: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}
