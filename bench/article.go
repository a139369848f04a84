package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/outbox"
)

// articleRelay is the relay that people build from the article: claim ten rows, send one, wait for its
// acknowledgement, mark it in a transaction of its own, take the next.
func articleRelay(ctx context.Context, b *bed, s settings, topic string, n int) error {
	cl, err := producer(s.kafka)
	if err != nil {
		return err
	}
	defer cl.Close()
	// The article's table has an index for its scan; ours does not, so give it one.
	if b.dialect == outbox.Postgres {
		if _, err := b.db.ExecContext(ctx, "CREATE INDEX article_scan ON outbox_events (status, next_retry_at, id)"); err != nil {
			return err
		}
	}
	for done := 0; done < n; {
		rows, err := claimTen(ctx, b)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fmt.Errorf("nothing to claim after %d of %d", done, n)
		}
		for _, r := range rows {
			rec := &kgo.Record{Topic: topic, Key: []byte(r.key), Value: r.payload, Headers: []kgo.RecordHeader{{Key: "event_id", Value: []byte(r.eventID)}}}
			if err := cl.ProduceSync(ctx, rec).FirstErr(); err != nil {
				return err
			}
			if _, err := b.db.ExecContext(ctx, b.bind("UPDATE outbox_events SET status = 'SENT', sent_at = "+b.now()+" WHERE id = $1"), r.id); err != nil {
				return err
			}
			done++
		}
	}
	return nil
}

type articleRow struct {
	id      int64
	eventID string
	key     string
	payload []byte
}

func claimTen(ctx context.Context, b *bed) ([]articleRow, error) {
	if b.dialect == outbox.Postgres {
		rows, err := b.db.QueryContext(ctx, `
			WITH cte AS (SELECT id FROM outbox_events WHERE status IN ('NEW', 'FAILED')
				ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 10)
			UPDATE outbox_events o SET status = 'SENDING' FROM cte WHERE o.id = cte.id
			RETURNING o.id, o.event_id, o.aggregate_id, o.payload`)
		if err != nil {
			return nil, err
		}
		return scanArticle(rows)
	}
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(ctx, `SELECT id, event_id, aggregate_id, payload FROM outbox_events
		WHERE status = 'NEW' ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED`)
	if err != nil {
		return nil, err
	}
	claimed, err := scanArticle(rows)
	if err != nil {
		return nil, err
	}
	for _, r := range claimed {
		if _, err := tx.ExecContext(ctx, "UPDATE outbox_events SET status = 'SENDING' WHERE id = ?", r.id); err != nil {
			return nil, err
		}
	}
	return claimed, tx.Commit()
}

func scanArticle(rows *sql.Rows) ([]articleRow, error) {
	defer func() { _ = rows.Close() }()
	var out []articleRow
	for rows.Next() {
		var r articleRow
		if err := rows.Scan(&r.id, &r.eventID, &r.key, &r.payload); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

func (b *bed) now() string {
	if b.dialect == outbox.Postgres {
		return "clock_timestamp()"
	}
	return "UTC_TIMESTAMP(6)"
}

// bind turns $1 into the dialect's placeholder.
func (b *bed) bind(query string) string {
	if b.dialect == outbox.Postgres {
		return query
	}
	out := []byte{}
	for i := 0; i < len(query); i++ {
		if query[i] == '$' {
			out = append(out, '?')
			i++
			continue
		}
		out = append(out, query[i])
	}
	return string(out)
}
