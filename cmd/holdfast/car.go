package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/spf13/cobra"
)

func (a *app) carCommand() *cobra.Command {
	return group("car", "Import and export CAR files", `  holdfast car import site.car
  holdfast car export bafybei... -o site.car`,
		a.carImportCommand(), a.carExportCommand())
}

func (a *app) carImportCommand() *cobra.Command {
	var (
		user, name string
		asJSON     bool
		r          *remote
	)
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import a CAR file, pin its roots, and print their CIDs",
		Long: `Imports the blocks of FILE, a CAR of version 1 or 2, through a node. The node
verifies each block against its CID. The command pins each root that the
header names, and waits until enough copies of each are durable. It writes the
CIDs of the roots, one a line, to standard output. With - as FILE it reads
standard input.

Nothing is pinned if the file is cut off or damaged, has a block of more than
2 MiB, names no root or more than 1,024, or does not have all blocks of a root.
Blocks that a member of the cluster has may be missing in the file. To let the
cluster get missing blocks from the IPFS network, use pin add. Blocks that
belong to no root are deleted later.

` + placeHelp,
		Example: `  holdfast car import site.car
  ipfs dag export bafybei... | holdfast car import - --user ann@example.org
  holdfast car import site.car --profile work`,
		Args: arguments(fileArgument),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.placeOf(cmd, r, user)
			if err != nil {
				return err
			}
			defer p.close()
			if name == "" && args[0] != "-" {
				name = filepath.Base(args[0])
			}
			if !utf8.ValidString(name) {
				return fmt.Errorf("the name of %q is not UTF-8: give the pins one with --name", args[0])
			}
			return a.importCAR(cmd.Context(), p, args[0], user, name, asJSON)
		},
	}
	r = a.remoteFlags(cmd)
	cmd.Flags().StringVar(&user, "user", "", "`email` of the account that gets the pins (default the operator's account)")
	cmd.Flags().StringVar(&name, "name", "", "`name` of the pins (default the name of the file)")
	jsonFlag(cmd, &asJSON)
	mustNotBeEmpty(cmd, "user")
	mustBeText(cmd, "user", "name")
	return cmd
}

// importedCAR is the output of car import --json.
type importedCAR struct {
	Roots  []importedRoot `json:"roots"`
	Blocks uint64         `json:"blocks"` // number of blocks in the file
	Bytes  uint64         `json:"bytes"`  // size of these blocks
}

type importedRoot struct {
	CID       string `json:"cid"`
	RequestID string `json:"requestid"`
	Status    string `json:"status"` // status of the pin
}

func (a *app) importCAR(ctx context.Context, p place, path, user, name string, asJSON bool) error {
	if info, err := os.Stat(path); path != "-" && err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: a CAR is a file", path)
	}
	var car client.CAR
	var pins []client.PinStatus // of its roots
	var err error
	if p.cluster != nil {
		car, pins, err = a.uploadCAR(ctx, p.cluster, path, name)
	} else {
		car, pins, err = a.importRoots(ctx, p.node, path, user, name)
	}
	if err != nil {
		return err
	}
	result := importedCAR{Blocks: car.Blocks, Bytes: car.Bytes}
	var failed error // of the first root that failed
	for i, pin := range pins {
		pin, err := a.waitPinned(ctx, p, user, pin)
		result.Roots = append(result.Roots, importedRoot{car.Roots[i], pin.RequestID, pin.Status})
		if err != nil && !errors.Is(err, errInterrupted) {
			err = fmt.Errorf("%s: %w", car.Roots[i], err)
		}
		if failed == nil {
			failed = err
		}
		if errors.Is(err, errInterrupted) {
			break
		}
		if err == nil && !asJSON {
			if err := a.did(false, nil, "%s", car.Roots[i]); err != nil {
				return err
			}
		}
	}
	if asJSON {
		return errors.Join(a.did(true, result, ""), failed)
	}
	return failed
}

// importRoots imports a CAR through the node, and pins its roots.
func (a *app) importRoots(ctx context.Context, o operator, path, user, name string) (car client.CAR, pins []client.PinStatus, err error) {
	in, size, done, err := a.input(ctx, path)
	if err != nil {
		return car, nil, err
	}
	defer done()
	bar := a.newBar(size, "importing")
	car, err = o.ImportCAR(ctx, user, io.TeeReader(in, bar))
	_ = bar.Finish() // it is only for the eye
	if err != nil {
		return car, nil, err
	}
	for _, root := range car.Roots {
		pin, err := o.AddPin(ctx, user, client.Pin{CID: root, Name: name})
		if err != nil {
			return car, nil, fmt.Errorf("%s is imported but not pinned, and %d of %d roots have pins: %w", root, len(pins), len(car.Roots), err)
		}
		pins = append(pins, pin)
	}
	return car, pins, nil
}

// uploadCAR uploads a CAR to a cluster, which pins its roots: all or none.
func (a *app) uploadCAR(ctx context.Context, c *gateway.Client, path, name string) (car client.CAR, pins []client.PinStatus, err error) {
	done, err := a.uploadFile(ctx, c, gateway.PinUpload{Type: gateway.TypeCAR, Name: name}, path)
	if err != nil {
		return car, nil, err
	}
	car = client.CAR{Blocks: done.Blocks, Bytes: done.Size}
	for _, pin := range done.Pins {
		car.Roots = append(car.Roots, pin.CID)
		pins = append(pins, uploadedPin(pin))
	}
	return car, pins, nil
}

func (a *app) carExportCommand() *cobra.Command {
	var output, user string
	var r *remote
	cmd := &cobra.Command{
		Use:   "export CID",
		Short: "Write a DAG as a CAR file",
		Long: `Writes all blocks below CID as a CAR of version 1 with this root. A node reads
the blocks from its own disk or from another member. CID can also have the form
/ipfs/CID or ipfs://CID. The blocks are in depth-first order, each once, so the
bytes depend on the content only, and not on the node. With -o the file gets
its name only when it is complete. An account can read public content, and
content that its own pins and objects refer to. With --user the command reads as
that account.

` + placeAlone,
		Example: `  holdfast car export bafybei... -o site.car
  holdfast car export bafybei... -o site.car --profile work
  holdfast car export bafybei... | ipfs dag import`,
		Args: arguments("CID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := plainCID(called(cmd), args[0])
			if err != nil {
				return err
			}
			if (output == "" || output == "-") && isTerminal(a.stdout) {
				return usagef("%s: standard output is a terminal: name a file with -o", called(cmd))
			}
			p, err := a.placeOf(cmd, r, user)
			if err != nil {
				return err
			}
			defer p.close()
			return a.exportCAR(cmd.Context(), p, user, text, output)
		},
	}
	r = a.remoteFlags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write (default standard output)")
	cmd.Flags().StringVar(&user, "user", "", "`email` of the account that reads (default the operator, who can read everything)")
	mustNotBeEmpty(cmd, "output", "user")
	mustBeText(cmd, "user")
	return cmd
}

func (a *app) exportCAR(ctx context.Context, p place, user, cid, output string) error {
	content, err := p.exportCAR(ctx, user, cid)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // read to its end or given up
	if output == "" || output == "-" {
		_, err = io.CopyBuffer(a.stdout, content, make([]byte, copyBuffer))
	} else {
		bar := a.newBar(-1, "reading")
		err = writeWhole(output, 0o644, func(w io.Writer) error {
			_, err := io.CopyBuffer(io.MultiWriter(w, bar), content, make([]byte, copyBuffer))
			return err
		})
		_ = bar.Finish() // it is only for the eye
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", cid, err)
	}
	return nil
}
