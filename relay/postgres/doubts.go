package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// discardedPrefix begins the last_error of a dead row that was given up.
const discardedPrefix = "discarded:"

// discarded is the condition for it.
func (l *layout) discarded() string {
	if l.cols.LastError == "" {
		return "FALSE"
	}
	return fmt.Sprintf("(%s = %s AND starts_with(coalesce(%s, ''), '%s'))", l.status(), l.dead, l.text(l.cols.LastError), discardedPrefix)
}

// isFailed is the condition for FAILED rows, attempted ones of NEW where they share the word.
func (l *layout) isFailed() string {
	if l.failedIsNew() {
		return fmt.Sprintf("(%s AND %s > 0)", l.isNew(), l.attempts())
	}
	return l.status() + " = " + l.failed
}

// inDoubt is the condition for rows that block their key, in a form that an index can serve.
func (l *layout) inDoubt() string {
	dead := fmt.Sprintf("%s = %s AND NOT %s", l.status(), l.dead, l.discarded())
	where := l.isFailed()
	if l.onDead == relay.OnDeadHold {
		where = fmt.Sprintf("(%s OR %s)", where, dead)
	}
	if l.own {
		where = fmt.Sprintf("%s IS NOT NULL AND %s", l.col(l.cols.NextRetryAt, "timestamptz"), where)
	}
	return where
}

// Doubts implements relay.Store.
func (s *Store) Doubts(ctx context.Context, limit int) ([]relay.Doubt, error) {
	l := s.layout
	if l.cols.Status == "" {
		return nil, nil
	}
	lanes := s.engine.owned()
	if lanes.none() {
		return nil, nil
	}
	mine, args := "", []any{limit}
	if only := lanes.filter(); only != nil {
		mine, args = " AND "+l.inLane(2), append(args, only)
	}
	id := l.col(l.cols.ID, "int8")
	query := fmt.Sprintf(`SELECT %s::int8, %s, %s = %s,
			CASE WHEN %s IN ('infinity', '-infinity') THEN 0 ELSE coalesce(greatest(extract(epoch FROM %s - statement_timestamp()), 0), 0) END::float8
		FROM %s t WHERE %s AND %s IS NOT NULL%s ORDER BY %s + 0 LIMIT $1::int8`,
		id, l.key(), l.status(), l.dead, l.col(l.cols.NextRetryAt, "timestamptz"), l.instant(l.cols.NextRetryAt),
		l.table, l.inDoubt(), l.key(), mine, id)
	var out []relay.Doubt
	err := s.db.tx(ctx, stmt{sql: query, args: args, read: func(rows pgx.Rows) (err error) {
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d relay.Doubt, err error) {
			var id int64
			var dead bool
			var wait float64
			err = row.Scan(&id, &d.Key, &dead, &wait)
			d.Row, d.State = rowID(id), relay.StateFailed
			if dead {
				d.State = relay.StateDead
			} else {
				d.DueIn = time.Duration(wait * float64(time.Second))
			}
			return d, err
		})
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("list rows in doubt: %w", err)
	}
	return out, nil
}

// StillBlocking implements relay.Store.
func (s *Store) StillBlocking(ctx context.Context, rows []relay.RowID) ([]relay.RowID, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	l := s.layout
	if l.cols.Status == "" {
		return slices.DeleteFunc(slices.Clone(rows), func(r relay.RowID) bool { return !s.reader.memory.has(parseRow(r)) }), nil
	}
	id := l.col(l.cols.ID, "int8")
	query := fmt.Sprintf("SELECT %s::int8 FROM %s t WHERE %s = ANY ($1::int8[]) AND %s",
		id, l.table, id, byID(fmt.Sprintf("%s OR %s = %s AND NOT %s", l.isFailed(), l.status(), l.dead, l.discarded())))
	var still []relay.RowID
	err := s.db.tx(ctx, stmt{sql: query, args: []any{parseRows(rows)}, read: func(rs pgx.Rows) error {
		ids, err := pgx.CollectRows(rs, pgx.RowTo[int64])
		still = nil
		for _, id := range ids {
			still = append(still, rowID(id))
		}
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("look at rows in doubt: %w", err)
	}
	return still, nil
}
