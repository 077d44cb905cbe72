package s3

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// known returns a version as the bucket calls it.
func (b *fakeBucket) known(o state.Object) state.Object {
	if b.Versioning != state.Unversioned && !o.Versioned {
		o.ID = state.NullVersion
	}
	return o
}

// named tells whether a version goes by an id.
func named(o *state.Object, id state.VersionID) bool {
	return o.ID == id || id == state.NullVersion && !o.Versioned
}

// add makes an object, or a delete marker, the newest version of its key.
func (b *fakeBucket) add(o state.Object) state.Object {
	o.Versioned = b.Versioning == state.Versioned
	old, there := b.objects[o.Key]
	if there && b.Versioning != state.Unversioned && (o.Versioned || old.Versioned) {
		b.old[o.Key] = slices.Insert(b.old[o.Key], 0, old)
	}
	if b.Versioning == state.Suspended {
		b.old[o.Key] = slices.DeleteFunc(b.old[o.Key], func(v state.Object) bool { return !v.Versioned })
	}
	if b.objects[o.Key] = o; o.Marker {
		delete(b.objects, o.Key)
		b.old[o.Key] = slices.Insert(b.old[o.Key], 0, o)
	}
	return b.known(o)
}

// drop removes one version for good.
func (b *fakeBucket) drop(key string, id state.VersionID) (gone state.Object, found bool) {
	if o, ok := b.objects[key]; ok && named(&o, id) {
		gone, found = o, true
		delete(b.objects, key)
	} else if i := slices.IndexFunc(b.old[key], func(o state.Object) bool { return named(&o, id) }); i >= 0 {
		gone, found = b.old[key][i], true
		b.old[key] = slices.Delete(b.old[key], i, i+1)
	}
	if _, there := b.objects[key]; !there && len(b.old[key]) > 0 && !b.old[key][0].Marker {
		b.objects[key], b.old[key] = b.old[key][0], b.old[key][1:]
	}
	return gone, found
}

// version returns the version of a key with an id, or for "" the newest.
func (b *fakeBucket) version(key string, id state.VersionID) (state.Object, error) {
	o, there := b.objects[key]
	all := b.old[key]
	if there {
		all = append([]state.Object{o}, all...)
	}
	if len(all) == 0 && id == "" {
		return o, fmt.Errorf("fake: %w", state.ErrNoKey)
	}
	for _, v := range all {
		if id == "" || named(&v, id) {
			return b.known(v), nil
		}
	}
	return state.Object{}, fmt.Errorf("fake: %w", state.ErrNoVersion)
}

// remove returns what Delete does.
func (f *fake) remove(b *fakeBucket, key string, id state.VersionID) (d objects.Deleted) {
	d.Versioned = b.Versioning != state.Unversioned
	_, there := b.objects[key]
	switch {
	case id != "":
		gone, found := b.drop(key, id)
		d.Marker, d.Missed = gone.Marker, !found && there && !d.Versioned
		if d.Versioned || d.Missed {
			d.ID = id
		}
	case d.Versioned:
		m := b.add(state.Object{ID: state.VersionID("marker-" + fmt.Sprint(f.ticks)), Key: key, Created: f.tick(), Marker: true})
		d.ID, d.Marker = m.ID, true
	default:
		delete(b.objects, key)
	}
	return d
}

func (f *fake) SetVersioning(ctx context.Context, a state.AccountID, bucket string, to state.Versioning) error {
	if err := objects.CheckAuth(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err == nil {
		b.Versioning = to
	}
	return err
}

// Versions pages through all of them: it has no prefixes but those of keys before it.
func (f *fake) Versions(_ context.Context, a state.AccountID, bucket string, q state.VersionsQuery) (p state.VersionsPage, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, bucket)
	if err != nil {
		return p, err
	}
	keys := map[string]bool{}
	for k := range b.objects {
		keys[k] = true
	}
	for k, old := range b.old {
		keys[k] = len(old) > 0 || keys[k]
	}
	maps.DeleteFunc(keys, func(k string, there bool) bool { return !there || !strings.HasPrefix(k, q.Prefix) })
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		up := ""
		if at := strings.Index(k[len(q.Prefix):], q.Delimiter); q.Delimiter != "" && at >= 0 {
			up = k[:len(q.Prefix)+at+len(q.Delimiter)]
		}
		if up != "" {
			if k <= q.AfterKey || up == q.AfterKey || slices.Contains(p.Prefixes, up) {
				continue
			}
			if p.Truncated = len(p.Versions)+len(p.Prefixes) == q.Limit; p.Truncated {
				return p, nil
			}
			p.Prefixes = append(p.Prefixes, up)
			p.NextKey, p.NextID = up, ""
			continue
		}
		all := b.old[k]
		if o, there := b.objects[k]; there {
			all = append([]state.Object{o}, all...)
		}
		behind := k > q.AfterKey
		for i, o := range all {
			if behind {
				if p.Truncated = len(p.Versions)+len(p.Prefixes) == q.Limit; p.Truncated {
					return p, nil
				}
				o = b.known(o)
				p.Versions, p.Latest = append(p.Versions, o), append(p.Latest, i == 0)
				p.NextKey, p.NextID = o.Key, o.ID
			}
			behind = behind || k == q.AfterKey && named(&o, q.AfterID)
		}
	}
	p.NextKey, p.NextID = "", ""
	return p, nil
}

func (f *fake) BucketTags(_ context.Context, a state.AccountID, name string) ([]state.Tag, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, name)
	if err != nil {
		return nil, err
	}
	return b.tags, nil
}

func (f *fake) SetBucketTags(ctx context.Context, a state.AccountID, name string, tags []state.Tag) error {
	if err := objects.CheckAuth(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := f.bucket(a, name)
	if err == nil {
		b.tags = tags
	}
	return err
}
