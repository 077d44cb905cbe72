package consensus

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// blind is a reader that reads nothing.
type blind struct{ state.Reader }

// The members that a view has at hand are those that it would read, whatever is
// changed meanwhile.
func TestMembersAtHandAreThoseOfTheView(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		node := c.follower()
		look := func() (unlike error) {
			snapshot := node.opts.Store.View()
			defer snapshot.Close()
			index, err := readApplied(snapshot)
			if err != nil {
				return err
			}
			got, err := node.fsm.view(snapshot, index).Nodes()
			if err != nil {
				return err
			}
			want, err := state.NewView(snapshot, index).Nodes()
			if err == nil && !reflect.DeepEqual(got, want) {
				err = fmt.Errorf("at %d the members are %v, want %v", index, got, want)
			}
			return err
		}
		done := make(chan struct{})
		var looking sync.WaitGroup
		looking.Go(func() {
			for moved := true; moved; {
				_, change := node.fsm.progress.changed()
				if err := look(); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-change:
				case <-done:
					moved = false
				}
			}
		})
		view, release := node.LocalView()
		own, err := view.Node(node.id)
		release()
		if err != nil {
			t.Error(err)
		}
		for i := range 50 {
			own.Name = fmt.Sprintf("name %d", i)
			if _, err := node.Propose(t.Context(), &state.UpdateNode{Node: own}); err != nil {
				t.Error(err)
			}
			if _, err := node.Propose(t.Context(), pin(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		}
		close(done)
		looking.Wait()
		if err := look(); err != nil {
			t.Error(err)
		}
		// They cost no read.
		at := node.fsm.view(blind{}, node.Applied())
		if got, err := at.Node(node.id); err != nil || got.Name != "name 49" {
			t.Errorf("the node is %q, %v", got.Name, err)
		}
		if cl, err := at.Cluster(); err != nil || cl.ID == "" {
			t.Errorf("the cluster is %q, %v", cl.ID, err)
		}
	})
}
