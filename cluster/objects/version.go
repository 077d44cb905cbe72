package objects

import (
	"context"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// shown returns a version as clients see it. In a bucket that has or had versioning, a version
// that was made without versioning gets the id "null".
func shown(b *state.Bucket, obj state.Object) state.Object {
	if b.Versioning != state.Unversioned && !obj.Versioned {
		obj.ID = state.NullVersion
	}
	return obj
}

// made returns a new version as clients see it. r is the result of the command that made it, with
// the time of creation and the kind of version.
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

// SetVersioning enables versioning of a bucket (state.Versioned), or suspends it
// (state.Suspended). Errors: state.ErrNoBucket, state.ErrInvalid.
func (o *Objects) SetVersioning(ctx context.Context, a state.AccountID, bucket string, to state.Versioning) error {
	return wrap("set versioning", o.change(ctx, a, bucket, func(b state.Bucket) state.Command {
		return &state.SetVersioning{Account: a, Bucket: bucket, Born: b.Born, Versioning: to}
	}))
}

// Versions returns one page of a bucket's versions and delete markers. Errors: state.ErrNoBucket.
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

// Doomed names what to delete: the object with a key, or one version of the key if ID is not
// empty.
type Doomed struct {
	Key string
	ID  state.VersionID // "" means no id
}

// Deleted is the result of a deletion. In a bucket without versioning only Missed is set.
type Deleted struct {
	Versioned bool            // the bucket has versioning, or had it before
	ID        state.VersionID // id of the deleted version, even if it did not exist, or of the new delete marker
	Marker    bool            // a delete marker was made or deleted
	Missed    bool            // in a bucket without versioning, the current version has another id than ID
}

// Delete deletes an object, or the version id of it if id is not "". It does so only if the
// current version, or the version id, meets the conditions in c. A missing key is no error,
// unless c requires that the key exists. In a bucket with versioning, the deletion of an object
// only adds a delete marker; the deletion of a version is permanent.
//
// Errors: state.ErrNoBucket; state.ErrPrecondition; state.ErrNoKey if c requires the key, unless
// c.AbsentOK; in a bucket without versioning state.ErrNoVersion if the object has another id.
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

// DeleteMany deletes up to state.MaxDeleteKeys objects and versions in one command. It returns
// the result of each, in the same order.
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

// knows returns whether all members understand the condition, by the feature level of the
// cluster. It returns true if the level cannot be read, because Apply checks again.
func (o *Objects) knows(c *state.Condition) bool {
	level, err := o.level()
	return err != nil || level >= c.FeatureLevel()
}

// level returns the feature level of the cluster in the local state.
func (o *Objects) level() (state.FeatureLevel, error) {
	view, release := o.opts.State.LocalView()
	defer release()
	return view.FeatureLevel()
}

// deleted converts one result of Apply. id is the version that was to be deleted, or "", and
// marker the id for a new delete marker.
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
