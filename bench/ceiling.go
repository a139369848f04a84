package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/outbox"
)

// ceilingBatch is rows a read and a mark.
const ceilingBatch = 2000

type rawRow struct {
	id        int64
	rec       *kgo.Record
	partition int32
	offset    int64
}

// ceiling is the raw driver and the raw producer with nothing between: read by primary key, produce
// pipelined, mark in sets with the receipt, all three side by side. It keeps no promise but speed.
func ceiling(ctx context.Context, b *bed, s settings, topic string, n int) error {
	cl, err := producer(s.kafka)
	if err != nil {
		return err
	}
	defer cl.Close()
	read, mark, closeBoth, err := rawDatabase(ctx, b)
	if err != nil {
		return err
	}
	defer closeBoth()
	batches := make(chan []*rawRow, 1)
	acked := make(chan []*rawRow, 2)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(batches)
		after := int64(0)
		for got := 0; got < n; {
			rows, err := read(ctx, after)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return fmt.Errorf("read %d of %d", got, n)
			}
			after = rows[len(rows)-1].id
			got += len(rows)
			batches <- rows
		}
		return nil
	})
	g.Go(func() error {
		defer close(acked)
		for rows := range batches {
			if err := produce(ctx, cl, topic, rows); err != nil {
				return err
			}
			acked <- rows
		}
		return nil
	})
	g.Go(func() error {
		for rows := range acked {
			if err := mark(ctx, rows); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

func produce(ctx context.Context, cl *kgo.Client, topic string, rows []*rawRow) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	wg.Add(len(rows))
	for _, r := range rows {
		r.rec.Topic = topic
		cl.Produce(ctx, r.rec, func(rec *kgo.Record, err error) {
			defer wg.Done()
			if err != nil {
				mu.Lock()
				first = err
				mu.Unlock()
				return
			}
			r.partition, r.offset = rec.Partition, rec.Offset
		})
	}
	wg.Wait()
	return first
}

type (
	readFunc func(ctx context.Context, after int64) ([]*rawRow, error)
	markFunc func(ctx context.Context, rows []*rawRow) error
)

func rawDatabase(ctx context.Context, b *bed) (readFunc, markFunc, func(), error) {
	if b.dialect == outbox.Postgres {
		return rawPostgres(ctx, b)
	}
	return rawMySQL(b)
}

func rawPostgres(ctx context.Context, b *bed) (readFunc, markFunc, func(), error) {
	reader, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return nil, nil, nil, err
	}
	marker, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return nil, nil, nil, err
	}
	read := func(ctx context.Context, after int64) ([]*rawRow, error) {
		rows, err := reader.Query(ctx, `SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload
			FROM outbox_events WHERE id > $1 AND status = 'NEW' ORDER BY id LIMIT $2`, after, ceilingBatch)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*rawRow, error) {
			var id int64
			var eventID, eventType, aggType, aggID string
			var payload []byte
			err := row.Scan(&id, &eventID, &eventType, &aggType, &aggID, &payload)
			return raw(id, eventID, eventType, aggType, aggID, payload), err
		})
	}
	mark := func(ctx context.Context, rows []*rawRow) error {
		ids, parts, offs := make([]int64, len(rows)), make([]int32, len(rows)), make([]int64, len(rows))
		for i, r := range rows {
			ids[i], parts[i], offs[i] = r.id, r.partition, r.offset
		}
		_, err := marker.Exec(ctx, `UPDATE outbox_events t SET status = 'SENT', sent_at = clock_timestamp(), updated_at = clock_timestamp(),
			kafka_topic = $1, kafka_partition = u.p, kafka_offset = u.o
			FROM unnest($2::bigint[], $3::int[], $4::bigint[]) u (id, p, o) WHERE t.id = u.id`, rows[0].rec.Topic, ids, parts, offs)
		return err
	}
	return read, mark, func() {
		_ = reader.Close(context.WithoutCancel(ctx))
		_ = marker.Close(context.WithoutCancel(ctx))
	}, nil
}

func rawMySQL(b *bed) (readFunc, markFunc, func(), error) {
	read := func(ctx context.Context, after int64) ([]*rawRow, error) {
		rows, err := b.db.QueryContext(ctx, `SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload
			FROM outbox_events WHERE id > ? AND status = 'NEW' ORDER BY id LIMIT ?`, after, ceilingBatch)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }()
		var out []*rawRow
		for rows.Next() {
			var id int64
			var eventID, eventType, aggType, aggID string
			var payload []byte
			if err := rows.Scan(&id, &eventID, &eventType, &aggType, &aggID, &payload); err != nil {
				return nil, err
			}
			out = append(out, raw(id, eventID, eventType, aggType, aggID, payload))
		}
		return out, rows.Err()
	}
	mark := func(ctx context.Context, rows []*rawRow) error {
		// One statement a set: MySQL reads VALUES ROW, MariaDB a JSON table; both take a union.
		var q strings.Builder
		q.WriteString("UPDATE outbox_events t JOIN (")
		for i, r := range rows {
			if i > 0 {
				q.WriteString(" UNION ALL ")
			}
			fmt.Fprintf(&q, "SELECT %d AS id, %d AS p, %d AS o", r.id, r.partition, r.offset)
		}
		fmt.Fprintf(&q, `) u ON t.id = u.id SET t.status = 'SENT', t.sent_at = UTC_TIMESTAMP(6), t.updated_at = UTC_TIMESTAMP(6),
			t.kafka_topic = '%s', t.kafka_partition = u.p, t.kafka_offset = u.o`, rows[0].rec.Topic)
		_, err := b.db.ExecContext(ctx, q.String())
		return err
	}
	return read, mark, func() {}, nil
}

func raw(id int64, eventID, eventType, aggType, aggID string, payload []byte) *rawRow {
	return &rawRow{id: id, rec: &kgo.Record{Key: []byte(aggID), Value: payload, Headers: []kgo.RecordHeader{
		{Key: "event_id", Value: []byte(eventID)}, {Key: "event_type", Value: []byte(eventType)},
		{Key: "aggregate_type", Value: []byte(aggType)}, {Key: "aggregate_id", Value: []byte(aggID)},
		{Key: "content-type", Value: []byte("application/json")}, {Key: "source", Value: []byte("bench")}}}}
}
