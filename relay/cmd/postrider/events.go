package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/relay/config"
)

func eventsCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "List, show, retry and discard events",
		Example: "  postrider events list --status DEAD\n  postrider events retry --status DEAD --error MESSAGE_TOO_LARGE",
	}
	cmd.AddCommand(eventsListCommand(c), eventsShowCommand(c), eventsRetryCommand(c), eventsDiscardCommand(c))
	return cmd
}

// eventFlags are the filters that the verbs share.
type eventFlags struct {
	status []string
	filter relay.Filter
	after  string
}

func (f *eventFlags) register(cmd *cobra.Command, limit int) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.status, "status", nil, "states: NEW, SENDING, SENT, FAILED, DEAD (waits for a person), DISCARDED")
	fl.StringVar(&f.filter.Type, "type", "", "event type")
	fl.StringVar(&f.filter.AggregateType, "aggregate-type", "", "aggregate type")
	fl.StringVar(&f.filter.Key, "key", "", "message key, else aggregate id")
	fl.StringVar(&f.filter.Topic, "topic", "", "topic named by the row")
	fl.DurationVar(&f.filter.Since, "since", 0, "created within this long, by the database's clock")
	fl.StringVar(&f.filter.Error, "error", "", "text in the last error")
	fl.IntVar(&f.filter.Limit, "limit", limit, "at most so many events")
}

// read checks the flags; ids are the command's arguments.
func (f *eventFlags) read(ids []string) (relay.Filter, error) {
	known := []relay.State{relay.StateNew, relay.StateSending, relay.StateSent, relay.StateFailed, relay.StateDead, relay.StateDiscarded}
	out := f.filter
	out.EventIDs, out.After = ids, relay.RowID(f.after)
	for _, word := range f.status {
		state := relay.State(strings.ToUpper(word))
		ok := false
		for _, k := range known {
			ok = ok || k == state
		}
		if !ok {
			return out, &usageError{thing: "--status " + word, reason: "unknown state", next: "use NEW, SENDING, SENT, FAILED, DEAD or DISCARDED"}
		}
		out.States = append(out.States, state)
	}
	if out.Limit < 1 {
		return out, &usageError{thing: "--limit", reason: "must be at least 1"}
	}
	return out, nil
}

// selective says whether anything narrows the choice.
func (f *eventFlags) selective(ids []string) bool {
	x := f.filter
	return len(ids) > 0 || len(f.status) > 0 || x.Type+x.AggregateType+x.Key+x.Topic+x.Error != "" || x.Since > 0
}

// eventDocument is one event in the names of the table's columns.
type eventDocument struct {
	ID             string  `json:"id"`
	EventID        string  `json:"event_id"`
	AggregateType  string  `json:"aggregate_type"`
	AggregateID    string  `json:"aggregate_id"`
	EventType      string  `json:"event_type"`
	Topic          *string `json:"topic"`
	MessageKey     *string `json:"message_key"`
	Status         string  `json:"status"`
	RetryCount     int     `json:"retry_count"`
	NextRetryAt    *string `json:"next_retry_at"`
	LastError      *string `json:"last_error"`
	CreatedAt      *string `json:"created_at"`
	UpdatedAt      *string `json:"updated_at"`
	SentAt         *string `json:"sent_at"`
	KafkaTopic     *string `json:"kafka_topic"`
	KafkaPartition *int32  `json:"kafka_partition"`
	KafkaOffset    *int64  `json:"kafka_offset"`
	State          string  `json:"state"`
	Discarded      bool    `json:"discarded"`
}

func document(r *relay.EventRow) eventDocument {
	d := eventDocument{
		ID: string(r.Row), EventID: r.ID, AggregateType: r.AggregateType, AggregateID: r.AggregateID, EventType: r.Type,
		Topic: text(r.Topic), MessageKey: r.Key, Status: r.Status, RetryCount: r.RetryCount, LastError: text(r.LastError),
		NextRetryAt: moment(r.NextRetryAt), CreatedAt: moment(r.CreatedAt), UpdatedAt: moment(r.UpdatedAt), SentAt: moment(r.SentAt),
		State: string(r.State), Discarded: r.Discarded,
	}
	if r.Receipt != nil {
		d.KafkaTopic, d.KafkaPartition, d.KafkaOffset = &r.Receipt.Topic, &r.Receipt.Partition, &r.Receipt.Offset
	}
	return d
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func moment(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339Nano)
	return &s
}

func eventsListCommand(c *cli) *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List events, oldest first, without payloads",
		Example: "  postrider events list --status DEAD,FAILED\n  postrider events list --key ORD-10001 -o json",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.read(nil)
			if err != nil {
				return err
			}
			return c.lookStore(cmd.Context(), func(_ *config.Config, store app.Store) error {
				rows, err := store.List(cmd.Context(), filter)
				if err != nil {
					return fmt.Errorf("list events: %w", err)
				}
				return c.printEvents(rows, filter.Limit)
			})
		},
	}
	f.register(cmd, 50)
	cmd.Flags().StringVar(&f.after, "after", "", "only events after this row id, to page on")
	return cmd
}

func (c *cli) printEvents(rows []relay.EventRow, limit int) error {
	docs := make([]eventDocument, len(rows))
	for i := range rows {
		docs[i] = document(&rows[i])
	}
	err := c.print(docs, func(t *table) {
		t.header("ROW", "EVENT ID", "TYPE", "KEY", "STATUS", "TRIES", "CREATED", "WHERE / LAST ERROR")
		for i, r := range rows {
			t.row(r.Row, r.ID, r.Type, deref(r.Key), shown(&rows[i]), r.RetryCount, short(r.CreatedAt), c.whereOrError(&rows[i]))
		}
	})
	if err == nil && len(rows) == limit {
		c.talk("%d shown; for more: --limit, or --after %s", limit, rows[limit-1].Row)
	}
	return err
}

func shown(r *relay.EventRow) string {
	if r.Discarded {
		return r.Status + " (discarded)"
	}
	return r.Status
}

func receipt(r *relay.Receipt) string {
	return fmt.Sprintf("%s[%d]@%d", r.Topic, r.Partition, r.Offset)
}

// whereOrError keeps a line short at a terminal; elsewhere nothing is cut.
func (c *cli) whereOrError(r *relay.EventRow) string {
	if r.Receipt != nil {
		return receipt(r.Receipt)
	}
	const width = 100
	if line := []rune(r.LastError); len(line) > width && isTerminal(c.out) {
		return string(line[:width-1]) + "…"
	}
	return r.LastError
}

func deref(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func short(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func eventsShowCommand(c *cli) *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use:     "show EVENT_ID",
		Short:   "Show one event: state, attempts, last error, receipt",
		Example: "  postrider events show 0198c0de-0000-7000-8000-000000000001\n  postrider events show 0198c0de-0000-7000-8000-000000000001 --payload",
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return c.lookStore(cmd.Context(), func(_ *config.Config, store app.Store) error {
				return c.showEvent(cmd.Context(), store, ids[0], payload)
			})
		},
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "print the payload's bytes too: it may be confidential")
	return cmd
}

func (c *cli) showEvent(ctx context.Context, store relay.Admin, id string, payload bool) error {
	row, found, err := store.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	if !found {
		return notInTable(id)
	}
	doc := struct {
		eventDocument
		PayloadBytes int               `json:"payload_bytes"`
		Headers      map[string]string `json:"headers,omitempty"`
		Payload      *string           `json:"payload,omitempty"`
	}{eventDocument: document(&row), PayloadBytes: len(row.Payload)}
	if payload {
		body := string(row.Payload)
		doc.Payload = &body
		doc.Headers = map[string]string{}
		for _, h := range row.Headers {
			doc.Headers[h.Name] = string(h.Value)
		}
	}
	return c.print(doc, func(t *table) {
		t.row("event id", row.ID)
		t.row("row", row.Row)
		t.row("type", row.Type)
		t.row("aggregate", row.AggregateType+" "+row.AggregateID)
		t.row("key", deref(row.Key))
		t.row("topic of the row", deref(text(row.Topic)))
		t.row("status", shown(&row))
		t.row("tries", row.RetryCount)
		t.row("next retry", short(row.NextRetryAt))
		t.row("created", short(row.CreatedAt))
		t.row("sent", short(row.SentAt))
		if row.Receipt != nil {
			t.row("receipt", receipt(row.Receipt))
		}
		t.row("last error", deref(text(row.LastError)))
		t.row("payload", fmt.Sprintf("%d bytes", len(row.Payload)))
		if payload {
			t.row("", string(row.Payload))
		}
	})
}
