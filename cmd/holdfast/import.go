package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/ipfs/go-cid"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// Limits of an import of pins.
const (
	defaultImporters = 8
	maxImporters     = 64
	// importTries is the number of attempts of a call that the server answers with 429 or
	// 503. If the response has no Retry-After, the pause before the second attempt is
	// importPause, and it doubles with each attempt up to maxImportPause.
	importTries    = 8
	importPause    = 500 * time.Millisecond
	maxImportPause = 2 * time.Minute
	// importEvery is the interval of progress lines if standard error is not a terminal.
	importEvery = 5 * time.Second
	// maxOrigins is the maximum number of origins of a pin in the Pinning Service API.
	maxOrigins = 20
)

// importPlan has the flags of `pin import`.
type importPlan struct {
	user      string
	from      string
	token     string
	tokenFile string
	format    string
	statuses  []string
	origins   []string
	importers int
	json      bool
}

func (a *app) pinImportCommand() *cobra.Command {
	var plan importPlan
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Copy pins from another pinning service, ipfs-cluster or kubo",
		Long: `Creates a pin for the operator, or for --user, for each pin of another system:

  --from URL   the API of another pinning service; its nodes become origins
  FILE         the output of 'ipfs-cluster-service state export' or of
               'ipfs pin ls --names'; without FILE, or with -, the command reads
               standard input

The command skips a pin if the account already has one with the same CID and
name that has no end. You can repeat an import that was interrupted, and run
several at the same time. If a server answers that it is busy, the command waits
and tries again.

The command reports each pin that it cannot read or create on standard error,
and the number of pins that a service counts but does not list. In both cases
it exits 1.

The command returns before the cluster has fetched the content. To list the
pins that are still incomplete, run:

  holdfast pin ls --status queued,pinning,failed`,
		Example: `  holdfast pin import --from https://pins.example.org --token-file token.txt
  ipfs-cluster-service state export -f pins.json && holdfast pin import pins.json
  ipfs pin ls --type recursive --names | holdfast pin import --origin /ip4/203.0.113.7/tcp/4001/p2p/12D3KooW...`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return arguments("FILE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := plan.check(called(cmd), args); err != nil {
				return err
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			source, total, done, err := a.importSource(cmd.Context(), &plan, args)
			if err != nil {
				return err
			}
			defer done()
			return a.importPins(cmd.Context(), o, &plan, source, total)
		},
	}
	userFlag(cmd, &plan.user)
	jsonFlag(cmd, &plan.json)
	cmd.Flags().StringVar(&plan.from, "from", "", "`URL` of the API of a pinning service, without /pins at its end")
	cmd.Flags().StringVar(&plan.token, "token", "", "access `token` for the service; other users of this machine can see it in the list of processes")
	cmd.Flags().StringVar(&plan.tokenFile, "token-file", "", "`file` that holds the access token")
	cmd.Flags().StringVar(&plan.format, "format", formatAuto, "`format` of FILE: auto, ipfs-cluster or ipfs")
	cmd.Flags().StringSliceVar(&plan.statuses, "status", []string{"pinned"}, "`states` of the pins to import from the service, joined by commas")
	cmd.Flags().StringArrayVar(&plan.origins, "origin", nil, "`multiaddr` with /p2p/ of a peer that has all the content (repeatable)")
	mustNotBeEmpty(cmd, "from", "token", "token-file", "origin")
	mustHaveEntries(cmd, "status")
	completeLists(cmd, "status", pinStates...)
	completeValues(cmd, "format", importFormats...)
	mustBeText(cmd, "from", "origin")
	cmd.Flags().IntVar(&plan.importers, "parallel", defaultImporters, fmt.Sprintf("largest `number` of concurrent requests, at most %d", maxImporters))
	return cmd
}

// check returns a usageError if the flags or the arguments of `pin import` are invalid. name is
// the name of the command in the error.
func (p *importPlan) check(name string, args []string) error {
	switch {
	case p.from != "" && len(args) > 0:
		return usagef("%s: give either FILE or --from, not both", name)
	case p.from == "" && (p.token != "" || p.tokenFile != ""):
		return usagef("%s: a token needs --from", name)
	case p.from != "" && (p.token == "") == (p.tokenFile == ""):
		return usagef("%s: --from needs --token or --token-file", name)
	case p.importers < 1 || p.importers > maxImporters:
		return usagef("%s: --parallel %d is not from 1 to %d", name, p.importers, maxImporters)
	case len(p.origins) > maxOrigins:
		return usagef("%s: --origin is given more than %d times", name, maxOrigins)
	case !slices.Contains(importFormats, p.format):
		return usagef("%s: --format %q is not one of %s", name, p.format, strings.Join(importFormats, ", "))
	case p.from != "" && !strings.HasPrefix(p.from, "http://") && !strings.HasPrefix(p.from, "https://"):
		return usagef("%s: --from %q is not an http or https URL", name, p.from)
	}
	for _, o := range p.origins {
		if !usableOrigin(o) { // else no pin at all would be taken
			return usagef("%s: --origin %q is not a multiaddr of at most %d bytes", name, o, maxOriginLen)
		}
	}
	p.statuses = words(p.statuses)
	for _, s := range p.statuses {
		if !slices.Contains(pinStates, s) {
			return usagef("%s: --status %q is not one of %s", name, s, strings.Join(pinStates, ", "))
		}
	}
	return nil
}

// importSource opens the source of the import: the service of --from, the file in args, or
// standard input. total is the number of pins in the source, or -1 if it is unknown. The caller
// calls done when it needs the source no longer; done is never nil.
func (a *app) importSource(ctx context.Context, p *importPlan, args []string) (s importSource, total int64, done func(), err error) {
	done = func() {}
	if p.from != "" {
		token := p.token
		if p.tokenFile != "" {
			text, err := readSecretFile(ctx, p.tokenFile)
			if err != nil {
				return nil, 0, done, fmt.Errorf("read token: %w", err)
			}
			token = strings.TrimSpace(string(text))
		}
		if strings.HasPrefix(p.from, "http://") {
			a.say(a.stderr, "warning: the command sends the token to %s unencrypted\n", p.from)
		}
		remote := &remoteService{
			base: strings.TrimRight(p.from, "/"), token: token, statuses: p.statuses,
			http: &http.Client{Timeout: remoteTimeout}, pause: pauseFor, tell: a.tellRetry,
		}
		total, err := remote.count(ctx)
		return remote.each, total, remote.http.CloseIdleConnections, err
	}
	in := interruptible(ctx, a.stdin)
	if len(args) == 1 && args[0] != "-" {
		f, err := openInput(ctx, args[0])
		if err != nil {
			return nil, 0, done, fmt.Errorf("import: %w", err)
		}
		in, done = interruptible(ctx, f), func() { _ = f.Close() }
	}
	return fileSource(in, p.format), -1, done, nil
}

// tellRetry prints that a call of a service failed because of why, that the command repeats it
// after wait, and that left attempts remain.
func (a *app) tellRetry(why error, wait time.Duration, left int) {
	a.say(a.stderr, "%s; trying again in %s, %s left\n", printable(oneLine(why.Error())), humanTime(wait), plural(left, "attempt"))
}

// importSource calls fn for each pin of a source, one after the other. problem is not nil if the
// entry cannot be imported; pin may then be incomplete. If fn returns an error, the importSource
// stops and returns that error.
type importSource func(ctx context.Context, fn func(pin client.Pin, problem error) error) error

// errSkipped is the problem of an entry that the import skips on purpose, such as an indirect
// pin.
var errSkipped = errors.New("skipped")

// importer is a running import.
type importer struct {
	node  operator
	user  string
	pause func(ctx context.Context, d time.Duration) error

	// mu guards the fields below. No goroutine holds it during a call of node.
	mu    sync.Mutex
	there map[string]*taken // pins that exist or that a goroutine is creating, by importKey
	imported, known, skipped, failed,
	knownFailed int
	told time.Time
}

// taken is the state of a pin that the account has or that a goroutine is creating.
type taken struct {
	done chan struct{} // closed after the field here was set
	here bool          // false only if the node certainly did not create the pin
}

// importKey returns a key that identifies a pin by its name and its CID. The encoding of the CID,
// such as base32, does not matter.
func importKey(c cid.Cid, name string) string { return c.KeyString() + "\x00" + name }

// importPins imports all pins of a source into the node o, prints the counts, and returns an
// error if a pin could not be imported. total is the number of pins for the progress bar, or -1
// if it is unknown.
func (a *app) importPins(ctx context.Context, o operator, p *importPlan, source importSource, total int64) error {
	im := &importer{node: o, user: p.user, pause: pauseFor, there: map[string]*taken{}, told: time.Now()}
	if err := im.readExisting(ctx); err != nil {
		return err
	}
	bar := a.progress(total, "import", progressbar.OptionShowCount())
	work, scope := errgroup.WithContext(ctx)
	work.SetLimit(p.importers)
	err := source(scope, func(pin client.Pin, problem error) error {
		if scope.Err() != nil {
			return scope.Err()
		}
		work.Go(func() error {
			err := problem
			if err == nil {
				pin.Origins = joinOrigins(p.origins, pin.Origins)
				err = im.add(scope, pin)
			}
			if scope.Err() != nil {
				return scope.Err()
			}
			a.importTold(im, bar, pin, err)
			return nil
		})
		return nil
	})
	err = errors.Join(work.Wait(), err)
	_ = bar.Finish() // it is only for the eye
	if told := a.did(p.json, im.result(), "%s", im); told != nil {
		return errors.Join(told, err)
	}
	var unreached *unreachedError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &unreached):
		return errors.Join(im.failure(), unreached)
	case err != nil:
		return fmt.Errorf("import stopped before its end: %w", err)
	}
	return im.failure()
}

// failure returns an error with the number of pins that could not be imported, or nil if there
// are none.
func (im *importer) failure() error {
	if im.failed == 0 {
		return nil
	}
	return fmt.Errorf("could not import %d pins", im.failed)
}

// importTold counts the result of one pin: err is nil, errKnown, errSkipped or a failure. It
// prints a failure and updates the progress.
func (a *app) importTold(im *importer, bar *progressbar.ProgressBar, pin client.Pin, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	switch {
	case err == nil:
		im.imported++
	case errors.Is(err, errKnown):
		im.known++
	case errors.Is(err, errSkipped):
		im.skipped++
	default:
		im.failed++
		a.say(a.stderr, "%s: %s\n", printable(pin.CID), printable(oneLine(err.Error())))
	}
	_ = bar.Add(1) // it is only for the eye
	if now := time.Now(); !isTerminal(a.stderr) && now.Sub(im.told) >= importEvery {
		im.told = now
		a.say(a.stderr, "%s so far\n", im.counts())
	}
}

// String returns the counts of the import as a text for users.
func (im *importer) String() string {
	text := im.counts()
	if im.knownFailed > 0 {
		text += fmt.Sprintf("; %d of the pins that the account already has are failed", im.knownFailed)
	}
	return text
}

// importResult is the output of pin import --json.
type importResult struct {
	Imported    int `json:"imported"`
	Known       int `json:"known"` // pins that existed before the import
	Skipped     int `json:"skipped"`
	Failed      int `json:"failed"`
	KnownFailed int `json:"known_failed"` // pins that existed before the import and are failed
}

func (im *importer) result() importResult {
	return importResult{im.imported, im.known, im.skipped, im.failed, im.knownFailed}
}

func (im *importer) counts() string {
	return fmt.Sprintf("%d imported, %d already here, %d skipped, %d failed", im.imported, im.known, im.skipped, im.failed)
}

// readExisting stores the pins that the account already has in im.there.
func (im *importer) readExisting(ctx context.Context) error {
	here := &taken{make(chan struct{}), true}
	close(here.done)
	for pin, err := range im.node.Pins(ctx, im.user, client.PinFilter{}) {
		if err != nil {
			return fmt.Errorf("list the pins of the account: %w", err)
		}
		if c, err := cid.Decode(pin.Pin.CID); err == nil && !ending(pin) {
			im.there[importKey(c, pin.Pin.Name)] = here
		}
		if pin.Status == "failed" {
			im.knownFailed++
		}
	}
	return nil
}

// errKnown is the result of importing a pin that the account already has.
var errKnown = errors.New("already here")

// add creates a pin, or returns errKnown if the account has a pin with the same CID and name. If
// another goroutine is creating such a pin, add waits for the result, and creates the pin itself
// only if the node has rejected the other one, for example because of its origins.
func (im *importer) add(ctx context.Context, pin client.Pin) error {
	c, err := cid.Decode(pin.CID)
	if err != nil {
		return fmt.Errorf("not a CID: %w", err)
	}
	key, own := importKey(c, pin.Name), &taken{done: make(chan struct{})}
	for {
		im.mu.Lock()
		other := im.there[key]
		if other == nil {
			im.there[key] = own
		}
		im.mu.Unlock()
		if other == nil {
			break
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if other.here {
			return errKnown
		}
	}
	id, err := im.ask(ctx, pin)
	var refused *client.Error
	none := errors.As(err, &refused) && (refused.Status/100 == 4 || refused.Status == http.StatusInsufficientStorage)
	if id != "" {
		err = im.yield(ctx, id, pin)
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	if own.here = !none; none { // else it may be
		delete(im.there, key)
	}
	close(own.done)
	return err
}

// ask asks the node to create a pin and returns the id of the pin. It repeats the call while the
// node answers 429 or 503. After a 503 the pin may exist; if ask then finds it, it returns an
// empty id and no error.
func (im *importer) ask(ctx context.Context, pin client.Pin) (id string, err error) {
	unsure := false // an attempt answered with 503 may have created the pin
	for try := 1; ; try++ {
		var added client.PinStatus
		err = nil
		if !unsure {
			added, err = im.node.AddPin(ctx, im.user, pin)
		}
		var refused *client.Error
		if unsure || errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable {
			found, lookErr := im.find(ctx, pin)
			if len(found) > 0 {
				return "", nil
			}
			unsure = lookErr != nil // the next attempt must first find out
			if err = cmp.Or(err, lookErr); err == nil {
				continue
			}
		}
		if err == nil {
			return added.RequestID, nil
		}
		if err := im.later(ctx, err, try); err != nil {
			return "", err
		}
	}
}

// yield removes the new pin id and returns errKnown if the account has an older pin with the same
// CID and name, which a concurrent import created. Every import keeps the oldest of such pins, so
// that exactly one remains. yield returns nil if the new pin remains.
func (im *importer) yield(ctx context.Context, id string, pin client.Pin) error {
	for try := 1; ; try++ {
		found, err := im.find(ctx, pin)
		own := slices.IndexFunc(found, func(p client.PinStatus) bool { return p.RequestID == id })
		switch {
		case err != nil:
		case own < 0:
			return errKnown // already removed, perhaps by the attempt before
		case !slices.ContainsFunc(found, func(p client.PinStatus) bool { return p.Created < found[own].Created }):
			return nil
		default:
			if err = im.node.RemovePin(ctx, im.user, id); err == nil {
				return errKnown
			}
		}
		if err := im.later(ctx, err, try); err != nil {
			return fmt.Errorf("the pin exists, perhaps twice: %w", err)
		}
	}
}

// find returns the pins of the account that have the CID and the name of pin, except pins with an
// end.
func (im *importer) find(ctx context.Context, pin client.Pin) ([]client.PinStatus, error) {
	found, err := im.node.PinsOf(ctx, im.user, pin.CID, pin.Name)
	return slices.DeleteFunc(found, func(p client.PinStatus) bool { return p.Pin.Name != pin.Name || ending(p) }), err
}

// ending reports whether a pin expires at a set time. The import does not treat such a pin as
// existing, because the content is lost when the pin expires.
func ending(p client.PinStatus) bool { return p.Info["pinned_until"] != "" }

// later waits before the next attempt of a call that failed with err and returns nil. It returns
// err at once if err is not a response 429 or 503, or after importTries attempts. tries is the
// number of attempts so far.
func (im *importer) later(ctx context.Context, err error, tries int) error {
	var refused *client.Error
	if !errors.As(err, &refused) || tries >= importTries ||
		refused.Status != http.StatusTooManyRequests && refused.Status != http.StatusServiceUnavailable {
		return err
	}
	return im.pause(ctx, pauseAfter(refused.RetryAfter, tries))
}

// pauseAfter returns the pause after a number of failed attempts. asked is the Retry-After of the
// last response, or 0 if the response had none. The pause is at most maxImportPause.
func pauseAfter(asked time.Duration, tries int) time.Duration {
	if asked > 0 {
		return min(asked, maxImportPause)
	}
	return backoff.After(importPause, maxImportPause, tries)
}

// pauseFor waits for d and returns nil. If ctx ends before that, it returns the error of ctx.
func pauseFor(ctx context.Context, d time.Duration) error {
	if !backoff.Wait(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// joinOrigins returns the origins of first and then those of then, without duplicates and at most
// maxOrigins.
func joinOrigins(first, then []string) (all []string) {
	seen := map[string]bool{}
	for _, list := range [][]string{first, then} {
		for _, o := range list {
			if !seen[o] && len(all) < maxOrigins {
				seen[o] = true
				all = append(all, o)
			}
		}
	}
	return all
}
