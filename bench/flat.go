package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay/config"
)

// flat shows what a drained event costs with a small backlog, a large one, and above many rows that were sent, and
// then what a relay reads that starts there.
func flat(ctx context.Context, s settings) error {
	if scheme(s.database) != "postgres" && scheme(s.database) != "postgresql" {
		return fmt.Errorf("the rows that are read are counted by PostgreSQL; use a postgres:// database")
	}
	if s.delivery == "" || s.delivery == single {
		s.delivery = config.ExactlyOnce
	}
	fmt.Printf("delivery %s, %d B; the relay is at work when a backlog is committed\n%-24s %14s %18s %18s %14s\n", s.delivery, s.size,
		"backlog", "sent rows below", "relay's CPU µs", "time µs", "CPU x first")
	var first float64
	for _, c := range []struct{ backlog, times, kept int }{
		{10_000, 10, 0}, {100_000, 3, 0}, {s.backlog, 1, 0}, {100_000, 3, s.kept},
	} {
		cost, err := flatCost(ctx, s, c.backlog, c.times, c.kept)
		if err != nil {
			return fmt.Errorf("backlog of %d above %d: %w", c.backlog, c.kept, err)
		}
		if first == 0 {
			first = cost.cpu
		}
		fmt.Printf("%-24s %14d %18.2f %18.2f %14.2f\n", fmt.Sprintf("%d, %d times", c.backlog, c.times), c.kept, cost.cpu, cost.wall, cost.cpu/first)
		for _, r := range cost.restarts {
			fmt.Printf("    %-50s first event after %-8s %9d rows and %7d pages read\n", r.how, r.took.Round(10*time.Millisecond), r.rows, r.pages)
		}
	}
	return nil
}

// eventCost is microseconds an event.
type eventCost struct {
	cpu, wall float64
	restarts  []restart // of a relay above kept rows
}

// flatCost drains a backlog some times, above kept sent rows.
func flatCost(ctx context.Context, s settings, backlog, times, kept int) (cost eventCost, err error) {
	f, err := newFleet(ctx, s)
	if err != nil {
		return cost, err
	}
	defer f.close()
	if kept > 0 {
		if err := f.b.fillSent(ctx, kept, s.size, s.keys, f.topic); err != nil {
			return cost, err
		}
		r, err := f.restart(ctx, "the first start ever")
		if err != nil {
			return cost, err
		}
		cost.restarts = append(cost.restarts, r)
		kept++ // the event of that start
	} else if err := f.start(ctx, 1); err != nil {
		return cost, err
	}
	if err := f.warm(ctx, kept); err != nil {
		return cost, err
	}
	var cpu, wall time.Duration
	for i := range times {
		tx, err := f.b.pend(ctx, backlog, s.size, s.keys, f.topic)
		if err != nil {
			return cost, err
		}
		before, began := f.relays[0].cpu(), time.Now()
		if err := tx.Commit(); err != nil {
			return cost, err
		}
		ended, err := f.b.drained(ctx, kept+warmUp+(i+1)*backlog)
		if err != nil {
			return cost, err
		}
		cpu, wall = cpu+f.relays[0].cpu()-before, wall+ended.Sub(began)
	}
	n := float64(backlog * times)
	cost.cpu, cost.wall = float64(cpu.Microseconds())/n, float64(wall.Microseconds())/n
	if kept == 0 {
		return cost, nil
	}
	for _, end := range []struct {
		how string
		end func(*child)
	}{{"a restart after a clean stop", (*child).stop}, {"a restart after kill -9, session timeout included", (*child).kill}} {
		end.end(f.relays[0])
		r, err := f.restart(ctx, end.how)
		if err != nil {
			return cost, err
		}
		cost.restarts = append(cost.restarts, r)
	}
	return cost, nil
}

// restart is the start of a relay on a table with one event to send.
type restart struct {
	how         string
	took        time.Duration // until a reader of committed records had it
	rows, pages int64         // of the table and its indexes, read meanwhile and in the two seconds that follow
}

func (f *fleet) restart(ctx context.Context, how string) (restart, error) {
	r := restart{how: how}
	topic, remove, err := newTopic(ctx, f.s.kafka, "restart")
	if err != nil {
		return r, err
	}
	defer remove()
	event := outbox.Event{ID: outbox.NewID(), AggregateType: "Order", AggregateID: "ORD-1", Type: "OrderCreated", Topic: topic, Payload: []byte("{}")}
	if err := f.b.commit(ctx, outbox.New(f.b.dialect, outbox.Options{}), event); err != nil {
		return r, err
	}
	time.Sleep(2 * time.Second) // sessions tell of what they have read once a second
	rows, pages, err := f.b.reads(ctx)
	if err != nil {
		return r, err
	}
	p := newProbe()
	reading, stop := context.WithCancel(ctx) // the relay lives on
	defer stop()
	g, gctx := errgroup.WithContext(reading)
	g.Go(func() error { return ignoreCancel(p.consume(gctx, f.s.kafka, topic)) })
	began := time.Now()
	f.relays = nil
	if err := f.add(ctx, "relay1"); err != nil {
		return r, err
	}
	err = p.await(gctx, 1, 5*time.Minute)
	if err == nil {
		time.Sleep(2 * time.Second)
		r.rows, r.pages, err = f.b.reads(ctx)
	}
	stop()
	if err := errors.Join(err, g.Wait()); err != nil {
		return r, err
	}
	r.rows, r.pages, r.took = r.rows-rows, r.pages-pages, p.events[event.ID].read.Sub(began)
	return r, nil
}

// reads counts rows and pages of the table that were read so far.
func (b *bed) reads(ctx context.Context) (rows, pages int64, err error) {
	err = b.db.QueryRowContext(ctx, `SELECT coalesce(s.seq_tup_read, 0) + coalesce(s.idx_tup_fetch, 0),
		coalesce(io.heap_blks_read + io.heap_blks_hit, 0) + coalesce(io.idx_blks_read + io.idx_blks_hit, 0)
		FROM pg_stat_user_tables s JOIN pg_statio_user_tables io USING (relid) WHERE s.relname = 'outbox_events'`).Scan(&rows, &pages)
	return rows, pages, err
}

// fillSent writes n events that were sent long ago.
func (b *bed) fillSent(ctx context.Context, n, size, keys int, topic string) error {
	const chunk = 200_000
	for from := 0; from < n; from += chunk {
		_, err := b.db.ExecContext(ctx, `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, topic, payload, headers,
				status, sent_at, kafka_topic, kafka_partition, kafka_offset)
			SELECT gen_random_uuid()::text, 'Order', 'ORD-' || (g % $3), 'OrderCreated', $4, convert_to(repeat('x', $5), 'UTF8'), '{"source":"bench"}',
				'SENT', clock_timestamp(), $4, g % 12, g
			FROM generate_series($1::int, $2::int - 1) g`, from, min(from+chunk, n), keys, topic, size)
		if err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return b.vacuum(ctx)
}
