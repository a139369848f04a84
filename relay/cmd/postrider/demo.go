package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/postrider/postrider/relay/demo"
)

// demoTime is how long the demo runs where nobody can tell it to stop.
const demoTime = 10 * time.Second

func demoCommand(c *cli) *cobra.Command {
	var o demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole pattern at work, in this process, without a server",
		Long: "demo runs an order service on SQLite, the relay, an in-process Kafka on a port of 127.0.0.1,\n" +
			"and two consumers with an inbox, all in a temporary folder that is removed at the end.\n" +
			"One in eight of the service's transactions is rolled back after it has written its event.\n\n" +
			"In a terminal it is a live view with keys that break things. Elsewhere it prints a line a\n" +
			"second and, at the end, what became of every event: the database's ledger, the topics and the\n" +
			"consumers' tables are compared. The exit code is 3 when a promise was broken or not everything\n" +
			"was delivered in time.",
		Example: "  postrider demo\n" +
			"  postrider demo --for 10s --orders 500 -o json\n" +
			"  postrider demo --for 20s --break-broker --crash-consumers",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.demo(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVar(&o.For, "for", 0, "end after this long; orders are placed in the first four fifths at most\n"+
		"(default: until you quit; 10s without a terminal and without --orders)")
	flags.IntVar(&o.Orders, "orders", 0, fmt.Sprintf("place this many orders, those rolled back included; at most %d", demo.MaxOrders))
	flags.Float64Var(&o.Rate, "rate", 0, fmt.Sprintf("orders a second, negative for as fast as the database commits (default %d,\n"+
		"or faster where --orders needs it)", demo.DefaultRate))
	flags.BoolVar(&o.BreakBroker, "break-broker", false, "stop the broker for a while in the middle")
	flags.BoolVar(&o.CrashConsumers, "crash-consumers", false, "crash the consumers once, between database and offsets")
	return cmd
}

func (c *cli) demo(ctx context.Context, o demo.Options) error {
	format, err := c.outputFormat("table", "json")
	if err != nil {
		return err
	}
	if err := checkDemo(o); err != nil {
		return err
	}
	// A terminal or a pipe that is closed ends the demo in order, so that its folder is removed.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	if executable, err := os.Executable(); err == nil {
		o.Program = startedAs(executable, os.Args[0])
	}
	summary, err := c.runDemo(ctx, o, format)
	if err != nil {
		return because(ctx, err)
	}
	if err := c.print(summary, func(t *table) { demoTable(t, summary) }); err != nil {
		return err
	}
	if placed := summary.OrdersCommitted + summary.OrdersRolledBack; placed < o.Orders {
		c.talk("%d of %d orders were placed before the end", placed, o.Orders)
	}
	return demoVerdict(ctx, summary)
}

// startedAs is how the program is started once more: go run leaves its binary in the build's cache.
func startedAs(executable, arg0 string) string {
	if strings.Contains(executable, "go-build") {
		return "go run ./relay/cmd/postrider"
	}
	return shellWord(arg0)
}

// demoVerdict turns what became of the events into the command's end.
func demoVerdict(ctx context.Context, s demo.Summary) error {
	var limit *timeoutError
	switch {
	case s.Undelivered != "":
		return withCode(exitFindings, errors.New(s.Undelivered))
	case s.Broken():
		return withCode(exitFindings, errors.New("a promise was broken, see the summary"))
	case errors.As(context.Cause(ctx), &limit):
		return limit
	}
	return nil
}

func checkDemo(o demo.Options) error {
	switch {
	case o.For < 0:
		return &usageError{thing: "--for", reason: "cannot be negative", next: "give a duration such as 10s"}
	case o.Orders < 0 || o.Orders > demo.MaxOrders:
		return &usageError{thing: "--orders", reason: "out of range", next: fmt.Sprintf("give 1 to %d", demo.MaxOrders)}
	}
	return nil
}

// runDemo chooses the view: the live one needs a terminal on both sides.
func (c *cli) runDemo(ctx context.Context, o demo.Options, format string) (demo.Summary, error) {
	in, keys := c.in.(*os.File)
	out, drawn := c.out.(*os.File)
	if format != "json" && keys && drawn && os.Getenv("TERM") != "dumb" &&
		term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())) {
		o.Linger = true
		return demo.Run(ctx, o, demo.NewScreen(in, out, colors(out)))
	}
	if o.For == 0 && o.Orders == 0 {
		o.For = demoTime
	}
	lines := c.out
	if format == "json" {
		lines = c.errOut
	}
	o.Logger = slog.New(slog.NewTextHandler(c.errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return demo.Run(ctx, o, &demo.Lines{Out: lines})
}

func demoTable(t *table, s demo.Summary) {
	t.row("orders", fmt.Sprintf("%d committed, %d rolled back", s.OrdersCommitted, s.OrdersRolledBack))
	t.row("events", fmt.Sprintf("%d committed, %d delivered, %d rolled back", s.EventsCommitted, s.EventsDelivered, s.EventsRolledBack))
	t.row("missing", s.Missing)
	t.row("phantom", s.Phantom)
	t.row("doubled", s.Doubled)
	t.row("applied twice", fmt.Sprintf("%d (%d repeats skipped by the inboxes)", s.AppliedTwice, s.DuplicatesSkipped))
	t.row("out of order", s.OutOfOrder)
	t.row("altered", s.Altered)
	t.row("not applied", s.NotApplied)
	t.row("in the table", fmt.Sprintf("%d waiting, %d dead with a reason", s.Waiting, s.Dead))
	t.row("latency", fmt.Sprintf("p50 %s, p99 %s, max %s from COMMIT to readable",
		milliseconds(s.Latency.P50), milliseconds(s.Latency.P99), milliseconds(s.Latency.Max)))
	t.row("first event", fmt.Sprintf("delivered %.0f ms after the start of the program", s.FirstEventMS))
	verdict := "every promise was kept"
	if s.Broken() {
		verdict = "NOT every promise was kept"
	}
	t.row("verdict", verdict)
}

// milliseconds keeps a tenth of small numbers.
func milliseconds(n float64) string {
	if n < 100 {
		return fmt.Sprintf("%.1f ms", n)
	}
	return fmt.Sprintf("%.0f ms", n)
}
