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

// sizes says how much work each measurement does. A measurement whose size is 0 is left out.
type sizes struct {
	idle    time.Duration // time for which an idle node is measured
	load    time.Duration // time for which each kind of request is sent
	small   int           // pins of 1 KiB that are fetched in the first measurement
	many    int           // pins of 1 KiB that are fetched in the second measurement
	pins    int           // pins of the account whose lists are read
	million int           // pins of the account with very many pins
	scale   stages        // numbers of pins at which the group scale measures
	// scaleAlone says that the group scale fills one node, and others join afterwards.
	scaleAlone bool
	crowd      int           // pins of which the part removed is deleted
	large      int           // bytes of the large DAG that is pinned
	kills      int           // how often the leader is killed
	removed    float64       // part of the pins that is deleted, from 0 to 1
	soak       time.Duration // duration of the steady work
	soakRate   int           // pins per second of the steady work; 0 means half of the measured maximum
	keys       int           // objects in the bucket that is listed
	parts      int           // parts of the upload that is completed
	object     int           // bytes of each object that is stored in parallel with others
	huge       int           // bytes of the object that is copied
}

var (
	full = sizes{
		idle: 20 * time.Second, load: 8 * time.Second, small: 2_000, many: 20_000, pins: 20_000, million: 1_000_000,
		crowd: 100_000, large: 256 << 20, kills: 20, removed: 0.01,
		keys: 1_000_000, parts: 10_000, object: 64 << 20, huge: 5 << 30,
	}
	short = sizes{
		idle: 2 * time.Second, load: time.Second, small: 500, pins: 2_000, million: 5_000,
		crowd: 2_000, large: 32 << 20, kills: 2, removed: 0.01, soak: 4 * time.Second, soakRate: 50,
		scale: stages{200, 400}, keys: 2_000, parts: 200, object: 2 << 20, huge: 256 << 20,
	}
)

// settings are the values of the command line.
type settings struct {
	sizes
	only   *regexp.Regexp
	logs   bool
	series string
	url    string
	token  string
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
	var s settings
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	brief := flags.Bool("short", false, "less of everything: about a minute")
	only := flags.String("only", "", "run only the groups that match: api, ratelimit, noisy, million, console, content, large, objects, scale, paid, keys, uploads, memory, outage, soak")
	flags.BoolVar(&s.logs, "logs", false, "show the ends of the nodes' logs after a failure")
	flags.StringVar(&s.series, "series", "", "file for what the soak saw, as comma-separated values")
	flags.StringVar(&s.url, "url", "", "base URLs of a pinning service that runs, with commas; the first is taken for the leader")
	flags.StringVar(&s.token, "token", "", "bearer token for -url")
	var asked sizes
	flags.DurationVar(&asked.idle, "idle", 0, "how long an idle cluster is watched")
	flags.DurationVar(&asked.load, "load", 0, "how long each kind of request is sent")
	flags.IntVar(&asked.small, "small", 0, "pins of 1 KiB that are fetched first")
	flags.IntVar(&asked.many, "many", 0, "pins of 1 KiB that are fetched then")
	flags.IntVar(&asked.pins, "pins", 0, "pins in the lists of the group api")
	flags.IntVar(&asked.million, "million", 0, "pins of the groups million and console")
	flags.Var(&asked.scale, "scale", "numbers of pins at which the group scale measures, with commas; without it the group is left out")
	flags.BoolVar(&asked.scaleAlone, "scale-alone", false, "the group scale fills one node, and two others join afterwards")
	flags.IntVar(&asked.crowd, "crowd", 0, "pins from which one in a hundred is deleted")
	mebibytes := flags.Int("large", 0, "MiB of the large DAG")
	flags.IntVar(&asked.keys, "keys", 0, "objects in the lists of the group keys")
	flags.IntVar(&asked.parts, "parts", 0, "parts of the upload that is completed")
	flags.IntVar(&asked.kills, "kills", 0, "leaders that are killed")
	flags.DurationVar(&asked.soak, "soak", 0, "steady work for so long")
	flags.IntVar(&asked.soakRate, "soak-rate", 0, "pins a second of the steady work, instead of half of what is measured")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	s.sizes = full
	if *brief {
		s.sizes = short
	}
	asked.large = *mebibytes << 20
	s.sizes.take(asked)
	var err error
	if s.only, err = regexp.Compile(*only); err != nil {
		return s, fmt.Errorf("-only: %w", err)
	}
	if (s.url == "") != (s.token == "") {
		return s, errors.New("-url and -token belong together")
	}
	return s, nil
}

// take replaces the sizes that were set on the command line.
func (s *sizes) take(asked sizes) {
	replace(&s.idle, asked.idle)
	replace(&s.load, asked.load)
	replace(&s.small, asked.small)
	replace(&s.many, asked.many)
	replace(&s.pins, asked.pins)
	replace(&s.million, asked.million)
	replace(&s.crowd, asked.crowd)
	replace(&s.large, asked.large)
	replace(&s.kills, asked.kills)
	replace(&s.soak, asked.soak)
	replace(&s.soakRate, asked.soakRate)
	replace(&s.keys, asked.keys)
	if asked.scale != nil {
		s.scale = asked.scale
	}
	s.scaleAlone = asked.scaleAlone
	replace(&s.parts, asked.parts)
}

func replace[T int | time.Duration](size *T, asked T) {
	if asked > 0 {
		*size = asked
	}
}

// group is a set of measurements that use the same cluster.
type group struct {
	name string
	run  func(*bench)
}

// run runs the measurements and prints each row as soon as it is known. If a group fails, run
// continues with the next group, and returns the errors at the end.
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
		{"api", measureAPI},
		{"ratelimit", measureRateLimit},
		{"noisy", measureNoisy},
		{"million", measureMillion},
		{"console", measureConsole},
		{"content", measureContent},
		{"large", measureLarge},
		{"objects", measureObjects},
		{"scale", measureScale},
		{"paid", measurePaid},
		{"keys", measureKeys},
		{"uploads", measureUploads},
		{"memory", measureMemory},
		{"outage", measureOutage},
		{"soak", measureSoak},
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
