package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/relay/config"
)

// mostChanged bounds what one command changes, and what it looks at to explain itself.
const mostChanged = 10_000

// act is a verb that changes events.
type act struct {
	verb, did, takes string
	flags            eventFlags
	dryRun           bool
	yes              bool
	do               func(ctx context.Context, s relay.Admin, f relay.Filter, dry bool) (done, skipped int64, err error)
	eligible         func(r *relay.EventRow) bool
	loses            func(s relay.Admin) bool // whether the rows are lost to the table
}

func eventsRetryCommand(c *cli) *cobra.Command {
	a := &act{
		verb: "retry", did: "made due now", takes: "FAILED and DEAD events",
		eligible: func(r *relay.EventRow) bool { return r.State == relay.StateFailed || r.State == relay.StateDead },
		loses:    func(relay.Admin) bool { return false },
		do: func(ctx context.Context, s relay.Admin, f relay.Filter, dry bool) (int64, int64, error) {
			return s.Retry(ctx, f, dry)
		},
	}
	return a.command(c, &cobra.Command{
		Use:   "retry [EVENT_ID…]",
		Short: "Send FAILED and DEAD events again, now",
		Long: "retry makes FAILED and DEAD events due now, with their attempts counted anew. Events in other states\n" +
			"are left alone: what is being sent is never sent twice.",
		Example: "  postrider events retry 0198c0de-0000-7000-8000-000000000001\n  postrider events retry --status DEAD --topic orders --yes",
	})
}

func eventsDiscardCommand(c *cli) *cobra.Command {
	var reason string
	a := &act{
		verb: "discard", did: "discarded", takes: "DEAD events",
		eligible: func(r *relay.EventRow) bool { return r.State == relay.StateDead && !r.Discarded },
		loses:    func(s relay.Admin) bool { return !s.KeepsDiscarded() },
		do: func(ctx context.Context, s relay.Admin, f relay.Filter, dry bool) (int64, int64, error) {
			return s.Discard(ctx, f, reason, dry)
		},
	}
	cmd := a.command(c, &cobra.Command{
		Use:   "discard [EVENT_ID…]",
		Short: "Give up DEAD events so that they no longer hold their keys",
		Long: "discard gives up DEAD events: they are never sent, and later events of their keys go on. The rows stay,\n" +
			"marked as discarded with the reason. A table without a last_error column loses the rows instead: then it\n" +
			"asks first, also for named events, and logs what goes.",
		Example: "  postrider events discard 0198c0de-0000-7000-8000-000000000001 --reason 'order was a test'",
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept in last_error (required)")
	discard := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if reason == "" {
			return &usageError{thing: "--reason", reason: "is missing", next: "say why the events are given up: it is kept in last_error"}
		}
		return discard(cmd, ids)
	}
	return cmd
}

func (a *act) command(c *cli, cmd *cobra.Command) *cobra.Command {
	a.flags.register(cmd, mostChanged)
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "say what would be done, change nothing")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask before changing more than the named events")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if !a.flags.selective(ids) {
			return &usageError{thing: cmd.CommandPath(), reason: "names no events", next: "give event ids or a filter such as --status DEAD"}
		}
		filter, err := a.flags.read(ids)
		if err != nil {
			return err
		}
		return c.withStore(cmd.Context(), func(cfg *config.Config, store app.Store) error {
			return a.run(cmd.Context(), c, cfg, store, filter)
		})
	}
	return cmd
}

func (a *act) run(ctx context.Context, c *cli, cfg *config.Config, store relay.Admin, filter relay.Filter) error {
	did, loses := a.did, a.loses(store)
	if loses {
		did = "deleted (the table has no last_error column to keep it as discarded)"
	}
	left, err := a.leftAlone(ctx, store, filter.EventIDs)
	if err != nil {
		return err
	}
	if !a.dryRun {
		if err := a.ask(ctx, c, store, filter, loses); err != nil {
			return err
		}
		if loses {
			if err := c.logLost(ctx, cfg, store, filter); err != nil {
				return err
			}
		}
	}
	done, skipped, err := a.do(ctx, store, filter, a.dryRun)
	if err != nil {
		return fmt.Errorf("%s events: %w", a.verb, err)
	}
	doc := struct {
		Done    int64 `json:"done"`
		Skipped int64 `json:"skipped"`
		DryRun  bool  `json:"dry_run"`
		Deletes bool  `json:"deletes"`
	}{done, skipped, a.dryRun, loses}
	err = c.print(doc, func(t *table) {
		would := ""
		if a.dryRun {
			would = "would be "
		}
		t.row(fmt.Sprintf("%s %s%s, %d left alone (another state)", events(done), would, did, skipped))
	})
	return errors.Join(append([]error{err}, left...)...)
}

// ask wants a yes for more than the named events, and for what cannot be undone.
func (a *act) ask(ctx context.Context, c *cli, store relay.Admin, filter relay.Filter, loses bool) error {
	if a.yes || len(filter.EventIDs) > 0 && !loses {
		return nil
	}
	n, _, err := a.do(ctx, store, filter, true)
	if err != nil {
		return fmt.Errorf("%s events: %w", a.verb, err)
	}
	what := a.verb + " " + events(n)
	if loses {
		what = "delete " + events(n) + " (the table has no last_error column to keep it as discarded)"
	}
	return c.confirm(what)
}

// leftAlone explains, of the named events, those that the verb does not take.
func (a *act) leftAlone(ctx context.Context, store relay.Admin, ids []string) (problems []error, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := store.List(ctx, relay.Filter{EventIDs: ids, Limit: mostChanged})
	if err != nil {
		return nil, fmt.Errorf("look at the named events: %w", err)
	}
	for _, id := range ids {
		i := slices.IndexFunc(rows, func(r relay.EventRow) bool { return r.ID == id })
		switch {
		case i < 0:
			problems = append(problems, notInTable(id))
		case !a.eligible(&rows[i]):
			problems = append(problems, &relay.SetupError{Kind: relay.SetupConflict, Thing: "event " + id,
				Reason: "is " + shown(&rows[i]) + " and was left alone", Fix: a.verb + " takes " + a.takes})
		}
	}
	return problems, nil
}

func notInTable(id string) error {
	fix := "see postrider events list; sent events may have been pruned"
	if _, err := strconv.Atoi(id); err == nil {
		fix = "give the EVENT ID of postrider events list, not the ROW"
	}
	return &relay.SetupError{Kind: relay.SetupNotFound, Thing: "event " + id, Reason: "is not in the table", Fix: fix}
}

// logLost keeps in the log what the table is about to lose.
func (c *cli) logLost(ctx context.Context, cfg *config.Config, store relay.Admin, filter relay.Filter) error {
	if len(filter.States) > 0 && !slices.Contains(filter.States, relay.StateDead) {
		return nil
	}
	filter.States = []relay.State{relay.StateDead}
	rows, err := store.List(ctx, filter)
	if err != nil {
		return fmt.Errorf("look at the events to delete: %w", err)
	}
	log := c.logger(cfg)
	for i := range rows {
		r := &rows[i]
		log.Warn("event is deleted", "event_id", r.ID, "event_type", r.Type, "key", deref(r.Key), "topic", deref(text(r.Topic)))
	}
	return nil
}

func events(n int64) string {
	if n == 1 {
		return "1 event"
	}
	return fmt.Sprintf("%d events", n)
}

// confirm asks at a terminal; without one the answer must have been given as --yes.
func (c *cli) confirm(what string) error {
	if !isTerminal(c.in) {
		return &usageError{thing: what, reason: "there is no terminal to ask at", next: "add --yes, or look first with --dry-run"}
	}
	fmt.Fprint(c.errOut, what+"? [y/N] ")
	line, _ := bufio.NewReader(c.in).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return &usageError{thing: what, reason: "was not confirmed"}
	}
	return nil
}
