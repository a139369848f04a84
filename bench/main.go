// Command bench measures the relay beside what it could be at best and what it replaces, in one run on
// one real database and one real Kafka, so that the ratios hold on any machine:
//
//	article         the relay of the article in our words: claim ten, send one, wait, mark one
//	ceiling         raw driver and raw producer: read, produce, mark in sets; no rule, no order, no failure
//	single          postrider with claim: single, at least once
//	at-least-once   postrider with claim: lanes
//	exactly-once    postrider with claim: lanes, in Kafka's transactions
//	debezium        Kafka Connect with Debezium's outbox event router, as it comes and tuned
//
// It owns the measuring and nothing that ships. docs/benchmarks.md tells what each measure is.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"
)

type settings struct {
	database string // URL
	kafka    string // host:port
	connect  string // URL of a Kafka Connect worker with Debezium; empty: none
	events   int
	size     int // payload bytes
	keys     int
	article  int // events of the article's relay: it is slow
	rounds   int
	rate     int // transactions a second, for latency
	seconds  int
	backlog  int // events of the largest backlog, for flat
	kept     int // sent rows below, for flat
	only     string
	delivery string
	profile  string
}

func main() {
	var s settings
	flag.StringVar(&s.database, "database", os.Getenv("POSTRIDER_TEST_POSTGRES"), "database URL: postgres://, mysql://, mariadb://")
	flag.StringVar(&s.kafka, "kafka", os.Getenv("POSTRIDER_TEST_KAFKA"), "Kafka host:port")
	flag.StringVar(&s.connect, "connect", os.Getenv("POSTRIDER_TEST_CONNECT"), "URL of a Kafka Connect worker with Debezium's connector; empty: none")
	flag.IntVar(&s.events, "events", 200_000, "events to drain")
	flag.IntVar(&s.size, "size", 300, "payload bytes an event")
	flag.IntVar(&s.keys, "keys", 10_000, "distinct keys")
	flag.IntVar(&s.article, "article-events", 1_500, "events for the article's relay, which is slow")
	flag.IntVar(&s.rounds, "rounds", 3, "rounds; the median is shown")
	flag.IntVar(&s.rate, "rate", 500, "latency: transactions a second")
	flag.IntVar(&s.backlog, "backlog", 3_000_000, "flat: events of the largest backlog")
	flag.IntVar(&s.kept, "kept", 10_000_000, "flat: sent rows that are kept below")
	flag.StringVar(&s.only, "only", "", "lanes: just this ending; drain: just this contender: article, ceiling, single, at-least-once, exactly-once, debezium, debezium tuned")
	flag.StringVar(&s.delivery, "delivery", "", "latency, lanes, flat, idle, memory: at-least-once or exactly-once, with claim: lanes, or single; empty: the product's defaults")
	flag.StringVar(&s.profile, "cpuprofile", "", "write a CPU profile of the run to this file")
	flag.IntVar(&s.seconds, "seconds", 20, "latency: how long")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: go run ./bench [flags] MEASURE…\n\n"+
			"  drain      events a second of a backlog, beside the article's relay, the ceiling and, where Connect is up, Debezium\n"+
			"  debezium   the same backlog and the same traffic for Debezium, the ceiling and both deliveries\n"+
			"  lanes      two relays beside one: drain, and how long lanes stand still when one of two is killed, frozen, stopped\n"+
			"  flat       what an event costs with a small and a large backlog, and above many sent rows; what a restart reads\n"+
			"  latency    from commit to readable at a steady rate\n"+
			"  writer     what an event adds to a transaction\n"+
			"  marks      what an index over status costs a mark\n"+
			"  memory     peak memory of a big backlog and of big events\n"+
			"  idle       processor time at rest\n\n"+
			"Addresses default to what `dev/servers env` sets. Example:\n  eval \"$(dev/servers env)\" && go run ./bench drain latency writer marks\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, what []string) error {
	if s.database == "" || s.kafka == "" {
		return fmt.Errorf("no servers: set POSTRIDER_TEST_POSTGRES and POSTRIDER_TEST_KAFKA (dev/servers env prints them), or -database and -kafka")
	}
	defer removeProgram()
	if s.profile != "" {
		f, err := os.Create(s.profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if len(what) == 0 {
		what = []string{"drain"}
	}
	measures := map[string]func(context.Context, settings) error{
		"drain": drain, "latency": latency, "writer": writerCost, "marks": marks, "memory": memory, "idle": idle,
		"debezium": debeziumBeside, "lanes": lanesBeside, "flat": flat,
	}
	for _, name := range what {
		f, known := measures[name]
		if !known {
			return fmt.Errorf("unknown measure %q, see -help", name)
		}
		fmt.Printf("\n%s (%s)\n%s\n", name, scheme(s.database), strings.Repeat("-", 60))
		began := time.Now()
		if err := f(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("took %.0f s\n", time.Since(began).Seconds())
	}
	return nil
}

func scheme(url string) string {
	name, _, _ := strings.Cut(url, ":")
	return name
}
