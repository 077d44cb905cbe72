package main

import (
	"context"
	"errors"
	"path"
	"strings"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/holdfast-ipfs/holdfast/api/client/seal"
	"github.com/spf13/cobra"
)

// openPlain runs the command share open for a link to files that are not encrypted. args has DIR or
// FILE, or nothing.
func (a *app) openPlain(cmd *cobra.Command, r *remote, plan *openPlan, text string, args []string) error {
	link, err := seal.ParsePlainLink(text)
	switch {
	case err != nil:
		return usagef("%s: this is no whole link: %v", called(cmd), err)
	case plan.from != "":
		return usagef("%s: --from: the files of this link are not encrypted, so no identity has signed it", called(cmd))
	case len(plan.put)+len(plan.rm) > 0:
		return usagef("%s: this link permits only reading", called(cmd))
	}
	c, err := a.clusterOfLink(cmd, r, link.Access, link.Endpoints)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, at := cmd.Context(), s3Target{link.Bucket, link.Place}
	folder := strings.HasSuffix(link.Place, "/")
	if len(args) == 0 {
		err = a.listPlain(ctx, c, at, folder, plan.json)
	} else {
		err = a.fetchShared(cmd, c, nil, at, folder, args[0], plan.json)
	}
	if errors.Is(err, gateway.ErrDenied) {
		err = errRevoked
	}
	return clusterError(ctx, err)
}

// listPlain prints the object of a link, or the objects of its folder.
func (a *app) listPlain(ctx context.Context, c *gateway.Client, at s3Target, folder, asJSON bool) error {
	all := sharedList{Bucket: at.bucket, Path: "/" + strings.TrimSuffix(at.key, "/"), Read: true, Files: []sharedFile{}}
	const empty = "The shared folder is empty."
	if !folder {
		o, err := c.Head(ctx, at.bucket, at.key)
		if err != nil {
			return err
		}
		all.Files = append(all.Files, sharedFile{path.Base(o.Key), o.Size, o.Modified})
		return a.printShared(&all, asJSON, empty)
	}
	for o, err := range c.List(ctx, at.bucket, gateway.ListOptions{Prefix: at.key, Recursive: true}) {
		if err != nil {
			return err
		}
		if name := strings.TrimPrefix(o.Key, at.key); name != "" { // otherwise the folder itself
			all.Files = append(all.Files, sharedFile{name, o.Size, o.Modified})
		}
	}
	return a.printShared(&all, asJSON, empty)
}
