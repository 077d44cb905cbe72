package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
)

// pinner is the part of operator that commands on pins use. It is served by the node on this machine,
// or by a cluster for the account of a key.
type pinner interface {
	AddPin(ctx context.Context, user string, p client.Pin) (client.PinStatus, error)
	Pin(ctx context.Context, user, id string) (client.PinStatus, error)
	Pins(ctx context.Context, user string, f client.PinFilter) iter.Seq2[client.PinStatus, error]
	RemovePin(ctx context.Context, user, id string) error
	WaitPin(ctx context.Context, user, id string, seen func(client.PinStatus)) (client.PinStatus, error)
}

// place is where a command on pins or content works: on the node of this machine, or on a cluster.
type place struct {
	pinner

	node    operator        // nil for a cluster
	cluster *gateway.Client // nil for the node
}

// close ends the use of the place.
func (p place) close() {
	if p.cluster != nil {
		p.cluster.Close()
	}
}

// remoteNames are the flags that choose a cluster.
var remoteNames = []string{"profile", "endpoint", "token"}

// placeHelp is the part of help texts about the place.
const placeHelp = placeAlone + `
Pinned content is public: everybody who knows its CID can read it.`

// placeAlone is placeHelp for commands that pin nothing.
const placeAlone = `With --profile, --endpoint or --token the command works on a cluster, with the
rights of an API key, and with --data on the node of this machine. Without them
it works on the node if HOLDFAST_DATA is set or the default data folder exists,
and otherwise on the cluster that the environment or the default profile names.`

// placeOf returns the place that the command line and the environment choose. user is the value of --user,
// which only a node on this machine takes. The caller closes the place.
func (a *app) placeOf(cmd *cobra.Command, r *remote, user string) (place, error) {
	remote, err := a.choosesCluster(cmd)
	if err != nil {
		return place{}, err
	}
	if !remote {
		a.chosen = true
		o, err := a.operator()
		return place{pinner: o, node: o}, err
	}
	if user != "" {
		return place{}, usagef("%s: --user is for the node on this machine: on a cluster a key belongs to one account", called(cmd))
	}
	p, err := a.remoteSettings(r)
	if err != nil {
		return place{}, err
	}
	if len(p.Endpoints) > 0 && p.Token == "" && p.AccessKey != "" {
		return place{}, usagef("%s: there is only the access key of a key, and this needs its token: set HOLDFAST_TOKEN, or add token to the profile", called(cmd))
	}
	c, err := a.clusterOf(cmd, p)
	if err != nil {
		return place{}, err
	}
	return place{pinner: clusterPins{c}, cluster: c}, nil
}

// choosesCluster returns whether a command works on a cluster and not on the node of this machine. The
// flags decide. Without them it is the node if HOLDFAST_DATA is set or the default data folder exists,
// so that an operator whose environment also has a key of a cluster gets what the node has. Otherwise
// it is the cluster that the environment or the default profile names, if there is one.
func (a *app) choosesCluster(cmd *cobra.Command) (bool, error) {
	for _, name := range remoteNames {
		switch {
		case !cmd.Flags().Changed(name):
		case a.data != "":
			return false, usagef("%s: --data names the node on this machine, and --%s a cluster: give one of them", called(cmd), name)
		default:
			return true, nil
		}
	}
	if a.data != "" || config.HasDataDir(a.environ) {
		return false, nil
	}
	if folder, err := a.folder(); err == nil {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
	}
	p, err := config.ClientProfile("", a.environ)
	if errors.Is(err, config.ErrProfile) {
		err = usagef("%v", err)
	}
	return err == nil && len(p.Endpoints) > 0, err
}

// hintPlace adds to the error of a command that has found no data folder how it works without one.
func (a *app) hintPlace(err error) error {
	if errors.Is(err, client.ErrNoFolder) && a.chosen {
		return fmt.Errorf("%w, or a cluster with --profile or --endpoint", err)
	}
	return err
}

// openContent opens a file or a folder by its CID, which may have a path after a slash.
func (p place) openContent(ctx context.Context, user, text string) (client.Opened, error) {
	if p.cluster == nil {
		return p.node.OpenFileOrFolder(ctx, user, text)
	}
	c, err := p.cluster.OpenContent(ctx, text)
	if err != nil {
		return client.Opened{}, pinError(clusterError(ctx, err))
	}
	return client.Opened{Body: c, Size: c.Size, Folder: c.Folder}, nil
}

// exportCAR opens the DAG of a CID as a CAR.
func (p place) exportCAR(ctx context.Context, user, cid string) (io.ReadCloser, error) {
	if p.cluster == nil {
		return p.node.ExportCAR(ctx, user, cid)
	}
	c, err := p.cluster.OpenCAR(ctx, cid)
	if err != nil {
		return nil, pinError(clusterError(ctx, err))
	}
	return c, nil
}

// clusterPins are the pins of the account of a key. The parameter user of its methods is empty.
type clusterPins struct{ *gateway.Client }

// pinError converts an error of a request for pins or content. A node of a cluster answers 400 to words
// that are wrong, as the node on this machine does.
func pinError(err error) error {
	if refused := new(gateway.Error); errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
		return usagef("%v", err)
	}
	return err
}

// AddPin implements pinner.
func (c clusterPins) AddPin(ctx context.Context, _ string, p client.Pin) (client.PinStatus, error) {
	s, err := c.Client.AddPin(ctx, p)
	return s, pinError(err)
}

// Pin implements pinner.
func (c clusterPins) Pin(ctx context.Context, _, id string) (client.PinStatus, error) {
	s, err := c.Client.Pin(ctx, id)
	return s, pinError(err)
}

// Pins implements pinner.
func (c clusterPins) Pins(ctx context.Context, _ string, f client.PinFilter) iter.Seq2[client.PinStatus, error] {
	return func(yield func(client.PinStatus, error) bool) {
		for s, err := range c.Client.Pins(ctx, f) {
			if !yield(s, pinError(err)) {
				return
			}
		}
	}
}

// RemovePin implements pinner.
func (c clusterPins) RemovePin(ctx context.Context, _, id string) error {
	return pinError(c.Client.RemovePin(ctx, id))
}

// WaitPin implements pinner.
func (c clusterPins) WaitPin(ctx context.Context, _, id string, seen func(client.PinStatus)) (client.PinStatus, error) {
	s, err := c.Client.WaitPin(ctx, id, seen)
	return s, pinError(err)
}
