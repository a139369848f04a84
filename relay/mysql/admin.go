package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

// Counts counts each state up to bound rows.
func (s *Store) Counts(ctx context.Context, bound int) (relay.Counts, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	l := s.layout()
	bound = max(bound, 1)
	var c relay.Counts
	for _, count := range []struct {
		into  *relay.Count
		what  string
		where string
	}{
		{&c.New, "1", l.stateWhere(relay.StateNew)}, {&c.Sending, "1", l.stateWhere(relay.StateSending)},
		{&c.Failed, "1", l.failedWhere()}, {&c.Dead, "1", l.stateWhere(relay.StateDead)},
		{&c.BlockedKeys, "DISTINCT " + l.key, "(" + l.blockingWhere() + ") AND " + l.key + " IS NOT NULL"},
	} {
		var n int64
		err := s.db.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT %s FROM %s%s WHERE %s LIMIT %d) t",
			count.what, l.table, l.plan.statusIndex, count.where, bound+1)).Scan(&n)
		if err != nil {
			return c, fmt.Errorf("count events: %w", err)
		}
		*count.into = relay.Count{Value: min(n, int64(bound)), Exact: n <= int64(bound)}
	}
	s.countParked(&c)
	return c, s.oldest(ctx, &c)
}

// countParked moves rows that only this store knows about to where they belong.
func (s *Store) countParked(c *relay.Counts) {
	for _, r := range s.parkedRows() {
		c.New.Value = max(0, c.New.Value-1)
		if r.dead {
			c.Dead.Value++
		} else {
			c.Failed.Value++
		}
	}
}

// oldest looks at the first row of each state that waits, as its index gives it.
func (s *Store) oldest(ctx context.Context, c *relay.Counts) error {
	l := s.layout()
	if l.cols.CreatedAt == "" {
		return nil
	}
	for _, state := range []relay.State{relay.StateNew, relay.StateSending, relay.StateFailed} {
		order := " ORDER BY " + col(l.cols.ID)
		if l.plan.sorted { // sorting the backlog for one figure is too much: any early row will do
			order = ""
		}
		var age sql.NullFloat64
		err := s.db.QueryRowContext(ctx, fmt.Sprintf("SELECT UNIX_TIMESTAMP(NOW(6)) - %s FROM %s%s WHERE %s%s LIMIT 1",
			instant(l.cols.CreatedAt), l.table, l.plan.statusIndex, l.stateWhere(state), order)).Scan(&age)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("look for the oldest event: %w", err)
		}
		c.OldestPendingAge = max(c.OldestPendingAge, time.Duration(age.Float64*float64(time.Second)))
	}
	return nil
}

// where turns a filter into a condition; state is a condition on the state, "" for the filter's own.
func (l *layout) where(f relay.Filter, state string) (string, []any, error) {
	where, args := []string{"TRUE"}, []any{}
	equal := func(name, value string) {
		if value != "" {
			where, args = append(where, col(name)+" = ?"), append(args, value)
		}
	}
	if state != "" {
		where = append(where, "("+state+")")
	}
	if len(f.States) > 0 {
		var any []string
		for _, st := range f.States {
			any = append(any, "("+l.stateWhere(st)+")")
		}
		where = append(where, "("+strings.Join(any, " OR ")+")")
	}
	if len(f.EventIDs) > 0 {
		where = append(where, l.eventIs(len(f.EventIDs)))
		for _, id := range f.EventIDs {
			args = append(args, id)
		}
	}
	equal(l.cols.EventType, f.Type)
	equal(l.cols.AggregateType, f.AggregateType)
	equal(l.cols.Topic, f.Topic)
	if f.Key != "" {
		where, args = append(where, l.key+" = ?"), append(args, []byte(f.Key))
	}
	if f.Error != "" {
		where, args = append(where, "LOCATE(?, COALESCE("+col(l.cols.LastError)+", '')) > 0"), append(args, f.Error)
	}
	if f.Since > 0 && l.cols.CreatedAt != "" {
		where = append(where, fmt.Sprintf("%s >= NOW(6) - INTERVAL %d MICROSECOND", col(l.cols.CreatedAt),
			f.Since.Microseconds()))
	}
	if f.After != "" {
		n, err := l.rowNumber(f.After)
		if err != nil {
			return "", nil, err
		}
		where = append(where, col(l.cols.ID)+" > "+l.digits(n))
	}
	return strings.Join(where, " AND "), args, nil
}

func (l *layout) stateWhere(st relay.State) string {
	switch {
	case l.cols.Status == "":
		if st == relay.StateNew {
			return "TRUE"
		}
		return "FALSE"
	case st == relay.StateFailed:
		return l.failedWhere()
	case st == relay.StateDead:
		return l.deadWhere()
	case st == relay.StateDiscarded:
		return l.discardedWhere()
	case st == relay.StateNew && l.sameWord() && l.nullNRA:
		return l.status(l.states.New) + " AND " + col(l.cols.NextRetryAt) + " IS NULL"
	case st == relay.StateNew && l.sameWord():
		return l.status(l.states.New) + " AND NOT (" + l.failedWhere() + ")"
	case l.word(st) == "":
		return "FALSE"
	default:
		return l.status(l.word(st))
	}
}

// List returns matching rows in ascending order without payloads.
func (s *Store) List(ctx context.Context, f relay.Filter) ([]relay.EventRow, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if f.Limit <= 0 {
		f.Limit = 50
	}
	where, args, err := s.layout().where(f, "")
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	rows, err := s.rows(ctx, false, s.index(f)+" WHERE "+where+fmt.Sprintf(" ORDER BY %s LIMIT %d",
		col(s.layout().cols.ID), f.Limit), args)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return rows, nil
}

// index keeps a question about states from walking the whole table. Event ids have an index of their
// own, and sent rows are most of the table.
func (s *Store) index(f relay.Filter) string {
	if len(f.EventIDs) > 0 || len(f.States) == 0 {
		return ""
	}
	for _, st := range f.States {
		if st == relay.StateSent {
			return ""
		}
	}
	return s.layout().plan.statusIndex
}

// Get returns one row with its payload.
func (s *Store) Get(ctx context.Context, eventID string) (relay.EventRow, bool, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	rows, err := s.rows(ctx, true, fmt.Sprintf(" WHERE %s ORDER BY %s LIMIT 1", s.layout().eventIs(1),
		col(s.layout().cols.ID)), []any{eventID})
	if err != nil {
		return relay.EventRow{}, false, fmt.Errorf("read event: %w", err)
	}
	if len(rows) == 0 {
		return relay.EventRow{}, false, nil
	}
	return rows[0], true, nil
}

func (s *Store) rows(ctx context.Context, withPayload bool, tail string, args []any) ([]relay.EventRow, error) {
	l := s.layout()
	at := func(name string) string {
		if name == "" {
			return "NULL"
		}
		return instant(name)
	}
	query := fmt.Sprintf("SELECT 0, %s, %s, %s, %s, %s, %s, %s, %s FROM %s%s", l.eventColumns(withPayload),
		at(l.cols.NextRetryAt), col(l.cols.LastError), at(l.cols.UpdatedAt), at(l.cols.SentAt),
		col(l.cols.KafkaTopic), col(l.cols.KafkaPartition), col(l.cols.KafkaOffset), l.table, tail)
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []relay.EventRow
	for rows.Next() {
		r := newEventRow()
		var x extras
		if err := rows.Scan(append(r.dest, x.dest()...)...); err != nil {
			return nil, err
		}
		row, err := x.row(r, l)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

// extras are the columns that only people look at.
type extras struct {
	next, updated, sent, lastError, topic sql.NullString
	partition                             sql.NullInt32
	offset                                sql.NullInt64
}

func (x *extras) dest() []any {
	return []any{&x.next, &x.lastError, &x.updated, &x.sent, &x.topic, &x.partition, &x.offset}
}

func (x *extras) row(r *eventRow, l *layout) (relay.EventRow, error) {
	e, err := r.event(l)
	if err != nil {
		return relay.EventRow{}, err
	}
	row := relay.EventRow{Event: e, Status: r.status.String, LastError: x.lastError.String,
		Discarded: e.State == relay.StateDead && strings.HasPrefix(x.lastError.String, "discarded:")}
	for _, t := range []struct {
		text sql.NullString
		into *time.Time
	}{{x.next, &row.NextRetryAt}, {x.updated, &row.UpdatedAt}, {x.sent, &row.SentAt}} {
		if t.text.Valid {
			if *t.into, err = moment(t.text.String); err != nil {
				return row, err
			}
		}
	}
	if row.State == relay.StateDead {
		row.NextRetryAt = time.Time{} // it has no next attempt
	}
	if x.offset.Valid {
		row.Receipt = &relay.Receipt{Topic: x.topic.String, Partition: x.partition.Int32, Offset: x.offset.Int64}
	}
	return row, nil
}
