//go:build faults

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Shape of the tests of objects on full disks.
const (
	fullObjects = 20
	fullBytes   = 2 << 20 // of an object, and of a part
	bodyBytes   = 100 << 20
	cutAfter    = 40 << 20 // of a body, when the disk fills
)

// onFullDisks are the settings of nodes whose disks of 320 MiB are to be full.
var onFullDisks = []string{"HOLDFAST_STORAGE_RESERVE=72MiB", "HOLDFAST_STORAGE_SEGMENT_SIZE=4MiB", "HOLDFAST_S3_MIN_PART_SIZE=1MiB"}

// TestFullDataVolumesRefuseNewObjectsAndNothingElse promises that nodes whose disks of blocks have no byte left
// refuse new objects, and still read, copy and delete what they have (A9 for objects).
func TestFullDataVolumesRefuseNewObjectsAndNothingElse(t *testing.T) {
	t.Parallel()
	c, disks := onVolumes(t, "blocks", 320, onFullDisks...)
	b := newBucket(t, c)
	var data [][]byte
	for i := range fullObjects {
		data = append(data, harness.BytesOf(uint64(i), fullBytes))
		b.ok(t, i, http.MethodPut, fmt.Sprintf("o/%02d", i), data[i])
	}
	upload := b.begin(t, 0, "upload")
	b.ok(t, 1, http.MethodPut, "upload"+upload+"&partNumber=1", data[0])
	b.ok(t, 2, http.MethodPut, "upload"+upload+"&partNumber=2", data[1])
	other := b.begin(t, 1, "other")
	b.ok(t, 2, http.MethodPut, "other"+other+"&partNumber=1", data[2])
	copied(t, c)
	kept := b.snapshot(t)
	for _, left := range []int64{32 * mib, 0} { // half of the reserve; then the ballast has to do
		for _, d := range disks {
			if err := d.fill(left); err != nil {
				t.Fatal(err)
			}
		}
		fullness(t, c, true)
		if left == 0 {
			tight(t, c)
		}
		b.refusesNew(t, upload)
		b.unchanged(t, kept)
		for i := range 6 {
			b.reads(t, fmt.Sprintf("o/%02d", i), data[i])
		}
		b.movesNothing(t)
		b.unchanged(t, kept)
	}
	b.ok(t, 1, http.MethodDelete, "other"+other, nil)
	collected(t, c, func() {
		for i := fullObjects / 2; i < fullObjects; i++ {
			b.ok(t, i, http.MethodDelete, fmt.Sprintf("o/%02d", i), nil)
		}
	})
	for _, d := range disks {
		if err := os.Remove(d.filler()); err != nil {
			t.Fatal(err)
		}
	}
	fullness(t, c, false)
	for i := range c.Nodes {
		b.ok(t, i, http.MethodPut, fmt.Sprintf("new/%d", i), data[i])
	}
	b.ok(t, 0, http.MethodPost, "upload"+upload, harness.CompletionOf(data[0], data[1]))
	b.reads(t, "upload", append(bytes.Clone(data[0]), data[1]...))
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}

// refusesNew tries to store new content in every way, through every node.
func (b *bucket) refusesNew(t *testing.T, upload string) {
	t.Helper()
	for i, n := range b.Nodes {
		for what, size := range map[string]int{"a small PUT": 1000, "a PUT": fullBytes} {
			body := harness.BytesOf(uint64(1000+i), size)
			a, err := b.ask(t.Context(), n, http.MethodPut, "o/00", bytes.NewReader(body), int64(size))
			noRoom(t, what, a, err)
			a, err = b.ask(t.Context(), n, http.MethodPut, "upload"+upload+"&partNumber=2", bytes.NewReader(body), int64(size))
			noRoom(t, what+" of a part", a, err)
			kind, text := form("o/00", body)
			a, err = b.ask(t.Context(), n, http.MethodPost, "", bytes.NewReader(text), int64(len(text)), "Content-Type", kind)
			noRoom(t, what+" by a form", a, err)
		}
		a, err := b.ask(t.Context(), n, http.MethodPut, "upload"+upload+"&partNumber=3", http.NoBody, 0,
			"X-Amz-Copy-Source", b.path+"/o/03", "X-Amz-Copy-Source-Range", "bytes=1-1000000")
		noRoom(t, "a copy of a range to a part, which is stored anew", a, err)
		a, err = b.ask(t.Context(), n, http.MethodPost, "upload?uploads", http.NoBody, 0)
		noRoom(t, "beginning an upload", a, err)
		a, err = b.ask(t.Context(), n, http.MethodPost, "upload"+upload, bytes.NewReader(harness.CompletionOf(harness.BytesOf(0, fullBytes), harness.BytesOf(1, fullBytes))), -1)
		noRoom(t, "completing an upload, which makes a node above its parts", a, err)
	}
}

// movesNothing changes what needs no blocks, and changes it back.
func (b *bucket) movesNothing(t *testing.T) {
	t.Helper()
	for i := range b.Nodes {
		b.ok(t, i, http.MethodPut, "copy", nil, "X-Amz-Copy-Source", b.path+"/o/05")
		b.ok(t, i+1, http.MethodHead, "copy", nil)
		b.ok(t, i, http.MethodPut, "copy?tagging", []byte("<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"))
		if got := b.ok(t, i+2, http.MethodGet, "?list-type=2&prefix=copy", nil); !strings.Contains(string(got.Body), "<KeyCount>1</KeyCount>") {
			t.Errorf("a copy is not listed: %s", got.Body)
		}
		b.ok(t, i+1, http.MethodDelete, "copy", nil)
	}
}

// copied waits until every node has all copies.
func copied(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, healWithin, "all nodes have all copies", func() (bool, error) {
		for _, n := range c.Nodes {
			m := n.Metrics()
			if short := m["holdfast_roots_under_replicated"]; short != 0 {
				return false, fmt.Errorf("%s knows of %g roots with too few copies", n.Name, short)
			}
			if m["holdfast_blocks_stored"] != c.Nodes[0].Metrics()["holdfast_blocks_stored"] {
				return false, fmt.Errorf("%s has another number of blocks", n.Name)
			}
		}
		return true, nil
	})
}

// tight waits until the disk of the blocks of every node has less than half of its
// reserve, with which the ballasts have gone.
func tight(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, healWithin, "the ballasts go", func() (bool, error) {
		for _, n := range c.Nodes {
			if got := n.Metrics()[`holdfast_volume_level{folder="blocks"}`]; got != 2 {
				return false, fmt.Errorf("the metric of %s says %g", n.Name, got)
			}
		}
		return true, nil
	})
}

// pausing is a body of which a part is sent before something is done.
type pausing struct {
	data  []byte
	at    int
	after int
	do    func()
}

func (p *pausing) Read(b []byte) (int, error) {
	if p.at >= p.after && p.do != nil {
		p.do()
		p.do = nil
	}
	if p.at == len(p.data) {
		return 0, io.EOF
	}
	n := copy(b, p.data[p.at:min(len(p.data), p.at+mib)])
	p.at += n
	return n, nil
}

// TestADiskThatFillsUnderABody promises that a body is stored if the disk of one of three nodes fills while it comes,
// and is refused without a trace if two do. The body has 100 MiB. The node that was full gets its copy when it has
// room. In short, one case of each.
func TestADiskThatFillsUnderABody(t *testing.T) {
	longForm(t)
	t.Parallel()
	c, disks := onVolumes(t, "blocks", 420, onFullDisks...)
	b := newBucket(t, c)
	old := harness.BytesOf(1, fullBytes)
	for _, tc := range []struct {
		name   string
		full   []int // the body comes to node 0
		stored bool
		short  bool
	}{
		{"the receiver", []int{0}, true, false},
		{"one that keeps a copy", []int{1}, true, true},
		{"both that keep a copy", []int{1, 2}, false, false},
		{"the receiver and another", []int{0, 1}, false, true},
	} {
		if !tc.short && !*long {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			key := "body"
			b.ok(t, 0, http.MethodPut, key, old)
			copied(t, c)
			kept := b.snapshot(t)
			var rooms []func()
			data := harness.BytesOf(2, bodyBytes)
			body := &pausing{data: data, after: cutAfter, do: func() {
				for _, i := range tc.full {
					if err := disks[i].fill(0); err != nil { // the ballast is left, which is less than what comes
						t.Error(err)
					}
					rooms = append(rooms, func() {
						if err := os.Remove(disks[i].filler()); err != nil {
							t.Error(err)
						}
					})
				}
			}}
			began := time.Now()
			a, err := b.ask(t.Context(), c.Nodes[0], http.MethodPut, key, body, bodyBytes)
			t.Logf("answered after %s", time.Since(began).Round(time.Millisecond))
			if tc.stored {
				if err != nil || a.Status != http.StatusOK {
					t.Errorf("%d %s, %v", a.Status, a.Body, err)
				}
				b.reads(t, key, data)
			} else {
				noRoom(t, "a body", a, err)
				b.unchanged(t, kept)
				b.reads(t, key, old)
			}
			for _, room := range rooms {
				room()
			}
			if len(rooms) != len(tc.full) {
				t.Fatal("the disks were not filled")
			}
			began = time.Now()
			fullness(t, c, false)
			copied(t, c)
			t.Logf("all copies are there %s after there was room", time.Since(began).Round(time.Millisecond))
			// That a disk was full for a moment may be told after it has room again.
			harness.Eventually(t, healWithin, "the body is stored", func() (bool, error) {
				a, err := b.ask(t.Context(), c.Nodes[0], http.MethodPut, key, bytes.NewReader(data), bodyBytes)
				return err == nil && a.Status == http.StatusOK, errors.Join(err, fmt.Errorf("%d %s", a.Status, a.Body))
			})
			b.reads(t, key, data)
			b.ok(t, 1, http.MethodDelete, key, nil)
			harness.Eventually(t, healWithin, "nothing is left", func() (bool, error) {
				for _, n := range c.Nodes {
					if left := n.Metrics()["holdfast_blocks_stored"]; left != 0 {
						return false, fmt.Errorf("%s has %g blocks", n.Name, left)
					}
				}
				return true, nil
			})
		})
	}
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}
