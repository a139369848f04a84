package main

import (
	"context"
	"fmt"
	"time"
)

// marks compares the mark of the own table's layout (no index over what a mark changes: a heap-only
// update) with the same table and an index that mentions status, whole or partial.
func marks(ctx context.Context, s settings) error {
	if scheme(s.database) != "postgres" && scheme(s.database) != "postgresql" {
		return fmt.Errorf("heap-only updates are PostgreSQL's; use a postgres:// database")
	}
	layouts := []struct{ name, index string }{
		{"own layout", ""},
		{"index (status, next_retry_at, id)", "CREATE INDEX extra ON outbox_events (status, next_retry_at, id)"},
		{"partial index WHERE status = 'NEW'", "CREATE INDEX extra ON outbox_events (id) WHERE status = 'NEW'"},
	}
	rates := make([][]float64, len(layouts))
	for range s.rounds {
		for i, l := range layouts {
			rate, err := markRate(ctx, s, l.index)
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], rate)
		}
	}
	for i, l := range layouts {
		fmt.Printf("%-36s %8.0f rows/s  %5.2f of the own layout\n", l.name, median(rates[i]), median(rates[i])/median(rates[0]))
	}
	return nil
}

func markRate(ctx context.Context, s settings, index string) (float64, error) {
	b, err := newBed(ctx, s)
	if err != nil {
		return 0, err
	}
	defer b.close()
	if index != "" {
		if _, err := b.db.ExecContext(ctx, index); err != nil {
			return 0, err
		}
	}
	if err := b.fill(ctx, s.events, s.size, s.keys, "t"); err != nil {
		return 0, err
	}
	_, mark, done, err := rawDatabase(ctx, b)
	if err != nil {
		return 0, err
	}
	defer done()
	var first int64
	if err := b.db.QueryRowContext(ctx, "SELECT min(id) FROM outbox_events").Scan(&first); err != nil {
		return 0, err
	}
	began := time.Now()
	for from := 0; from < s.events; from += ceilingBatch {
		rows := make([]*rawRow, min(ceilingBatch, s.events-from))
		for i := range rows {
			rows[i] = raw(first+int64(from+i), "", "", "", "", nil)
			rows[i].rec.Topic = "orders"
		}
		if err := mark(ctx, rows); err != nil {
			return 0, err
		}
	}
	return float64(s.events) / time.Since(began).Seconds(), nil
}
