package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/relay"
)

// Retry makes FAILED and DEAD rows due now and counts their attempts from 0 again. A row that was
// discarded comes back only when it is named.
func (s *Store) Retry(ctx context.Context, f relay.Filter, dryRun bool) (done, skipped int64, err error) {
	l := s.layout()
	if l.cols.Status == "" {
		return 0, 0, errNoStatus
	}
	sets := l.touched([]string{
		col(l.cols.Status) + " = " + quote(l.states.Failed),
		col(l.cols.RetryCount) + " = 0",
		col(l.cols.NextRetryAt) + " = " + l.now(l.cols.NextRetryAt),
	})
	dead := l.deadWhere()
	if len(f.EventIDs) > 0 {
		dead = l.status(l.states.Dead)
	}
	return s.change(ctx, f, "("+l.failedWhere()+") OR ("+dead+")", sets, dryRun)
}

// Discard gives up DEAD rows.
func (s *Store) Discard(ctx context.Context, f relay.Filter, reason string, dryRun bool) (done, skipped int64, err error) {
	l := s.layout()
	if l.cols.Status == "" {
		return 0, 0, errNoStatus
	}
	c, ok := l.catalog.column(l.cols.LastError)
	if !ok {
		return s.change(ctx, f, l.deadWhere(), nil, dryRun)
	}
	// What was there moves behind the reason, and is cut by what the column holds; TEXT holds bytes.
	size := min(c.length, 4*maxError)
	if !strings.HasSuffix(c.dataType, "char") {
		size /= 4
	}
	set := fmt.Sprintf("%[1]s = LEFT(CONCAT(CONVERT(%[2]s USING %[3]s), IF(COALESCE(%[1]s, '') = '', '', CONCAT(': ', %[1]s))), %[4]d)",
		col(c.name), quote("discarded: "+l.cutError(reason)), c.charset, size)
	return s.change(ctx, f, l.deadWhere(), l.touched([]string{set}), dryRun)
}

// KeepsDiscarded implements relay.Admin.
func (s *Store) KeepsDiscarded() bool { return s.layout().cols.LastError != "" }

var errNoStatus = errors.New("the table has no status column: its events are new until they are sent and deleted")

func (l *layout) touched(sets []string) []string {
	if l.cols.UpdatedAt == "" {
		return sets
	}
	return append(sets, col(l.cols.UpdatedAt)+" = "+l.now(l.cols.UpdatedAt))
}

// Bounds of a change by an operator: rows a transaction, and rows looked at to tell how many were
// skipped.
const (
	changeBatch = 1000
	skippedMax  = 10_000
)

// change applies sets (nil: deletes) to the filter's rows that are eligible, in short transactions. It
// counts those it skips: of the rows that are named by id or state, else of those on their way.
func (s *Store) change(ctx context.Context, f relay.Filter, eligible string, sets []string, dryRun bool) (done, skipped int64, err error) {
	l := s.layout()
	others, index := []string{"NOT (" + eligible + ")"}, ""
	if len(f.EventIDs) == 0 && len(f.States) == 0 {
		others, index = []string{l.stateWhere(relay.StateNew), l.stateWhere(relay.StateSending)}, l.plan.statusIndex
	}
	for _, other := range others {
		n, err := s.countWhere(ctx, f, other, index, skippedMax)
		if err != nil {
			return 0, 0, err
		}
		skipped += n
	}
	index = l.plan.statusIndex
	if len(f.EventIDs) > 0 {
		index = "" // event ids have an index of their own
	}
	if dryRun {
		done, err = s.countWhere(ctx, f, eligible, index, f.Limit)
		return done, skipped, err
	}
	for left := f.Limit; f.Limit <= 0 || left > 0; left -= changeBatch {
		batch := changeBatch
		if f.Limit > 0 {
			batch = min(batch, left)
		}
		n, last, err := s.changeBatch(ctx, f, eligible, index, sets, batch)
		done += int64(n)
		if err != nil || last == "" {
			return done, skipped, err
		}
		f.After = last
	}
	return done, skipped, nil
}

func (s *Store) countWhere(ctx context.Context, f relay.Filter, state, index string, limit int) (n int64, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	where, args, err := s.layout().where(f, state)
	if err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	if limit > 0 {
		where += fmt.Sprintf(" LIMIT %d", limit)
	}
	if err := s.db.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM %s%s WHERE %s) t", s.layout().table, index, where), args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	return n, nil
}

// changeBatch finds rows without locks and changes those of them that are still eligible, by their ids.
// last is empty when there were no more.
func (s *Store) changeBatch(ctx context.Context, f relay.Filter, eligible, index string, sets []string, limit int) (n int, last relay.RowID, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	l := s.layout()
	where, args, err := l.where(f, eligible)
	if err != nil {
		return 0, "", fmt.Errorf("change events: %w", err)
	}
	verb := "DELETE FROM " + l.table
	if len(sets) > 0 {
		verb = "UPDATE " + l.table + " SET " + strings.Join(sets, ", ")
	}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		numbers, err := l.numbers(ctx, tx, fmt.Sprintf("SELECT %[1]s FROM %[2]s%[3]s WHERE %[4]s ORDER BY %[1]s LIMIT %[5]d",
			col(l.cols.ID), l.table, index, where, limit), args...)
		if err != nil || len(numbers) == 0 {
			return err
		}
		r, err := tx.ExecContext(ctx, fmt.Sprintf("%s WHERE %s IN (%s) AND (%s)", verb, col(l.cols.ID),
			l.list(numbers), eligible))
		if err != nil {
			return err
		}
		affected, err := r.RowsAffected()
		n, last = int(affected), ""
		if len(numbers) == limit {
			last = relay.RowID(l.digits(numbers[len(numbers)-1]))
		}
		return err
	})
	if err != nil {
		return 0, "", fmt.Errorf("change events: %w", err)
	}
	return n, last, nil
}

// numbers runs a query of one id a row.
func (l *layout) numbers(ctx context.Context, q querier, query string, args ...any) ([]uint64, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []uint64
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		n, err := l.rowNumber(relay.RowID(id))
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, rows.Err()
}
