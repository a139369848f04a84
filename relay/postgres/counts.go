package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// newScanFactor bounds how many rows a count of new rows looks at on the product's own table, which has no
// index of the state: so many for each row of the bound.
const newScanFactor = 20

// Counts implements relay.Admin. Each number comes from an index, or from a bounded read by primary key.
func (s *Store) Counts(ctx context.Context, bound int) (relay.Counts, error) {
	l := s.layout
	bound = max(bound, 1)
	low := s.lowEnd(ctx)
	var c relay.Counts
	stmts := []stmt{s.countNew(low, bound, &c.New)}
	if l.cols.Status != "" {
		stmts = append(stmts,
			l.count(l.isSending(), bound, &c.Sending), l.count(l.tried(l.isFailed()), bound, &c.Failed),
			l.count(l.stateIs(relay.StateDead), bound, &c.Dead), l.countKeys(bound, &c.BlockedKeys))
	} else {
		c.Sending.Exact, c.Failed.Exact, c.Dead.Exact, c.BlockedKeys.Exact = true, true, true, true
	}
	if l.cols.CreatedAt != "" {
		stmts = append(stmts, s.oldest(low, bound, &c.OldestPendingAge))
	}
	if err := s.db.tx(ctx, stmts...); err != nil {
		return relay.Counts{}, fmt.Errorf("count events: %w", err)
	}
	return c, nil
}

// lowEnd is an id below which nothing is new.
func (s *Store) lowEnd(ctx context.Context) int64 {
	s.started.Lock()
	running := s.beginning
	s.started.Unlock()
	if running {
		return s.engine.low()
	}
	if !s.layout.own {
		return 0
	}
	cursor, err := (&keeper{store: s}).savedCursor(ctx)
	if err != nil {
		return 0
	}
	return cursor + 1
}

// tried narrows a condition to the index of rows that failed, where there is one.
func (l *layout) tried(where string) string {
	if l.own {
		return l.col(l.cols.NextRetryAt, "timestamptz") + " IS NOT NULL AND " + where
	}
	return where
}

func (l *layout) isSending() string {
	if l.sending == "" {
		return "FALSE"
	}
	return l.tried(l.status() + " = " + l.sending)
}

// untried is the condition for NEW rows that never failed.
func (l *layout) untried() string {
	if l.failedIsNew() {
		return "(" + l.isNew() + " AND NOT " + l.isFailed() + ")"
	}
	return l.isNew()
}

func (l *layout) count(where string, bound int, into *relay.Count) stmt {
	return stmt{
		sql:  fmt.Sprintf("SELECT count(*) FROM (SELECT FROM %s t WHERE %s LIMIT $1::int8 + 1) x", l.table, where),
		args: []any{bound}, read: bounded(bound, into),
	}
}

func bounded(bound int, into *relay.Count) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
		*into = relay.Count{Value: min(n, int64(bound)), Exact: n <= int64(bound)}
		return err
	}
}

// countNew counts by the index of the state, or from the low end on.
func (s *Store) countNew(low int64, bound int, into *relay.Count) stmt {
	l := s.layout
	if l.statusIndex {
		return l.count(l.untried(), bound, into)
	}
	id := l.col(l.cols.ID, "int8")
	looks := bound * newScanFactor
	query := fmt.Sprintf(`SELECT count(*) FILTER (WHERE x.fresh), count(*) FROM (SELECT %s AS fresh FROM %s t WHERE %s >= $1::int8 ORDER BY %s LIMIT $2::int8) x`,
		l.untried(), l.table, id, id)
	return stmt{sql: query, args: []any{low, looks}, read: func(rows pgx.Rows) error {
		var n, looked int64
		if _, err := pgx.ForEachRow(rows, []any{&n, &looked}, func() error { return nil }); err != nil {
			return err
		}
		*into = relay.Count{Value: min(n, int64(bound)), Exact: n <= int64(bound) && looked < int64(looks)}
		return nil
	}}
}

// countKeys counts the keys of rows in doubt.
func (l *layout) countKeys(bound int, into *relay.Count) stmt {
	query := fmt.Sprintf("SELECT count(DISTINCT x.key), count(*) FROM (SELECT %s AS key FROM %s t WHERE %s AND %s IS NOT NULL LIMIT $1::int8 + 1) x",
		l.key(), l.table, l.inDoubt(), l.key())
	return stmt{sql: query, args: []any{bound}, read: func(rows pgx.Rows) error {
		var keys, looked int64
		if _, err := pgx.ForEachRow(rows, []any{&keys, &looked}, func() error { return nil }); err != nil {
			return err
		}
		*into = relay.Count{Value: min(keys, int64(bound)), Exact: looked <= int64(bound)}
		return nil
	}}
}

// oldest looks at the first new row and at a bounded number of those that failed or are claimed.
func (s *Store) oldest(low int64, bound int, into *time.Duration) stmt {
	l := s.layout
	id, created := l.col(l.cols.ID, "int8"), l.instant(l.cols.CreatedAt)
	fresh := fmt.Sprintf("SELECT %s AS at FROM (SELECT * FROM %s t WHERE %s >= %d ORDER BY %s LIMIT %d) t WHERE %s LIMIT 1",
		created, l.table, id, low, id, bound*newScanFactor, l.isNew())
	if l.statusIndex {
		fresh = fmt.Sprintf("SELECT %s AS at FROM %s t WHERE %s LIMIT %d", created, l.table, l.isNew(), bound)
	}
	query := fmt.Sprintf("(%s)", fresh)
	if l.cols.Status != "" {
		query += fmt.Sprintf(" UNION ALL (SELECT %s FROM %s t WHERE %s LIMIT %d) UNION ALL (SELECT %s FROM %s t WHERE %s LIMIT %d)",
			created, l.table, l.tried(l.isFailed()), bound, created, l.table, l.isSending(), bound)
	}
	query = "SELECT coalesce(greatest(extract(epoch FROM statement_timestamp() - min(x.at)), 0), 0)::float8 FROM (" + query + ") x"
	return stmt{sql: query, read: func(rows pgx.Rows) error {
		seconds, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[float64])
		*into = time.Duration(seconds * float64(time.Second))
		return err
	}}
}
