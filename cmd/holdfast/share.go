package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/holdfast-ipfs/holdfast/api/client/seal"
	"github.com/spf13/cobra"
)

// sharePage is the path of the page of the web console that opens share links.
const sharePage = "/shared"

func (a *app) shareCommand() *cobra.Command {
	return group("share", "Share encrypted files with others", `  holdfast share create s3://private/papers --link --expires 7d
  holdfast share open LINK
  holdfast share revoke LINK`,
		a.shareCreateCommand(), a.shareOpenCommand(), a.shareListCommand(), a.shareRevokeCommand())
}

// sharePlan has the flags of the command share create. The last three fields are the parsed
// flags.
type sharePlan struct {
	to                        []string
	link, whole               bool
	readOnly, readWrite, full bool
	expires, name, console    string
	json                      bool
	recipients                []*seal.PublicIdentity // a nil entry is a link that anybody can open
	end                       time.Time
	permissions               seal.Permissions
}

func (a *app) shareCreateCommand() *cobra.Command {
	var plan sharePlan
	cmd := &cobra.Command{
		Use:   "create s3://BUCKET/PATH",
		Short: "Share a folder or a file",
		Long: `Shares an encrypted folder, with all folders below, or one encrypted file. The
command prints a link for each recipient. A link is a secret, and it is printed
only this once.

--to shares with somebody who has an identity: holdfast keygen prints the share
identity, which begins with hfid1-. Only this identity can open the share.
--link shares with somebody who has no identity and no account: whoever has the
link can open the share. With --console a browser can open it.
To share all encrypted files of a bucket, give --whole-bucket with s3://BUCKET.

A recipient may read, unless --read-write or --full-access is given. To limit
the loss if a recipient is careless or malicious, put files that others may
write into a bucket of their own: such a recipient could overwrite ciphertext
of the whole bucket, but still reads the shared folder alone.`,
		Example: `  holdfast share create s3://private/papers --link --expires 7d
  holdfast share create s3://private/papers --to hfid1-... --read-write`,
		Args: arguments("s3://BUCKET/PATH"),
	}
	r, s := a.remoteFlags(cmd), alwaysSealing(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, err := parseS3(cmd, args[0])
		if err != nil {
			return err
		}
		p, err := a.remoteSettings(r)
		if err != nil {
			return err
		}
		if strings.Trim(target.key, "/") == "" && !plan.whole {
			return usagef("%s: %s is a whole bucket: give a folder in it, or --whole-bucket to share all its encrypted files", called(cmd), printable(args[0]))
		}
		if plan.console == "" {
			plan.console = p.Console
		}
		if err := plan.check(cmd, time.Now()); err != nil {
			return err
		}
		c, err := a.clusterOf(cmd, p)
		if err != nil {
			return err
		}
		defer c.Close()
		id, err := a.openIdentity(cmd, r, s)
		if err != nil {
			return err
		}
		if !plan.end.IsZero() && !plan.end.After(time.Now()) { // it has passed while the identity was opened
			return usagef("%s: --expires %q: %v", called(cmd), plan.expires, errEnded)
		}
		v, err := c.NewVault(target.bucket, id, false)
		if err != nil {
			return err
		}
		return clusterError(cmd.Context(), a.share(cmd, v, id, target, &plan))
	}
	f := cmd.Flags()
	f.StringArrayVar(&plan.to, "to", nil, "`identity` of a recipient, hfid1-...; repeatable")
	f.BoolVar(&plan.link, "link", false, "make a link that whoever has it can open")
	f.BoolVar(&plan.whole, "whole-bucket", false, "s3://BUCKET shares all encrypted files of the bucket, also later ones")
	f.BoolVar(&plan.readOnly, "read-only", false, "the recipient may read (the default)")
	f.BoolVar(&plan.readWrite, "read-write", false, "the recipient may read, add and replace files")
	f.BoolVar(&plan.full, "full-access", false, "the recipient may read, add, replace and remove files")
	f.StringVar(&plan.expires, "expires", "", "`time` until the end, such as 7d, or the end itself, such as 2027-01-31 or 2027-01-31T12:00:00Z")
	f.StringVar(&plan.name, "name", "", "`text` by which you recognize the share; the nodes can read it")
	f.StringVar(&plan.console, "console", "", "`url` of the console, whose page opens the link (default: console of the profile)")
	jsonFlag(cmd, &plan.json)
	mustNotBeEmpty(cmd, "to", "expires", "name", "console")
	mustBeText(cmd, "to", "name", "console")
	return cmd
}

// check validates the flags and stores the parsed ones in plan. It returns a usageError if they
// are invalid.
func (plan *sharePlan) check(cmd *cobra.Command, now time.Time) error {
	if len(plan.to) == 0 && !plan.link {
		return usagef("%s: give --to hfid1-... for somebody with an identity, or --link for whoever has the link (see %s --help)", called(cmd), cmd.CommandPath())
	}
	for _, text := range plan.to {
		public, err := seal.ParsePublicIdentity(text)
		if err != nil {
			return usagef("%s: --to %q is no share identity: holdfast keygen prints one, which begins with hfid1-", called(cmd), text)
		}
		plan.recipients = append(plan.recipients, &public)
	}
	if plan.link {
		plan.recipients = append(plan.recipients, nil)
	}
	switch {
	case plan.readOnly && plan.readWrite, (plan.readOnly || plan.readWrite) && plan.full:
		return usagef("%s: give one of --read-only, --read-write and --full-access", called(cmd))
	case plan.full:
		plan.permissions = seal.FullAccess()
	case plan.readWrite:
		plan.permissions = seal.ReadWrite()
	default:
		plan.permissions = seal.ReadOnly()
	}
	if plan.expires != "" {
		var err error
		if plan.end, err = endOf(plan.expires, now); err != nil {
			return usagef("%s: --expires %q: %v", called(cmd), plan.expires, err)
		}
	}
	if plan.console == "" {
		return nil
	}
	if err := checkConsole(plan.console); err != nil {
		return usagef("%s: --console %q: %v", called(cmd), plan.console, err)
	}
	return nil
}

// Reasons for which checkConsole rejects a URL.
var (
	errNoConsole     = errors.New("it is not a URL such as https://console.example.org")
	errConsolePath   = errors.New("give the address of the console alone, without a path: " + sharePage + " is added")
	errConsoleSecure = errors.New("a browser decrypts only on a page with https, or on this machine")
)

// hostName matches a host name or an IPv4 address.
var hostName = regexp.MustCompile(`(?i)^([a-z0-9_]([a-z0-9_-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?\.?$`)

// checkConsole returns an error unless text is the URL of a web console on which a browser can
// open share links: a host without a path. The scheme is https, or http for a console on this
// machine, because browsers offer cryptography only to such pages.
func checkConsole(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#") || u.User != nil {
		return errNoConsole
	}
	host := u.Hostname()
	ip, notIP := netip.ParseAddr(host)
	port, badPort := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16)
	if notIP != nil && (!hostName.MatchString(host) || len(host) > 253) || badPort != nil || port == 0 || strings.HasSuffix(u.Host, ":") {
		return errNoConsole
	}
	if strings.Trim(u.Path, "/") != "" {
		return errConsolePath
	}
	local := notIP == nil && ip.IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
	if u.Scheme == "http" && !local {
		return errConsoleSecure
	}
	return nil
}

// errNoEnd is the error for a value of --expires that is neither a time nor a duration.
var errNoEnd = errors.New("it is neither a time from now such as 12h or 7d, nor an end such as 2027-01-31 or 2027-01-31T12:00:00Z")

var errEnded = errors.New("the share would end before it begins")

// endOf parses the value of --expires and returns the time at which the share ends. text is a
// duration from now on, a time of RFC 3339, or a date. A date means the beginning of that day in
// the local time zone. It returns errEnded for a time that is not after now.
func endOf(text string, now time.Time) (time.Time, error) {
	var span spanFlag
	end, err := time.Parse(time.RFC3339, text)
	if err != nil {
		end, err = time.ParseInLocation(time.DateOnly, text, time.Local)
	}
	if err != nil {
		if err := span.Set(text); err != nil {
			return time.Time{}, errNoEnd
		}
		end = now.Add(time.Duration(span))
	}
	if !end.After(now) {
		return time.Time{}, errEnded
	}
	return end.Truncate(time.Second), nil
}

// madeShare describes a new share in the output of share create --json, and in the record that
// this machine stores of it.
type madeShare struct {
	ID        string     `json:"share_id"`
	Bucket    string     `json:"bucket"`
	Path      string     `json:"path"`
	Recipient string     `json:"recipient,omitempty"` // absent for a link that anybody can open
	Owner     string     `json:"owner"`
	Read      bool       `json:"read"`
	Write     bool       `json:"write"`
	Delete    bool       `json:"delete"`
	Expires   *time.Time `json:"expires_at,omitempty"`
	Name      string     `json:"name,omitempty"`
	Link      string     `json:"link,omitempty"` // a secret; absent in the record of this machine
}

// share creates a share of the folder or file of for each recipient in plan, and prints the
// links. If it cannot create one of them, it still prints the links of those before it and
// returns the error.
func (a *app) share(cmd *cobra.Command, v *gateway.Vault, id *seal.Identity, of s3Target, plan *sharePlan) error {
	made := []madeShare{}
	var failed error
	for _, to := range plan.recipients {
		o := gateway.ShareOptions{To: to, Permissions: plan.permissions, Expires: plan.end, Name: plan.name}
		if to == nil && plan.console != "" {
			o.Page = strings.TrimRight(plan.console, "/") + sharePage
		}
		link, err := v.Share(cmd.Context(), of.key, o)
		if err != nil {
			failed = notShared(err, of)
			break
		}
		t := link.Token
		m := madeShare{
			ID: t.ShareID, Bucket: t.Bucket, Path: t.PathScope, Owner: id.Public().String(), Name: plan.name,
			Read: t.Permissions.Read, Write: t.Permissions.Write, Delete: t.Permissions.Delete, Link: link.URL(),
		}
		if to != nil {
			m.Recipient = to.String()
		}
		if !t.Expires.IsZero() {
			m.Expires = &t.Expires
		}
		made = append(made, m)
		if !plan.json {
			a.say(a.stdout, "%s\n", m.Link)
			a.explainLink(&m, link.Page)
		}
		if err := a.remember(m); err != nil {
			a.say(a.stderr, "holdfast: share ls will not show the path of this share: %s\n", oneLine(err.Error()))
		}
	}
	if plan.json && len(made) > 0 {
		return errors.Join(failed, a.printJSON(made))
	}
	return failed
}

// notShared returns err, with a clear text if the reason is that of names no encrypted folder or
// file.
func notShared(err error, of s3Target) error {
	if errors.Is(err, gateway.ErrNotFound) && !isNoBucket(err) {
		return fmt.Errorf("%s is neither an encrypted folder nor an encrypted file: %w", printable(of.String()), err)
	}
	return err
}

// explainLink prints on standard error who can open the link of a share, until when, and how.
// page is the console page in the link, or "" if a browser cannot open the link.
func (a *app) explainLink(m *madeShare, page string) {
	until := "until you revoke it"
	if m.Expires != nil {
		until = "until " + m.Expires.Local().Format(time.DateTime)
	}
	if m.Recipient != "" {
		a.say(a.stderr, "Only %s can open this share of %s, %s:\n  holdfast share open --from %s LINK\n", m.Recipient, printable(m.place()), until, m.Owner)
		return
	}
	how := "in a browser, or with holdfast share open LINK"
	if page == "" {
		how = "with holdfast share open LINK; give --console for a link that a browser can open"
	}
	what := printable(m.place())
	if m.Path == "/" {
		what = "all encrypted files of " + printable(s3Scheme+m.Bucket) + ", also later ones"
	}
	a.say(a.stderr, "This link is a secret: whoever has it can open %s, %s, %s.\n", what, until, how)
}

// place returns the shared folder or file as s3://BUCKET/PATH.
func (m *madeShare) place() string { return s3Scheme + m.Bucket + m.Path }

// shareID matches the id of a share.
var shareID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// permissionsText returns permissions as words separated by commas, such as read,write, or "-"
// for none.
func permissionsText(read, write, remove bool) string {
	g := seal.Permissions{Read: read, Write: write, Delete: remove}
	var words []string
	for _, p := range []seal.Permission{seal.Read, seal.Write, seal.Delete} {
		if g.Allows(p) {
			words = append(words, p.String())
		}
	}
	return orDash(strings.Join(words, ","))
}

// parseBucket parses an argument of the form s3://BUCKET and returns the bucket. It returns a
// usageError if the argument has a key.
func parseBucket(cmd *cobra.Command, arg string) (string, error) {
	t, err := parseS3(cmd, arg)
	if err == nil && t.key != "" {
		err = usagef("%s: %q names more than a bucket", called(cmd), arg)
	}
	return t.bucket, err
}

func (a *app) shareRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke SHARE_ID s3://BUCKET | revoke LINK",
		Short: "End a share",
		Long: `Ends a share. From now on every node refuses it. On a terminal the command asks
first. SHARE_ID is the id of the share, which holdfast share ls lists. With - as
LINK the command reads the link from standard input.

The recipient keeps the files that the recipient has copied, and the key of the
shared folder. To change the keys as well, see holdfast rewrap.`,
		Example: `  holdfast share revoke 9f0c2d41a6be47f8935a1d7e60cb2f18 s3://private
  holdfast share revoke - < link.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !shareID.MatchString(args[0]) {
				return arguments("LINK")(cmd, args)
			}
			return arguments("SHARE_ID", "s3://BUCKET")(cmd, args)
		},
	}
	r, how := a.remoteFlags(cmd), removalFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		bucket, id, err := a.shareNamed(cmd, args)
		if err != nil {
			return err
		}
		c, err := a.cluster(cmd, r)
		if err != nil {
			return err
		}
		defer c.Close()
		what := ""
		if known, ok := a.remembered(id); ok && known.Bucket == bucket {
			what = " of " + printable(known.place())
		}
		if err := a.confirm(cmd.Context(), how, fmt.Sprintf("This ends the share %s%s.", id, what)); err != nil {
			return err
		}
		if err := c.RevokeShare(cmd.Context(), bucket, id); err != nil {
			if errors.Is(err, gateway.ErrNotFound) {
				err = fmt.Errorf("%s has no share %s: holdfast share ls lists them: %w", s3Scheme+bucket, id, err)
			}
			return clusterError(cmd.Context(), err)
		}
		if err := a.forget(id); err != nil {
			return err
		}
		return a.did(how.json, map[string]string{"share_id": id, "bucket": bucket}, "revoked share %s%s", id, what)
	}
	return cmd
}

// shareNamed returns the bucket and the id of the share to revoke. args are either a share link,
// or the id and the bucket.
func (a *app) shareNamed(cmd *cobra.Command, args []string) (bucket, id string, err error) {
	if len(args) == 1 {
		text, err := a.linkText(cmd, args[0])
		if err != nil {
			return "", "", err
		}
		link, err := parseLink(cmd, text)
		if errors.Is(err, seal.ErrPlainLink) {
			return "", "", usagef("%s: this link does not name its share: give the id and s3://BUCKET, which holdfast share ls lists", called(cmd))
		}
		if err != nil {
			return "", "", err
		}
		return link.Token.Bucket, link.Token.ShareID, nil
	}
	if !shareID.MatchString(args[0]) {
		return "", "", usagef("%s: %q is no id of a share: it has 32 hexadecimal digits, and holdfast share ls lists it", called(cmd), args[0])
	}
	bucket, err = parseBucket(cmd, args[1])
	return bucket, args[0], err
}
