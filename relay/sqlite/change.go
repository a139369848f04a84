package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	sets := []string{
		col(l.cols.Status) + " = " + lit(l.states.Failed),
		col(l.cols.RetryCount) + " = 0",
		col(l.cols.NextRetryAt) + " = " + l.clocks[l.cols.NextRetryAt].at("'now'", ""),
	}
	dead := l.deadWhere()
	if len(f.EventIDs) > 0 {
		dead = l.status(l.states.Dead) // however it came to be
	}
	eligible := "(" + l.failedWhere() + ") OR (" + dead + ")"
	return s.change(ctx, f, eligible, l.touched(sets), dryRun)
}

// Discard gives up DEAD rows.
func (s *Store) Discard(ctx context.Context, f relay.Filter, reason string, dryRun bool) (done, skipped int64, err error) {
	l := s.layout()
	if l.cols.Status == "" {
		return 0, 0, errNoStatus
	}
	if l.cols.LastError == "" {
		return s.change(ctx, f, l.deadWhere(), nil, dryRun)
	}
	old := col(l.cols.LastError)
	note := lit("discarded: " + errorText(reason))
	sets := []string{fmt.Sprintf("%[1]s = CASE coalesce(%[1]s, '') WHEN '' THEN %[2]s ELSE %[2]s || ': ' || %[1]s END",
		old, note)}
	return s.change(ctx, f, l.deadWhere(), l.touched(sets), dryRun)
}

// KeepsDiscarded implements relay.Admin.
func (s *Store) KeepsDiscarded() bool { return s.layout().cols.LastError != "" }

var errNoStatus = errors.New("the table has no status column: its events are new until they are sent and deleted")

func (l *layout) touched(sets []string) []string {
	if l.cols.UpdatedAt == "" {
		return sets
	}
	return append(sets, col(l.cols.UpdatedAt)+" = "+l.clocks[l.cols.UpdatedAt].at("'now'", ""))
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
	others := []string{"NOT (" + eligible + ")"}
	if len(f.EventIDs) == 0 && len(f.States) == 0 {
		others = []string{l.stateWhere(relay.StateNew), l.stateWhere(relay.StateSending)}
	}
	for i, other := range others {
		from := l.table
		if len(others) > 1 {
			from = l.from([]relay.State{relay.StateNew, relay.StateSending}[i])
		}
		n, err := s.countWhere(ctx, f, from, other, skippedMax)
		if err != nil {
			return 0, 0, err
		}
		skipped += n
	}
	from := l.rest
	if len(f.EventIDs) > 0 {
		from = l.table
	}
	if dryRun {
		done, err = s.countWhere(ctx, f, from, eligible, f.Limit)
		return done, skipped, err
	}
	for left := f.Limit; f.Limit <= 0 || left > 0; left -= changeBatch {
		batch := changeBatch
		if f.Limit > 0 {
			batch = min(batch, left)
		}
		n, last, err := s.changeBatch(ctx, f, from, eligible, sets, batch)
		done += int64(n)
		if err != nil || n < batch {
			return done, skipped, err
		}
		f.After = last
	}
	return done, skipped, nil
}

func (s *Store) countWhere(ctx context.Context, f relay.Filter, from, state string, limit int) (int64, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	where, args, err := s.layout().where(f, state)
	if err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	if limit > 0 {
		where += fmt.Sprintf(" LIMIT %d", limit)
	}
	n, err := numbers(ctx, s.read, fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s WHERE %s)", from, where), args...)
	if err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	return n[0], nil
}

func (s *Store) changeBatch(ctx context.Context, f relay.Filter, from, eligible string, sets []string, limit int) (n int, last relay.RowID, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	where, args, err := s.layout().where(f, eligible)
	if err != nil {
		return 0, "", fmt.Errorf("change events: %w", err)
	}
	verb := "DELETE FROM " + s.layout().table
	if len(sets) > 0 {
		verb = "UPDATE " + s.layout().table + " SET " + strings.Join(sets, ", ")
	}
	changed, err := numbers(ctx, s.write, fmt.Sprintf("%s WHERE rowid IN (SELECT rowid FROM %s WHERE %s ORDER BY rowid LIMIT %d) RETURNING rowid",
		verb, from, where, limit), args...)
	if err != nil {
		return 0, "", fmt.Errorf("change events: %w", err)
	}
	if len(changed) == 0 {
		return 0, "", nil
	}
	return len(changed), rowID(slices.Max(changed)), nil
}
