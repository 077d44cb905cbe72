package s3

import (
	"errors"
	"net/http"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const (
	// maxDelete is the maximum size of the body of DeleteObjects in bytes, as in Amazon S3.
	maxDelete = 2 << 20
	// deletesOfOne is how many deleted objects count as one request against the account's rate.
	// The number follows from a measurement: a change that deletes 1,000 objects takes 20 to 74 ms
	// of processor time, and a single DELETE 1.4 ms.
	deletesOfOne = 20
	// deletesAtOnce is how many conditional deletions of one request run at the same time.
	deletesAtOnce = 16
)

// deleteObjects answers DeleteObjects: it deletes up to state.MaxDeleteKeys objects and versions.
// One change deletes all objects without a condition, or none of them.
func (s *surface) deleteObjects(w http.ResponseWriter, r *request) error {
	body, err := s.readSmall(w, r, maxDelete)
	if err != nil {
		return err
	}
	all, quiet, err := readDelete(body, state.MaxDeleteKeys)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return malformed("there is no Object")
	}
	became := make([]outcome, len(all))
	var plain []objects.Doomed
	var at []int // indexes in all
	changes := 0
	for i, d := range all {
		became[i].err = d.check()
		switch {
		case became[i].err != nil:
		case !r.mayDelete(d.key, d.version):
			became[i].err = errorf(AccessDenied, "the share does not cover the key, or the version")
		case d.conditional():
			changes++
		default:
			plain, at = append(plain, objects.Doomed{Key: d.key, ID: state.VersionID(d.version)}), append(at, i)
		}
	}
	s.limits.Owed(r.account(), changes+len(plain)/deletesOfOne-1)
	ctx, cancel := r.soon()
	defer cancel()
	var gone []objects.Deleted
	if len(plain) > 0 {
		gone, err = s.objects.DeleteMany(ctx, r.account(), r.bucket, plain)
	} else {
		_, err = s.objects.Bucket(ctx, r.account(), r.bucket)
	}
	if err != nil {
		return err
	}
	for i, g := range gone {
		if became[at[i]].Deleted = g; g.Missed {
			became[at[i]].err = state.ErrNoVersion
		}
	}
	s.deleteMatched(r, all, became)
	return s.sendDeleted(w, all, became, quiet)
}

// deleteMatched deletes those objects in all that have a condition, and stores the results in
// became at the same indexes. Each deletion is a separate change with its own time limit; up to
// deletesAtOnce run at the same time. After one that the cluster did not answer, the remaining
// ones fail without a proposal.
func (s *surface) deleteMatched(r *request, all []doomed, became []outcome) {
	var silent atomic.Pointer[error]
	var group errgroup.Group
	group.SetLimit(deletesAtOnce)
	for i, d := range all {
		if became[i].err != nil || !d.conditional() {
			continue
		}
		group.Go(func() error {
			if err := silent.Load(); err != nil {
				became[i].err = *err
				return nil
			}
			c, err := d.condition()
			if err != nil {
				became[i].err = err
				return nil
			}
			ctx, cancel := r.soon()
			defer cancel()
			gone, err := s.objects.Delete(ctx, r.account(), r.bucket, d.key, state.VersionID(d.version), c)
			if errors.Is(err, state.ErrUnavailable) {
				silent.Store(&err)
			}
			became[i] = outcome{gone, err}
			return nil
		})
	}
	_ = group.Wait() // the errors are in became
}

// outcome is the result of one Object element of DeleteObjects.
type outcome struct {
	objects.Deleted
	err error
}

func (s *surface) sendDeleted(w http.ResponseWriter, all []doomed, became []outcome, quiet bool) error {
	x := newXML()
	x.root("DeleteResult")
	for i, d := range all {
		switch {
		case became[i].err != nil:
			e := s.answer(became[i].err)
			x.begin("Error")
			x.text("Key", d.key)
			if d.version != "" {
				x.text("VersionId", d.version)
			}
			x.text("Code", string(e.Code))
			x.text("Message", e.Message)
			x.end("Error")
		case !quiet:
			x.begin("Deleted")
			x.text("Key", d.key)
			if d.version != "" {
				x.text("VersionId", d.version)
			}
			if became[i].Marker {
				x.truth("DeleteMarker", true)
				x.text("DeleteMarkerVersionId", string(became[i].ID))
			}
			x.end("Deleted")
		}
	}
	x.end("DeleteResult")
	return x.send(w, http.StatusOK)
}
