package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/relay"
)

// Summary is the account of a run. The first nine fields and the latencies are what scripts rely on.
type Summary struct {
	OrdersCommitted  int       `json:"orders_committed"`
	OrdersRolledBack int       `json:"orders_rolled_back"`
	EventsCommitted  int       `json:"events_committed"` // by the ledger
	EventsDelivered  int       `json:"events_delivered"` // of those, found in Kafka
	Missing          int       `json:"missing"`
	Phantom          int       `json:"phantom"`
	Doubled          int       `json:"doubled"`
	AppliedTwice     int       `json:"applied_twice"`
	OutOfOrder       int       `json:"out_of_order"`
	Latency          Latencies `json:"latency_ms"`

	EventsRolledBack  int     `json:"events_rolled_back"` // written, and gone with their transaction
	Altered           int     `json:"altered"`            // bytes other than written
	NotApplied        int     `json:"not_applied"`        // delivered, without effect in a consumer
	Waiting           int     `json:"waiting"`            // NEW or FAILED at the end
	Dead              int     `json:"dead"`               // in the table with a reason
	DuplicatesSkipped int     `json:"duplicates_skipped"` // by the inboxes
	FirstEventMS      float64 `json:"first_event_ms"`     // from the start of the process to readable in Kafka
	Seconds           float64 `json:"seconds"`

	// Undelivered says why the end was not reached, empty when everything was delivered and applied.
	Undelivered string `json:"undelivered,omitempty"`
}

// Latencies are milliseconds from the start of COMMIT to readable in Kafka.
type Latencies struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Broken says whether a promise was broken, or the end was not reached in time.
func (s Summary) Broken() bool {
	return s.Undelivered != "" ||
		s.Missing+s.Phantom+s.Doubled+s.AppliedTwice+s.OutOfOrder+s.Altered+s.NotApplied > 0
}

func (d *Demo) summary(v Verdict, took time.Duration) Summary {
	c := d.book.counts()
	p50, p99, longest := d.book.overall()
	s := Summary{
		OrdersCommitted: c.ordersCommitted, OrdersRolledBack: c.ordersRolledBack,
		EventsCommitted: v.Committed, EventsDelivered: v.Delivered,
		Missing: v.Missing, Phantom: v.Phantom, Doubled: v.Doubled, AppliedTwice: v.AppliedTwice, OutOfOrder: v.OutOfOrder,
		Latency:          Latencies{P50: millis(p50), P99: millis(p99), Max: millis(longest)},
		EventsRolledBack: c.eventsRolledBack, Altered: v.Altered, NotApplied: v.NotApplied, Waiting: v.Waiting, Dead: v.Dead,
		FirstEventMS: millis(d.FirstEvent()), Seconds: float64(took.Milliseconds()) / 1000,
	}
	for _, consumer := range d.consumers {
		_, skipped, _ := consumer.numbers()
		s.DuplicatesSkipped += skipped
	}
	return s
}

// millis keeps a tenth.
func millis(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond).Microseconds()) / 1000
}

// evidence reads everything that the verdict needs: the ledger first, so that what commits meanwhile
// is not missed.
func (d *Demo) evidence(ctx context.Context) (Evidence, error) {
	e := Evidence{Rows: map[string]Row{}, Effects: map[string]Effects{}}
	if err := d.readLedger(ctx, &e); err != nil {
		return e, fmt.Errorf("read the ledger: %w", err)
	}
	if err := d.readRows(ctx, &e); err != nil {
		return e, fmt.Errorf("read the outbox: %w", err)
	}
	d.catchUp(ctx) // what was SENT when the rows were read is in Kafka, and must have been read from there
	e.Records = d.recorder.all()
	for _, c := range d.consumers {
		effects, err := c.effects(ctx)
		if err != nil {
			return e, err
		}
		e.Effects[c.name] = effects
	}
	return e, nil
}

// catchUp waits a moment for those who read the topics. Who does not come to the end shows in the
// verdict.
func (d *Demo) catchUp(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	for {
		if done, _ := d.consumed(ctx); done || !pause(ctx, drainEvery) {
			return
		}
	}
}

func (d *Demo) readLedger(ctx context.Context, e *Evidence) error {
	rows, err := d.reader.QueryContext(ctx, `SELECT event_id, order_no, event_type, version, digest FROM ledger`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var entry Entry
		if err := rows.Scan(&entry.EventID, &entry.Key, &entry.Type, &entry.Version, &entry.Digest); err != nil {
			return err
		}
		e.Ledger = append(e.Ledger, entry)
	}
	return rows.Err()
}

func (d *Demo) readRows(ctx context.Context, e *Evidence) error {
	rows, err := d.reader.QueryContext(ctx, `SELECT event_id, status, coalesce(last_error, '') FROM outbox_events WHERE status <> 'SENT'`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, state, lastError string
		if err := rows.Scan(&id, &state, &lastError); err != nil {
			return err
		}
		e.Rows[id] = Row{State: relay.State(state), LastError: lastError}
	}
	return rows.Err()
}
