package objects

import (
	"context"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// shown returns a version as clients see it: the null version of a bucket that has or had
// versioning gets that name.
func shown(b *state.Bucket, obj state.Object) state.Object {
	if b.Versioning != state.Unversioned && !obj.Versioned {
		obj.ID = state.NullVersion
	}
	return obj
}

// made returns a version as clients see it, by the result of the command that made it.
func made(r *state.Result, obj state.Object) state.Object {
	obj.Created = r.Created
	if len(r.Deeds) == 0 {
		return obj
	}
	if obj.Versioned = r.Deeds[0] == state.MadeVersion; !obj.Versioned {
		obj.ID = state.NullVersion
	}
	return obj
}

// SetVersioning makes a bucket keep versions (state.Versioned), or makes it stop keeping new
// versions (state.Suspended). Errors: state.ErrNoBucket, state.ErrInvalid.
func (o *Objects) SetVersioning(ctx context.Context, a state.AccountID, bucket string, to state.Versioning) error {
	return wrap("set versioning", o.change(ctx, a, bucket, func(b state.Bucket) state.Command {
		return &state.SetVersioning{Account: a, Bucket: bucket, Born: b.Born, Versioning: to}
	}))
}

// Versions returns one page of a bucket's versions and delete markers.
func (o *Objects) Versions(ctx context.Context, a state.AccountID, bucket string, q state.VersionsQuery) (page state.VersionsPage, err error) {
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		page, err = v.Versions(&b, q)
		for i := range page.Versions {
			page.Versions[i] = shown(&b, page.Versions[i])
		}
		if page.NextID != "" { // it is the last one's
			page.NextID = page.Versions[len(page.Versions)-1].ID
		}
		return err
	})
	return page, err
}

// Doomed names what is to be deleted: the object with a key, or one version of the key if ID is not empty.
type Doomed struct {
	Key string
	ID  state.VersionID // "" means no id
}

// Deleted is the result of a deletion. In a bucket without versioning only Missed is set.
type Deleted struct {
	Versioned bool            // the bucket has versioning, or had it before
	ID        state.VersionID // id of the version that was to be deleted, or of the delete marker that was made
	Marker    bool            // the version is or was a delete marker
	Missed    bool            // in a bucket without versioning, the current version has another id than ID
}

// Delete removes an object if its current version meets the conditions of c, or the version
// with an id if that version meets them. A missing key is no error, unless c requires the key.
// In a bucket that keeps versions, an object gets a delete marker; deleting a version removes
// it for good.
//
// Errors: state.ErrNoBucket, state.ErrPrecondition, state.ErrNoKey unless c.AbsentOK, and
// state.ErrNoVersion in a bucket without versioning.
func (o *Objects) Delete(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, c state.Condition) (Deleted, error) {
	all, err := o.delete(ctx, a, bucket, []Doomed{{key, id}}, c)
	if err != nil {
		return Deleted{}, err
	}
	if all[0].Missed {
		return Deleted{}, state.ErrNoVersion
	}
	return all[0], nil
}

// DeleteMany deletes up to state.MaxDeleteKeys objects and versions in one change and
// returns the result of each.
func (o *Objects) DeleteMany(ctx context.Context, a state.AccountID, bucket string, all []Doomed) ([]Deleted, error) {
	return o.delete(ctx, a, bucket, all, state.Condition{})
}

func (o *Objects) delete(ctx context.Context, a state.AccountID, bucket string, all []Doomed, c state.Condition) ([]Deleted, error) {
	if c.AbsentOK && len(c.Match) > 0 && !o.knows(&c) {
		c.AbsentOK = false // as the releases did that do not know it
	}
	cmd := state.DeleteObjects{Account: a, Bucket: bucket, Marker: state.VersionID(o.opts.NewID()), Created: o.now(), If: c}
	for i, d := range all {
		cmd.Keys = append(cmd.Keys, d.Key)
		if d.ID != "" && cmd.IDs == nil {
			cmd.IDs = make([]state.VersionID, len(all))
		}
		if d.ID != "" {
			cmd.IDs[i] = d.ID
		}
	}
	result, err := o.changed(ctx, a, bucket, func(b state.Bucket) state.Command {
		once := cmd
		once.Born = b.Born
		return &once
	})
	if err != nil {
		return nil, fmt.Errorf("delete objects: %w", err)
	}
	became := make([]Deleted, len(all))
	for i := range result.Deeds {
		became[i] = deleted(result.Deeds[i], all[i].ID, cmd.Marker)
	}
	return became, nil
}

// knows returns true if all members understand a condition. If the feature level cannot be read
// it returns true, because the proposal checks again.
func (o *Objects) knows(c *state.Condition) bool {
	level, err := o.level()
	return err != nil || level >= c.FeatureLevel()
}

// level returns the feature level of the cluster as far as this node knows.
func (o *Objects) level() (state.FeatureLevel, error) {
	view, release := o.opts.State.LocalView()
	defer release()
	return view.FeatureLevel()
}

// deleted converts the result of Apply for a version with an id or for a delete marker.
func deleted(deed state.Deed, id, marker state.VersionID) Deleted {
	switch deed {
	case state.MadeMarker:
		return Deleted{Versioned: true, ID: marker, Marker: true}
	case state.MadeNullMarker:
		return Deleted{Versioned: true, ID: state.NullVersion, Marker: true}
	case state.RemovedMarker:
		return Deleted{Versioned: true, ID: id, Marker: true}
	case state.RemovedVersion, state.FoundNoVersion:
		return Deleted{Versioned: true, ID: id}
	case state.MissedVersion:
		return Deleted{ID: id, Missed: true}
	}
	return Deleted{}
}
