package demo

import (
	"context"
	"fmt"
	"time"
)

// outboxState is the table's unsent rows at one moment.
type outboxState struct {
	fresh, failed, dead int
	held                int           // fresh and failed ones behind a dead one of their key
	oldest              time.Duration // age of the oldest fresh or failed one
}

// due are those that can be sent, now or at their time.
func (s outboxState) due() int { return s.fresh + s.failed - s.held }

// look counts by the table's own partial indexes, several times a second and however many rows are
// SENT. The relay's counts serve any layout, and may look at every row.
func (d *Demo) look(ctx context.Context) (s outboxState, err error) {
	const query = `
		WITH retried AS MATERIALIZED (
			SELECT aggregate_id, status, last_error, created_at FROM outbox_events WHERE next_retry_at IS NOT NULL),
		blocked AS (
			SELECT DISTINCT aggregate_id FROM retried WHERE status = 'DEAD' AND last_error NOT LIKE 'discarded:%'),
		oldest AS (
			SELECT * FROM (SELECT created_at FROM outbox_events WHERE status = 'NEW' ORDER BY id LIMIT 1)
			UNION ALL
			SELECT min(created_at) FROM retried WHERE status = 'FAILED')
		SELECT
			(SELECT count(*) FROM outbox_events WHERE status = 'NEW'),
			(SELECT count(*) FROM retried WHERE status = 'FAILED'),
			(SELECT count(*) FROM retried WHERE status = 'DEAD'),
			(SELECT count(*) FROM outbox_events WHERE status = 'NEW' AND aggregate_id IN (SELECT aggregate_id FROM blocked)) +
			(SELECT count(*) FROM retried WHERE status = 'FAILED' AND aggregate_id IN (SELECT aggregate_id FROM blocked)),
			(SELECT coalesce((julianday('now') - julianday(min(created_at))) * 86400, 0) FROM oldest)`
	var age float64
	err = d.reader.QueryRowContext(ctx, query).Scan(&s.fresh, &s.failed, &s.dead, &s.held, &age)
	if err != nil {
		return s, fmt.Errorf("count events: %w", err)
	}
	s.oldest = max(time.Duration(age*float64(time.Second)), 0)
	return s, nil
}

// DeadEvent is an event that waits for a person.
type DeadEvent struct {
	ID, Key, Type, Error string
}

// mostDead bounds how many dead events are looked at or treated at once.
const mostDead = 500

// dead lists the dead events that nobody has discarded, the oldest first.
func (d *Demo) dead(ctx context.Context) ([]DeadEvent, error) {
	rows, err := d.reader.QueryContext(ctx, `
		SELECT event_id, aggregate_id, event_type, last_error FROM outbox_events
		WHERE next_retry_at IS NOT NULL AND status = 'DEAD' AND last_error NOT LIKE 'discarded:%'
		ORDER BY id LIMIT ?`, mostDead)
	if err != nil {
		return nil, fmt.Errorf("list dead events: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var dead []DeadEvent
	for rows.Next() {
		var e DeadEvent
		if err := rows.Scan(&e.ID, &e.Key, &e.Type, &e.Error); err != nil {
			return nil, fmt.Errorf("list dead events: %w", err)
		}
		dead = append(dead, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list dead events: %w", err)
	}
	return dead, nil
}
