package sqlite

import (
	"context"
	"database/sql"
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
	pending := []relay.State{relay.StateNew, relay.StateSending, relay.StateFailed}
	for state, into := range map[relay.State]*relay.Count{
		relay.StateNew: &c.New, relay.StateSending: &c.Sending, relay.StateFailed: &c.Failed, relay.StateDead: &c.Dead,
	} {
		if err := s.count(ctx, into, "1", l.from(state), l.stateWhere(state), bound); err != nil {
			return c, err
		}
	}
	keys := "(" + l.blockingWhere() + ") AND " + l.key + " IS NOT NULL"
	if err := s.count(ctx, &c.BlockedKeys, "DISTINCT "+l.key, l.from(relay.StateFailed), keys, bound); err != nil {
		return c, err
	}
	s.countParked(&c)
	return c, s.oldest(ctx, &c, pending)
}

func (s *Store) count(ctx context.Context, into *relay.Count, what, from, where string, bound int) error {
	n, err := numbers(ctx, s.read, fmt.Sprintf("SELECT count(*) FROM (SELECT %s FROM %s WHERE %s LIMIT %d)", what,
		from, where, bound+1))
	if err != nil {
		return fmt.Errorf("count events: %w", err)
	}
	*into = relay.Count{Value: min(n[0], int64(bound)), Exact: n[0] <= int64(bound)}
	return nil
}

// from is the table by the index that finds rows of these states, if one index finds them all.
func (l *layout) from(states ...relay.State) string {
	from := ""
	for _, st := range states {
		next := l.table
		switch st {
		case relay.StateNew:
			if next = l.fresh; l.sameWord() {
				next = l.rest
			}
		case relay.StateFailed, relay.StateDead, relay.StateDiscarded, relay.StateSending:
			next = l.rest
		}
		if from != "" && from != next {
			return l.table
		}
		from = next
	}
	if from == "" {
		return l.table
	}
	return from
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

// oldest looks at the first row of each state that waits.
func (s *Store) oldest(ctx context.Context, c *relay.Counts, states []relay.State) error {
	l := s.layout()
	if l.cols.CreatedAt == "" {
		return nil
	}
	for _, state := range states {
		ages, err := numbers(ctx, s.read, fmt.Sprintf("SELECT coalesce(%s - %s, 0) FROM %s WHERE %s ORDER BY rowid LIMIT 1",
			now, columnMillis(col(l.cols.CreatedAt)), l.from(state), l.stateWhere(state)))
		if err != nil {
			return fmt.Errorf("look for the oldest event: %w", err)
		}
		if len(ages) > 0 {
			c.OldestPendingAge = max(c.OldestPendingAge, time.Duration(ages[0])*time.Millisecond)
		}
	}
	return nil
}

// where turns a filter into a condition; state is a condition on the state, "" for the filter's own.
func (l *layout) where(f relay.Filter, state string) (string, []any, error) {
	where, args := []string{"1"}, []any{}
	equal := func(expr, value string) {
		if value != "" {
			where, args = append(where, expr+" = ?"), append(args, value)
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
		where = append(where, l.eventColumn()+" IN (?"+strings.Repeat(", ?", len(f.EventIDs)-1)+")")
		for _, id := range f.EventIDs {
			args = append(args, id)
		}
	}
	equal(text(l.cols.EventType), f.Type)
	equal(text(l.cols.AggregateType), f.AggregateType)
	equal(l.key, f.Key)
	equal(text(l.cols.Topic), f.Topic)
	if f.Error != "" {
		where, args = append(where, "instr(coalesce("+text(l.cols.LastError)+", ''), ?) > 0"), append(args, f.Error)
	}
	if f.Since > 0 && l.cols.CreatedAt != "" {
		where = append(where, fmt.Sprintf("%s >= %s - %d", columnMillis(col(l.cols.CreatedAt)), now,
			f.Since.Milliseconds()))
	}
	if f.After != "" {
		n, err := rowid(f.After)
		if err != nil {
			return "", nil, err
		}
		where, args = append(where, "rowid > ?"), append(args, n)
	}
	return strings.Join(where, " AND "), args, nil
}

// eventColumn is the bare column, so that its index serves.
func (l *layout) eventColumn() string {
	if l.cols.EventID != "" {
		return col(l.cols.EventID)
	}
	return col(l.cols.ID)
}

func (l *layout) stateWhere(st relay.State) string {
	switch {
	case st == relay.StateFailed:
		return l.failedWhere()
	case st == relay.StateNew && l.timed():
		return l.status(l.states.New) + " AND " + col(l.cols.NextRetryAt) + " IS NULL"
	case st == relay.StateNew && l.sameWord():
		return l.status(l.states.New) + " AND NOT (" + l.failedWhere() + ")"
	case st == relay.StateNew:
		return l.status(l.states.New)
	case st == relay.StateDead:
		return l.deadWhere()
	case st == relay.StateDiscarded:
		return l.discardedWhere()
	case l.cols.Status == "" || l.word(st) == "":
		return "0"
	case st == relay.StateSent:
		return l.status(l.states.Sent)
	default:
		return l.marked(l.word(st))
	}
}

// List returns matching rows in ascending order without payloads.
func (s *Store) List(ctx context.Context, f relay.Filter) ([]relay.EventRow, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if f.Limit <= 0 {
		f.Limit = 50
	}
	l := s.layout()
	where, args, err := l.where(f, "")
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	from := l.from(f.States...)
	if len(f.EventIDs) > 0 {
		from = l.table // event ids have an index of their own
	}
	rows, err := s.rows(ctx, false, from, where+fmt.Sprintf(" ORDER BY rowid LIMIT %d", f.Limit), args)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return rows, nil
}

// Get returns one row with its payload.
func (s *Store) Get(ctx context.Context, eventID string) (relay.EventRow, bool, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	rows, err := s.rows(ctx, true, s.layout().table, s.layout().eventColumn()+" = ? ORDER BY rowid LIMIT 1", []any{eventID})
	if err != nil {
		return relay.EventRow{}, false, fmt.Errorf("read event: %w", err)
	}
	if len(rows) == 0 {
		return relay.EventRow{}, false, nil
	}
	return rows[0], true, nil
}

func (s *Store) rows(ctx context.Context, withPayload bool, from, where string, args []any) ([]relay.EventRow, error) {
	l := s.layout()
	at := func(name string) string {
		if name == "" {
			return "NULL"
		}
		return columnMillis(col(name))
	}
	query := fmt.Sprintf("SELECT %s, %s, %s, %s, %s, %s, %s, %s FROM %s WHERE %s", l.eventColumns(withPayload),
		at(l.cols.NextRetryAt), text(l.cols.LastError), at(l.cols.UpdatedAt), at(l.cols.SentAt),
		text(l.cols.KafkaTopic), col(l.cols.KafkaPartition), col(l.cols.KafkaOffset), from, where)
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []relay.EventRow
	for rows.Next() {
		var r eventRow
		var next, updated, sent, partition, offset sql.NullInt64
		var lastError, topic sql.NullString
		if err := rows.Scan(append(r.dest(), &next, &lastError, &updated, &sent, &topic, &partition, &offset)...); err != nil {
			return nil, err
		}
		row := relay.EventRow{
			Event: r.event(l), Status: r.status.String, LastError: lastError.String,
			NextRetryAt: moment(next), UpdatedAt: moment(updated), SentAt: moment(sent),
		}
		row.Discarded = row.State == relay.StateDead && strings.HasPrefix(lastError.String, "discarded:")
		if row.State == relay.StateDead {
			row.NextRetryAt = time.Time{} // it has no next attempt, whatever keeps it in the index
		}
		if offset.Valid {
			row.Receipt = &relay.Receipt{Topic: topic.String, Partition: int32(partition.Int64), Offset: offset.Int64}
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

func moment(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return time.UnixMilli(ms.Int64).UTC()
}
