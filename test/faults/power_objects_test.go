//go:build faults

package faults

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Objects that are put until the power goes: some are one block, some go past the page
// cache, some are uploads of two parts.
const (
	powerObjects     = 120 // acknowledged before it goes
	powerObjectsLong = 250
	powerPart        = 1<<20 + 1
	powerDisk        = 1536 // MiB of a disk; images are sparse
)

var powerSizes = []int{0, 3_000, 70_000, 1_300_000, 2_500_000, 4 << 20}

// shelf is objects that several writers put, and what they were told.
type shelf struct {
	*bucket

	// mu guards the fields below.
	mu     sync.Mutex
	acked  map[string]uint64 // key to the seed of its bytes
	unsure map[string]uint64
}

// bytesOf returns the bytes of an object: the last digits of the seed choose the size.
func bytesOf(seed uint64) []byte {
	return harness.BytesOf(seed, powerSizes[seed%uint64(len(powerSizes))])
}

// write puts one object after the other through all nodes, until ctx ends.
func (s *shelf) write(ctx context.Context, writer int) error {
	for k := 0; ctx.Err() == nil; k++ {
		seed := uint64(writer)<<10 | uint64(k)
		key, n := fmt.Sprintf("w%d/%d", writer, k), s.Nodes[(writer+k)%len(s.Nodes)]
		s.mu.Lock()
		s.unsure[key] = seed
		s.mu.Unlock()
		var ok bool
		var err error
		if k%6 == 5 {
			ok, err = s.upload(ctx, n, key, seed)
		} else {
			data := bytesOf(seed)
			var a harness.Response
			a, err = s.ask(ctx, n, http.MethodPut, key, bytes.NewReader(data), int64(len(data)))
			ok = err == nil && a.Status == http.StatusOK
			if err == nil && a.Status/100 == 4 {
				return fmt.Errorf("put of %s: %d %s", key, a.Status, a.Body)
			}
		}
		if err != nil {
			return nil // the power has gone
		}
		if !ok {
			continue
		}
		s.mu.Lock()
		s.acked[key] = seed
		delete(s.unsure, key)
		s.mu.Unlock()
	}
	return nil
}

// upload puts the bytes of an object as two parts, if there are enough of them.
func (s *shelf) upload(ctx context.Context, n *harness.Node, key string, seed uint64) (bool, error) {
	data := bytesOf(seed)
	parts := [][]byte{data}
	if len(data) > powerPart {
		parts = [][]byte{data[:powerPart], data[powerPart:]}
	}
	begun, err := s.ask(ctx, n, http.MethodPost, key+"?uploads", nil, 0)
	if err != nil || begun.Status != http.StatusOK {
		return false, err
	}
	var up struct {
		UploadID string `xml:"UploadId"`
	}
	if err := xml.Unmarshal(begun.Body, &up); err != nil {
		return false, err
	}
	for i, p := range parts {
		query := fmt.Sprintf("?uploadId=%s&partNumber=%d", up.UploadID, i+1)
		if a, err := s.ask(ctx, n, http.MethodPut, key+query, bytes.NewReader(p), int64(len(p))); err != nil || a.Status != http.StatusOK {
			return false, err
		}
	}
	list := harness.CompletionOf(parts...)
	a, err := s.ask(ctx, n, http.MethodPost, key+"?uploadId="+up.UploadID, bytes.NewReader(list), int64(len(list)))
	return err == nil && a.Status == http.StatusOK && bytes.Contains(a.Body, []byte("<ETag>")), err
}

// TestEveryAcknowledgedObjectOutlivesThePowerOfAllNodes promises that every acknowledged object is whole after all
// processes were killed at once and their disks lost what was not flushed (A2 for objects). An object that was not
// acknowledged is there whole or not at all.
func TestEveryAcknowledgedObjectOutlivesThePowerOfAllNodes(t *testing.T) {
	t.Parallel()
	c, disks := onDisksOf(t, powerDisk, "HOLDFAST_STORAGE_RESERVE=72MiB", "HOLDFAST_STORAGE_SEGMENT_SIZE=16MiB", "HOLDFAST_S3_MIN_PART_SIZE=1MiB")
	s := &shelf{bucket: newBucket(t, c), acked: map[string]uint64{}, unsure: map[string]uint64{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers errgroup.Group
	for w := range clients {
		writers.Go(func() error { return s.write(ctx, w) })
	}
	wanted := powerObjects
	if *long {
		wanted = powerObjectsLong
	}
	harness.Eventually(t, healWithin, fmt.Sprintf("%d objects are acknowledged", wanted), func() (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.acked) >= wanted, fmt.Errorf("%d are", len(s.acked))
	})
	powerGoes(t, c, disks, func() error {
		cancel()
		return writers.Wait()
	})
	for _, n := range c.Nodes {
		n.Restart()
	}
	c.Settle()
	copied(t, c)
	large := 0
	for key, seed := range s.acked {
		data := bytesOf(seed)
		s.reads(t, key, data)
		if len(data) > 1<<20 {
			large++
		}
	}
	there := 0
	for key, seed := range s.unsure {
		a, err := s.ask(t.Context(), c.Nodes[there%len(c.Nodes)], http.MethodGet, key, nil, -1)
		switch {
		case err == nil && a.Status == http.StatusNotFound:
		case err == nil && a.Status == http.StatusOK && md5.Sum(a.Body) == md5.Sum(bytesOf(seed)):
			there++
		default:
			t.Errorf("%s, of which nothing was said: %d, %d bytes, %v", key, a.Status, len(a.Body), err)
		}
	}
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("%d acknowledged objects are whole on every node; of %d others %d are there, whole", len(s.acked), len(s.unsure), there)
	if large < wanted/4 {
		t.Errorf("only %d of them are large", large)
	}
}
