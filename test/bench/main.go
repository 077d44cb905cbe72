package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// sizes are how much work each measurement is.
type sizes struct {
	idle    time.Duration // an idle node is watched
	load    time.Duration // each kind of request is sent
	small   int           // pins of 1 KiB that are fetched
	many    int           // the same again, in full mode; 0 is left out
	pins    int           // pins in the lists
	large   int           // bytes of the large DAG
	kills   int           // leaders killed
	removed float64       // share of the fetched pins that is deleted
}

var (
	full  = sizes{20 * time.Second, 8 * time.Second, 2_000, 20_000, 20_000, 256 << 20, 20, 0.01}
	short = sizes{3 * time.Second, 2 * time.Second, 500, 0, 2_000, 32 << 20, 3, 0.01}
)

// settings are what the command line says.
type settings struct {
	sizes
	only  *regexp.Regexp
	logs  bool
	url   string
	token string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	s := settings{sizes: full}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	brief := flags.Bool("short", false, "less of everything: about a minute")
	only := flags.String("only", "", "run only the groups that match: api, content, large, outage")
	pins := flags.Int("pins", 0, "pins in the lists instead of 20,000 (1000000 takes some minutes)")
	load := flags.Duration("load", 0, "how long each kind of request is sent, instead of 8s")
	flags.BoolVar(&s.logs, "logs", false, "show the ends of the nodes' logs after a failure")
	flags.StringVar(&s.url, "url", "", "base URLs of a pinning service that runs, with commas; the first is taken for the leader")
	flags.StringVar(&s.token, "token", "", "bearer token for -url")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if *brief {
		s.sizes = short
	}
	if *pins > 0 {
		s.pins = *pins
	}
	if *load > 0 {
		s.load = *load
	}
	var err error
	if s.only, err = regexp.Compile(*only); err != nil {
		return s, fmt.Errorf("-only: %w", err)
	}
	if (s.url == "") != (s.token == "") {
		return s, errors.New("-url and -token belong together")
	}
	return s, nil
}

// group is measurements that share a cluster.
type group struct {
	name string
	run  func(*bench)
}

// run prints a row as soon as it is known. A group that fails ends by itself;
// the others are still measured.
func run(ctx context.Context, s settings) error {
	fmt.Println(machine(ctx))
	fmt.Println()
	printHead()
	if s.url != "" {
		return scope(ctx, s, func(b *bench) { measureService(b, strings.Split(s.url, ",")) })
	}
	remove, err := harness.Build()
	defer remove()
	if err != nil {
		return err
	}
	var failed error
	for _, g := range []group{
		{"api", measureAPI}, {"content", measureContent}, {"large", measureLarge}, {"outage", measureOutage},
	} {
		if !s.only.MatchString(g.name) || ctx.Err() != nil {
			continue
		}
		if err := scope(ctx, s, g.run); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", g.name, err))
		}
	}
	return errors.Join(failed, ctx.Err())
}
