package pins

import (
	"maps"
	"slices"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// object puts content of 4,096 bytes into a bucket of Alice's; the nodes n4 and n5 hold
// it.
func (w *world) object(t *testing.T, bucket string, public bool, text string) {
	t.Helper()
	view, release := w.state.LocalView()
	b, err := view.Bucket(alice, bucket)
	release()
	if err != nil {
		b = w.state.NewBucket(t, alice, bucket, public)
	}
	c, err := cid.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	w.state.Apply(t, &state.PutObject{
		Account: alice, Bucket: bucket, Born: b.Born,
		Object: state.Object{ID: state.VersionID("v" + text[len(text)-8:]), Key: text, Root: state.RootOf(c), Size: 4000, Created: 5, ETag: "e"},
		Content: state.Content{
			Root: state.RootOf(c), Bytes: 4096, Blocks: 1, Nodes: []state.NodeID{"n4", "n5"}, Held: []state.Holding{{Node: "n4"}, {Node: "n5"}},
		},
	})
}

// told returns what a record says of its content.
func told(r Record) string {
	return r.Status.String() + " " + r.Info[InfoDetails] + " " + r.Info[InfoSize]
}

// The answer to a pin of content in a private bucket is the answer for content that nobody has, also to the bucket's
// owner.
func TestAnAcceptedPinTellsNothingOfPrivateObjects(t *testing.T) {
	// The same pins in a world where the content is in a bucket, and in one where
	// nobody has it.
	private, none := newWorld(t, clustertest.Setup{}), newWorld(t, clustertest.Setup{})
	for _, text := range []string{raw("a"), raw("b"), raw("c"), raw("d")} {
		private.object(t, "bucket", false, text)
		for _, account := range []state.AccountID{bob, alice} {
			var got [2]Record
			for i, w := range []*world{private, none} {
				got[i] = w.create(t, account, text)
				if err := w.Delete(t.Context(), account, got[i].ID); err != nil {
					t.Fatal(err)
				}
			}
			if !maps.Equal(got[0].Info, got[1].Info) || !slices.Equal(got[0].Delegates, got[1].Delegates) {
				t.Errorf("%s is told %v %v, without the object %v %v", account, got[0].Info, got[0].Delegates, got[1].Info, got[1].Delegates)
			}
		}
		// Replacing tells as little.
		var got [2]Record
		for i, w := range []*world{private, none} {
			old := w.create(t, bob, v0)
			var err error
			if got[i], err = w.Replace(t.Context(), bob, old.ID, Request{CID: text}); err != nil {
				t.Fatal(err)
			}
			if err := w.Delete(t.Context(), bob, got[i].ID); err != nil {
				t.Fatal(err)
			}
		}
		if !maps.Equal(got[0].Info, got[1].Info) || !slices.Equal(got[0].Delegates, got[1].Delegates) {
			t.Errorf("replaced: %v %v, without the object %v %v", got[0].Info, got[0].Delegates, got[1].Info, got[1].Delegates)
		}
	}
}

// The answer to a pin says at once where content is kept that is in a public bucket or pinned by anybody.
func TestAnAcceptedPinTellsOfContentThatIsShared(t *testing.T) {
	const here = "queued kept on 2 of 2 nodes 4096"
	w := newWorld(t, clustertest.Setup{})
	w.object(t, "shop", true, raw("public"))
	if got := told(w.create(t, bob, raw("public"))); got != here {
		t.Errorf("of a public bucket: %s", got)
	}
	w.object(t, "bucket", false, raw("pinned"))
	first := w.create(t, alice, raw("pinned"))
	if got := told(first); got == here {
		t.Errorf("of a private bucket: %s", got)
	}
	if got := told(w.get(t, alice, first.ID)); got != "pinned  4096" {
		t.Errorf("the pin is %s", got)
	}
	if got := told(w.create(t, bob, raw("pinned"))); got != here {
		t.Errorf("that somebody has pinned: %s", got)
	}
}
