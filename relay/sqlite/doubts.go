package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/relay"
)

// StillBlocking returns those of rows that are FAILED, or DEAD and not discarded.
func (s *Store) StillBlocking(ctx context.Context, rows []relay.RowID) ([]relay.RowID, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	ids := make([]int64, len(rows))
	for i, r := range rows {
		n, err := rowid(r)
		if err != nil {
			return nil, fmt.Errorf("look at blocked rows: %w", err)
		}
		ids[i] = n
	}
	l := *s.layout()
	l.own = false // rows that a person edited count too, whatever else their columns say
	where := "(" + l.blockingWhere() + ")"
	if l.cols.Status == "" {
		where = "1"
	}
	still, err := numbers(ctx, s.read, fmt.Sprintf("SELECT rowid FROM %s WHERE rowid IN (%s) AND %s", l.table,
		list(ids), where))
	if err != nil {
		return nil, fmt.Errorf("look at blocked rows: %w", err)
	}
	held := s.parkedRows()
	var out []relay.RowID
	for _, n := range still {
		if _, ok := held[n]; ok || l.cols.Status != "" {
			out = append(out, rowID(n))
		}
	}
	return out, nil
}

// blockingWhere are the rows that hold their key.
func (l *layout) blockingWhere() string {
	if l.onDead == relay.OnDeadSkip {
		return l.failedWhere()
	}
	return "(" + l.failedWhere() + ") OR (" + l.deadWhere() + ")"
}

// Doubts lists rows that hold their key, oldest first.
func (s *Store) Doubts(ctx context.Context, limit int) ([]relay.Doubt, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	l := s.layout()
	if l.cols.Status == "" || s.laneless() {
		return nil, nil
	}
	var out []relay.Doubt
	states := []relay.State{relay.StateFailed, relay.StateDead}
	if l.onDead == relay.OnDeadSkip {
		states = states[:1]
	}
	for _, state := range states {
		where := l.failedWhere()
		if state == relay.StateDead {
			where = l.deadWhere()
		}
		if err := s.doubts(ctx, state, where, limit, &out); err != nil {
			return nil, fmt.Errorf("read events in doubt: %w", err)
		}
	}
	slices.SortFunc(out, func(a, b relay.Doubt) int {
		x, _ := rowid(a.Row)
		y, _ := rowid(b.Row)
		return int(min(max(x-y, -1), 1))
	})
	return out[:min(len(out), limit)], nil
}

func (s *Store) doubts(ctx context.Context, state relay.State, where string, limit int, out *[]relay.Doubt) error {
	l := s.layout()
	rows, err := s.read.QueryContext(ctx, fmt.Sprintf("SELECT rowid, %s, coalesce(%s, 0) - %s FROM %s WHERE (%s) AND %s IS NOT NULL%s ORDER BY rowid LIMIT %d",
		l.key, columnMillis(col(l.cols.NextRetryAt)), now, l.rest, where, l.key, s.inLanes(), limit))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var n, wait int64
		d := relay.Doubt{State: state}
		if err := rows.Scan(&n, &d.Key, &wait); err != nil {
			return err
		}
		d.Row = rowID(n)
		if state == relay.StateFailed {
			d.DueIn = max(0, time.Duration(wait)*time.Millisecond)
		}
		*out = append(*out, d)
	}
	return rows.Err()
}

// querier is what a query runs on.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// numbers runs a query of one number a row.
func numbers(ctx context.Context, q querier, query string, args ...any) ([]int64, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []int64
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, rows.Err()
}
