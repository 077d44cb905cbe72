package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// ErrOtherKeys means that an operation found no files, and that the identity opens none of the
// encrypted objects in the bucket. The name of an index depends on the identity. So without this
// error, the files of another identity would look like an empty folder.
var ErrOtherKeys = errors.New("encrypted for other keys")

// maxProbes is the maximum number of objects whose headers othersOnly reads.
const maxProbes = 100

// errOurs ends the search of othersOnly, because the identity opens an object.
var errOurs = errors.New("the identity opens an object")

// othersOnly returns an error that wraps ErrOtherKeys if the bucket has encrypted objects, the
// identity of the Vault opens none of the first maxProbes, and it has no index of the whole
// bucket. In all other cases, and for the Vault of a recipient, it returns nil or the error of a
// request.
func (v *Vault) othersOnly(ctx context.Context) error {
	if v.identity == nil {
		return nil
	}
	var keys []string
	for o, err := range v.client.List(ctx, v.bucket, ListOptions{Prefix: filePrefix, Recursive: true}) {
		if err != nil {
			return err
		}
		if keys = append(keys, o.Key); len(keys) > maxProbes {
			break
		}
	}
	var mu sync.Mutex // guards others
	others := 0
	probing, stop := errgroup.WithContext(ctx)
	probing.SetLimit(rewrapParallel)
	for _, key := range keys[:min(len(keys), maxProbes)] {
		probing.Go(func() error {
			err := v.opens(stop, key)
			if errors.Is(err, seal.ErrWrongKey) {
				mu.Lock()
				others++
				mu.Unlock()
				return nil
			}
			return err
		})
	}
	err := probing.Wait()
	if errors.Is(err, errOurs) || err == nil && others == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if own, err := v.List(ctx, ""); err != nil || len(own) > 0 { // its objects may be behind the first maxProbes
		return err
	}
	count := fmt.Sprint(others)
	if len(keys) > maxProbes {
		count += " or more"
	}
	return fmt.Errorf("%s objects in s3://%s are %w, and this identity opens none of them", count, v.bucket, ErrOtherKeys)
}

// opens returns errOurs if the identity opens the data key of the object, and seal.ErrWrongKey if
// the object is encrypted for another key. It returns nil if the object does not exist or has an
// unknown format.
func (v *Vault) opens(ctx context.Context, key string) error {
	object, err := v.client.Head(ctx, v.bucket, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	header, err := headerOf(&object)
	if err == nil {
		_, err = seal.Open(v.identity, header, key, seal.Options{})
	}
	switch {
	case err == nil:
		return errOurs
	case errors.Is(err, seal.ErrWrongKey):
		return err
	}
	return nil
}

// missing returns err, which reports that something was not found. If the cause may be a wrong
// identity, it adds the error of othersOnly.
func (v *Vault) missing(ctx context.Context, err error) error {
	if other := v.othersOnly(ctx); errors.Is(other, ErrOtherKeys) {
		return fmt.Errorf("%w: %w", err, other)
	}
	return err
}
