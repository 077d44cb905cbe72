package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// ErrOtherKeys reports that nothing was found, and that the identity opens none of the encrypted objects
// of the bucket. The name of an index depends on the identity, so without this error the files of another
// identity would look like an empty folder.
var ErrOtherKeys = errors.New("encrypted for other keys")

// maxProbes is the largest number of objects of a bucket whose headers othersOnly reads.
const maxProbes = 100

// errOurs ends the search of othersOnly.
var errOurs = errors.New("the identity opens an object")

// othersOnly returns an error that wraps ErrOtherKeys if the bucket has encrypted objects and the
// identity of the Vault opens none of the first maxProbes. It returns nil for a recipient, for a
// bucket without encrypted objects, and if the identity has an index of the whole bucket. Any other
// error is that of a request.
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

// opens returns errOurs if the identity opens the data key of an object, seal.ErrWrongKey if the
// object is encrypted for another key, and nil if the object is gone or not of a known format.
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

// missing is err, with the error of othersOnly in it if the reason may be a wrong identity.
func (v *Vault) missing(ctx context.Context, err error) error {
	if other := v.othersOnly(ctx); errors.Is(other, ErrOtherKeys) {
		return fmt.Errorf("%w: %w", err, other)
	}
	return err
}
