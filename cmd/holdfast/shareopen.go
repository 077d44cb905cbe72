package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/holdfast-ipfs/holdfast/api/client/seal"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
)

// maxLink is the maximum length of a share link on standard input, in bytes.
const maxLink = 64 << 10

// errRevoked is the error if the nodes reject the credential in a share link. The recipient needs
// no further details.
var errRevoked = fmt.Errorf("%w: ask the owner for a new link", gateway.ErrRevoked)

// openPlan has the flags of the command share open.
type openPlan struct {
	from string
	put  []string
	rm   []string
	json bool
}

func (a *app) shareOpenCommand() *cobra.Command {
	var plan openPlan
	cmd := &cobra.Command{
		Use:   "open LINK [DIR|FILE]",
		Short: "List or download what others have shared with you",
		Long: `Opens a share. Without DIR the command lists the shared files. With DIR it
downloads them; if DIR has some of them already, it downloads those that have
changed. A single shared file is written to FILE. Every byte of an encrypted
share is authenticated.

Others can see LINK in the list of processes: with - as LINK the command asks
for it, or reads it from standard input. No account is needed. A share that was
made for your identity also needs --identity, and --from with the share identity
of its owner. For other links --from is optional: without it you trust whoever
sent you the link.

The command also opens links to files that are not encrypted, which the web
console makes.

--put adds FILE to the shared folder, or replaces the file of the same name.
--rm removes a file. The owner must have permitted it.`,
		Example: `  holdfast share open 'https://console.example.org/shared#v=1&...'
  holdfast share open - papers < link.txt
  holdfast share open --from hfid1-... --identity ~/.config/holdfast/identity -
  holdfast share open --put answer.pdf -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 { // a path can have any bytes
				return arguments("LINK", fileArgument)(cmd, args)
			}
			return arguments("LINK")(cmd, args)
		},
	}
	r, s := a.remoteFlags(cmd), alwaysSealing(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 && len(plan.put)+len(plan.rm) > 0 {
			return usagef("%s: give DIR, or --put and --rm", called(cmd))
		}
		text, err := a.linkText(cmd, args[0])
		if err != nil {
			return err
		}
		link, err := parseLink(cmd, text)
		if errors.Is(err, seal.ErrPlainLink) {
			return a.openPlain(cmd, r, &plan, text, args[1:])
		}
		if err != nil {
			return err
		}
		grant, err := a.openLink(cmd, r, s, link, plan.from)
		if err != nil {
			return err
		}
		c, err := a.clusterOfLink(cmd, r, link.Access, link.Endpoints)
		if err != nil {
			return err
		}
		defer c.Close()
		v, err := c.OpenShare(grant)
		if err != nil {
			return err
		}
		o := &opened{app: a, cmd: cmd, plan: &plan, grant: grant, vault: v, client: c}
		err = clusterError(cmd.Context(), o.run(cmd.Context(), args[1:]))
		if errors.Is(err, gateway.ErrRevoked) {
			err = errRevoked
		}
		return err
	}
	f := cmd.Flags()
	f.StringVar(&plan.from, "from", "", "`identity` of the owner, hfid1-...; a share of anybody else is refused")
	f.StringArrayVar(&plan.put, "put", nil, "`file` to add to the shared folder; repeatable")
	f.StringArrayVar(&plan.rm, "rm", nil, "`name` of a file to remove from the shared folder; repeatable")
	jsonFlag(cmd, &plan.json)
	mustNotBeEmpty(cmd, "from", "put", "rm")
	mustBeText(cmd, "from", "rm")
	return cmd
}

// linkText returns the text of a share link. If arg is "-", it reads the link from the terminal
// with hidden input, or from the first line of standard input. Otherwise the link is arg.
func (a *app) linkText(cmd *cobra.Command, arg string) (text string, err error) {
	if arg != "-" {
		return arg, nil
	}
	if in, ok := a.terminalIn(); ok {
		text, err = a.typedUnseen(cmd.Context(), in, "Link: ")
	} else if text, err = firstLine(cmd.Context(), a.stdin, maxLink); errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		return "", err
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", errors.New("no link on the first line of standard input")
	}
	return text, nil
}

// parseLink parses a share link, or a share token, which gets an empty access credential. The error
// is seal.ErrPlainLink for a link to content that is not encrypted.
func parseLink(cmd *cobra.Command, text string) (*seal.Link, error) {
	if token, err := seal.ParseToken(text); err == nil {
		return &seal.Link{Token: token}, nil
	}
	link, err := seal.ParseLink(text)
	if err != nil && !errors.Is(err, seal.ErrPlainLink) {
		err = usagef("%s: this is no whole link: %v", called(cmd), err)
	}
	return link, err
}

// openLink verifies the signature of a share link and decrypts its key. from is the expected
// share identity of the owner, in text form. It is required for a link to a single recipient,
// whose key openLink decrypts with the identity of the user. For a link that anybody can open it
// may be "".
func (a *app) openLink(cmd *cobra.Command, r *remote, s *sealing, link *seal.Link, from string) (*seal.Grant, error) {
	var known []seal.PublicIdentity
	if from != "" {
		owner, err := seal.ParsePublicIdentity(from)
		if err != nil {
			return nil, usagef("%s: --from %q is no share identity: it begins with hfid1-", called(cmd), from)
		}
		known = append(known, owner)
	}
	if !link.Personal() {
		return link.Open(time.Now(), known...)
	}
	if len(known) == 0 {
		if err := link.Token.Verify(time.Now(), link.Token.Owner); err != nil {
			return nil, err
		}
		return nil, usagef("%s: the share is signed by %s: if this is the share identity of its owner, give it as --from", called(cmd), link.Token.Owner)
	}
	if err := link.Token.Verify(time.Now(), known...); err != nil { // before anybody types a passphrase
		return nil, err
	}
	id, err := a.openIdentity(cmd, r, s)
	if err != nil {
		return nil, err
	}
	return link.Token.Open(id, time.Now(), known...)
}

// clusterOfLink returns a client that uses the access credential of a link, and its endpoints unless
// --endpoint or the profile has others. If access is empty, the client uses the credentials and the
// endpoints of the profile, and never the endpoints in the link: anybody can write endpoints into a
// link, and would then receive the user's credentials.
func (a *app) clusterOfLink(cmd *cobra.Command, r *remote, access string, endpoints []string) (*gateway.Client, error) {
	if access == "" {
		return a.cluster(cmd, r)
	}
	p := config.Profile{Endpoints: endpoints, Token: access}
	switch {
	case len(r.endpoints) > 0:
		p.Endpoints = r.endpoints
	case len(p.Endpoints) == 0:
		own, err := a.remoteSettings(r)
		if err != nil {
			return nil, err
		}
		p.Endpoints = own.Endpoints
	}
	return a.clusterOf(cmd, p)
}

// opened is a verified and decrypted share, with what the command share open needs to read and
// change its files.
type opened struct {
	app    *app
	cmd    *cobra.Command
	plan   *openPlan
	grant  *seal.Grant
	vault  *gateway.Vault
	client *gateway.Client
}

// scope returns the path of the shared folder or file in the Vault, without a leading slash. ""
// is the whole bucket.
func (o *opened) scope() string { return strings.TrimPrefix(o.grant.Scope(), "/") }

// folder reports whether the share is of a folder and not of a single file.
func (o *opened) folder() bool {
	_, ok := o.grant.FolderKey()
	return ok
}

func (o *opened) run(ctx context.Context, args []string) error {
	if len(o.plan.put)+len(o.plan.rm) > 0 {
		return o.change(ctx)
	}
	if len(args) == 0 {
		return o.list(ctx)
	}
	return o.app.fetchShared(o.cmd, o.client, o.vault, s3Target{o.grant.Token().Bucket, o.scope()}, o.folder(), args[0], o.plan.json)
}

// fetchShared downloads a shared object to the file to, or a shared folder to the folder to. The
// Vault is nil if they are not encrypted.
func (a *app) fetchShared(cmd *cobra.Command, c *gateway.Client, v *gateway.Vault, at s3Target, folder bool, to string, asJSON bool) error {
	if !folder {
		return a.download(cmd.Context(), c, v, at, to, gateway.DownloadOptions{})
	}
	if to == "-" {
		return usagef("%s: a folder is shared: give DIR", called(cmd))
	}
	var side syncSide = plainSide{c, at}
	if v != nil {
		side = vaultSide{v, at}
	}
	plan := syncPlan{json: asJSON}
	plan.options.Parallel = gateway.DefaultSyncParallel
	return a.sync(cmd.Context(), side, to, at, true, plan)
}

// sharedFile is one file in the output of share open --json.
type sharedFile struct {
	Name     string    `json:"name"` // relative to the shared folder
	Size     int64     `json:"size"` // bytes
	Modified time.Time `json:"modified"`
}

// sharedList is the JSON output of share open.
type sharedList struct {
	ID      string       `json:"share_id,omitempty"` // empty for files that are not encrypted
	Owner   string       `json:"owner,omitempty"`    // empty for files that are not encrypted
	Bucket  string       `json:"bucket"`
	Path    string       `json:"path"`
	Read    bool         `json:"read"`
	Write   bool         `json:"write"`
	Delete  bool         `json:"delete"`
	Expires *time.Time   `json:"expires_at,omitempty"`
	Files   []sharedFile `json:"files"`
}

func (o *opened) list(ctx context.Context) error {
	t := o.grant.Token()
	all := sharedList{
		ID: t.ShareID, Owner: t.Owner.String(), Bucket: t.Bucket, Path: o.grant.Scope(),
		Read: t.Permissions.Read, Write: t.Permissions.Write, Delete: t.Permissions.Delete, Files: []sharedFile{},
	}
	if !t.Expires.IsZero() {
		all.Expires = &t.Expires
	}
	prefix := o.scope()
	if prefix != "" && o.folder() {
		prefix += "/"
	}
	for file, err := range o.vault.Entries(ctx, prefix, true) {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(file.Key, prefix)
		if !o.folder() {
			name = path.Base(file.Key)
		}
		all.Files = append(all.Files, sharedFile{name, file.Size, file.Modified})
	}
	return o.app.printShared(&all, o.plan.json, "The shared folder is empty. If it should not be, its owner has changed the keys: ask for a new link.")
}

// printShared prints the files of a share, as JSON or one per line. If there are none, people read
// the text empty.
func (a *app) printShared(all *sharedList, asJSON bool, empty string) error {
	if asJSON {
		return a.printJSON(all)
	}
	if len(all.Files) == 0 {
		a.say(a.stderr, "%s\n", empty)
	}
	for _, file := range all.Files {
		a.say(a.stdout, "%-19s  %12s  %s\n", file.Modified.Local().Format(time.DateTime), sizeFor(a.stdout, uint64(max(file.Size, 0))), printable(file.Name))
	}
	return nil
}

// change uploads the files of --put into the shared folder, and then removes those of --rm from
// it.
func (o *opened) change(ctx context.Context) error {
	type done struct {
		Action string `json:"action"`
		Name   string `json:"name"`
	}
	changes := []done{}
	did := func(action, name string) {
		changes = append(changes, done{action, name})
		if !o.plan.json {
			o.app.say(o.app.stdout, "%s %s\n", action, printable(name))
		}
	}
	for _, file := range o.plan.put {
		name := filepath.Base(file)
		if !utf8.ValidString(name) {
			return usagef("%s: the name %q is not UTF-8", called(o.cmd), name)
		}
		size, regular := regularSize(file)
		if !regular {
			return fmt.Errorf("--put %s: there is no regular file of this name", file)
		}
		bar := o.app.newBar(size, "uploading")
		err := o.vault.UploadFile(ctx, path.Join(o.scope(), name), file, gateway.UploadOptions{Progress: func(n int64) { _ = bar.Add64(n) }})
		_ = bar.Finish() // an error of the progress bar does no harm
		if err != nil {
			return err
		}
		did("put", name)
	}
	for _, name := range o.plan.rm {
		if err := o.vault.Remove(ctx, o.below(name)); err != nil {
			return err
		}
		did("rm", name)
	}
	if o.plan.json {
		return o.app.printJSON(changes)
	}
	return nil
}

// below returns the path in the Vault of a file in the shared folder. It does not clean name, so
// that the Vault rejects a name with the segment "..".
func (o *opened) below(name string) string {
	if o.scope() == "" {
		return name
	}
	return o.scope() + "/" + name
}
