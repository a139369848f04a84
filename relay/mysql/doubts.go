package mysql

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/relay"
)

// Doubts lists rows that hold their key, oldest first.
func (s *Store) Doubts(ctx context.Context, limit int) ([]relay.Doubt, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	l := s.layout()
	if l.cols.Status == "" || l.key == "NULL" || s.laneless() {
		return nil, nil
	}
	out, err := s.doubts(ctx, relay.StateFailed, l.failedWhere(), limit)
	if err == nil && l.onDead != relay.OnDeadSkip {
		var dead []relay.Doubt
		dead, err = s.doubts(ctx, relay.StateDead, l.deadWhere(), limit)
		out = append(out, dead...)
	}
	if err != nil {
		return nil, fmt.Errorf("read events in doubt: %w", err)
	}
	slices.SortFunc(out, func(a, b relay.Doubt) int {
		x, _ := l.rowNumber(a.Row)
		y, _ := l.rowNumber(b.Row)
		if x < y {
			return -1
		}
		return 1
	})
	return out[:min(len(out), limit)], nil
}

func (s *Store) doubts(ctx context.Context, state relay.State, where string, limit int) ([]relay.Doubt, error) {
	l := s.layout()
	next := col(l.cols.NextRetryAt)
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf(
		"SELECT %[1]s, %[2]s, COALESCE(GREATEST(TIMESTAMPDIFF(MICROSECOND, NOW(6), %[3]s), 0), 0) FROM %[4]s%[5]s WHERE %[6]s AND %[2]s IS NOT NULL%[8]s ORDER BY %[1]s LIMIT %[7]d",
		col(l.cols.ID), l.key, next, l.table, l.plan.statusIndex, where, limit, s.inLanes()))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []relay.Doubt
	for rows.Next() {
		var id string
		var micros int64
		d := relay.Doubt{State: state}
		if err := rows.Scan(&id, &d.Key, &micros); err != nil {
			return nil, err
		}
		d.Row = relay.RowID(id)
		if state == relay.StateFailed {
			d.DueIn = time.Duration(micros) * time.Microsecond
		}
		out = append(out, d)
	}
	return out, rows.Err()
}

// StillBlocking returns those of rows that are FAILED, or DEAD and not discarded.
func (s *Store) StillBlocking(ctx context.Context, rows []relay.RowID) ([]relay.RowID, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	l := s.layout()
	numbers := make([]uint64, len(rows))
	for i, row := range rows {
		n, err := l.rowNumber(row)
		if err != nil {
			return nil, fmt.Errorf("look at blocked rows: %w", err)
		}
		numbers[i] = n
	}
	where := l.blockingWhere()
	if l.cols.Status == "" {
		where = "TRUE"
	}
	found, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT %[1]s FROM %[2]s WHERE %[1]s IN (%[3]s) AND (%[4]s)",
		col(l.cols.ID), l.table, l.list(numbers), where))
	if err != nil {
		return nil, fmt.Errorf("look at blocked rows: %w", err)
	}
	defer found.Close()
	held := s.parkedRows()
	var out []relay.RowID
	for found.Next() {
		var id string
		if err := found.Scan(&id); err != nil {
			return nil, fmt.Errorf("look at blocked rows: %w", err)
		}
		n, err := l.rowNumber(relay.RowID(id))
		if err != nil {
			return nil, fmt.Errorf("look at blocked rows: %w", err)
		}
		if _, parked := held[n]; parked || l.cols.Status != "" {
			out = append(out, relay.RowID(id))
		}
	}
	return out, found.Err()
}
