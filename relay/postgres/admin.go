package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// Bounds of what operators do.
const (
	defaultListed = 50
	changeRows    = 1_000  // rows of one transaction
	skippedMost   = 10_000 // up to which skipped rows are counted
)

// errNoStatus is the answer of Retry and Discard for a table without states.
var errNoStatus = errors.New("the table has no status column: its rows are new until they are sent and deleted")

// condition builds a WHERE clause with its parameters.
type condition struct {
	parts []string
	args  []any
}

func (c *condition) add(format string, value any) {
	c.args = append(c.args, value)
	c.parts = append(c.parts, strings.ReplaceAll(format, "?", fmt.Sprintf("$%d", len(c.args))))
}

func (c *condition) and(where string) { c.parts = append(c.parts, "("+where+")") }

func (c *condition) String() string {
	if len(c.parts) == 0 {
		return "TRUE"
	}
	return strings.Join(c.parts, " AND ")
}

// filter turns a filter into a condition.
func (l *layout) filter(f relay.Filter) *condition {
	c := &condition{}
	if len(f.States) > 0 {
		var any []string
		for _, st := range f.States {
			any = append(any, l.stateIs(st))
		}
		c.and(strings.Join(any, " OR "))
	}
	if len(f.EventIDs) > 0 {
		c.add(l.eventID()+" = ANY (?::text[])", f.EventIDs)
		if col, ok := l.catalog.column(l.cols.EventID); ok && (col.kind == "text" || col.kind == "varchar") {
			c.parts[len(c.parts)-1] = fmt.Sprintf("t.%s = ANY ($%d::text[])", quote(col.name), len(c.args)) // its index serves
		}
	}
	for _, eq := range []struct{ expr, value string }{
		{l.text(l.cols.EventType), f.Type}, {l.text(l.cols.AggregateType), f.AggregateType},
		{l.key(), f.Key}, {l.text(l.cols.Topic), f.Topic},
	} {
		if eq.value != "" {
			c.add(eq.expr+" = ?::text", eq.value)
		}
	}
	if f.Error != "" {
		c.add("strpos("+l.text(l.cols.LastError)+", ?::text) > 0", f.Error)
	}
	if f.Since > 0 && l.cols.CreatedAt != "" {
		c.add(l.col(l.cols.CreatedAt, "timestamptz")+" >= "+l.local(l.cols.CreatedAt, "(statement_timestamp() - ?::int8 * interval '1 microsecond')"), f.Since.Microseconds())
	}
	if f.After != "" {
		c.add(l.col(l.cols.ID, "int8")+" > ?::int8", parseRow(f.After))
	}
	return c
}

// stateIs is the condition for one state, in a form that an index can serve.
func (l *layout) stateIs(st relay.State) string {
	switch {
	case l.cols.Status == "":
		return map[bool]string{true: "TRUE", false: "FALSE"}[st == relay.StateNew]
	case st == relay.StateNew:
		return l.untried()
	case st == relay.StateFailed:
		return l.tried(l.isFailed())
	case st == relay.StateDead:
		return l.tried(l.status() + " = " + l.dead + " AND NOT " + l.discarded())
	case st == relay.StateDiscarded:
		return l.tried(l.discarded())
	case st == relay.StateSending && l.sending != "":
		return l.status() + " = " + l.sending
	case st == relay.StateSent && l.sent != "":
		return l.status() + " = " + l.sent
	}
	return "FALSE"
}

// fewStates says that the filter's states are those of few rows, which are found by state and then sorted.
func fewStates(f relay.Filter) bool {
	return len(f.States) > 0 && !slices.ContainsFunc(f.States, func(st relay.State) bool {
		return st != relay.StateFailed && st != relay.StateDead && st != relay.StateDiscarded
	})
}

// order is ORDER BY id; with "+ 0" the order of the primary key is no offer to the planner.
func (l *layout) order(f relay.Filter) string {
	id := l.col(l.cols.ID, "int8")
	if fewStates(f) && (l.own || l.statusIndex) {
		return " ORDER BY " + id + " + 0"
	}
	return " ORDER BY " + id
}

// List implements relay.Admin.
func (s *Store) List(ctx context.Context, f relay.Filter) ([]relay.EventRow, error) {
	if f.Limit <= 0 {
		f.Limit = defaultListed
	}
	c := s.layout.filter(f)
	rows, err := s.eventRows(ctx, false, c.String()+s.layout.order(f)+fmt.Sprintf(" LIMIT %d", f.Limit), c.args)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return rows, nil
}

// Get implements relay.Admin.
func (s *Store) Get(ctx context.Context, eventID string) (relay.EventRow, bool, error) {
	c := s.layout.filter(relay.Filter{EventIDs: []string{eventID}})
	rows, err := s.eventRows(ctx, true, c.String()+" ORDER BY "+s.layout.col(s.layout.cols.ID, "int8")+" LIMIT 1", c.args)
	if err != nil {
		return relay.EventRow{}, false, fmt.Errorf("read event: %w", err)
	}
	if len(rows) == 0 {
		return relay.EventRow{}, false, nil
	}
	return rows[0], true, nil
}

func (s *Store) eventRows(ctx context.Context, payload bool, where string, args []any) (out []relay.EventRow, err error) {
	l := s.layout
	body := "NULL"
	if payload {
		body = l.payload()
	}
	status, state := "''", "0"
	if l.cols.Status != "" {
		status = l.text(l.cols.Status)
		sending, sent := "FALSE", "FALSE"
		if l.sending != "" {
			sending = l.status() + " = " + l.sending
		}
		if l.sent != "" {
			sent = l.status() + " = " + l.sent
		}
		state = fmt.Sprintf("CASE WHEN %s THEN 1 WHEN %s THEN 0 WHEN %s THEN 2 WHEN %s THEN 3 WHEN %s = %s THEN 4 ELSE 5 END",
			l.isFailed(), l.isNew(), sending, sent, l.status(), l.dead)
	}
	finite := func(name string) string {
		if name == "" {
			return "NULL::timestamptz"
		}
		return fmt.Sprintf("CASE WHEN isfinite(%s) THEN %s END", l.col(name, "timestamptz"), l.instant(name))
	}
	query := fmt.Sprintf("SELECT %s::int8, %s, %s, %s, %s, %s, %s, %s, %s, %s::int4, %s, %s, %s, %s, %s, %s, %s, %s, %s::int4, %s::int8, statement_timestamp() FROM %s t WHERE %s",
		l.col(l.cols.ID, "int8"), status, state, l.key(), l.eventID(), l.text(l.cols.AggregateType), l.text(l.cols.AggregateID),
		l.text(l.cols.EventType), l.text(l.cols.Topic), l.attempts(), finite(l.cols.CreatedAt), finite(l.cols.NextRetryAt),
		l.text(l.cols.LastError), finite(l.cols.UpdatedAt), finite(l.cols.SentAt), l.text(l.cols.Headers), body,
		l.text(l.cols.KafkaTopic), l.col(l.cols.KafkaPartition, "int4"), l.col(l.cols.KafkaOffset, "int8"), l.table, where)
	err = s.db.tx(ctx, stmt{sql: query, args: args, read: func(rows pgx.Rows) error {
		out, err = pgx.CollectRows(rows, scanEventRow)
		return err
	}})
	return out, err
}

// scanEventRow reads one row of eventRows.
func scanEventRow(row pgx.CollectableRow) (relay.EventRow, error) {
	var (
		r                                  relay.EventRow
		id                                 int64
		state                              int32
		aggType, aggID, typ, topic, lastEr *string
		created, next, updated, sent       *time.Time
		headers                            *string
		kafkaTopic                         *string
		partition                          *int32
		offset                             *int64
		now                                time.Time
	)
	err := row.Scan(&id, &r.Status, &state, &r.Key, &r.ID, &aggType, &aggID, &typ, &topic, &r.RetryCount, &created, &next,
		&lastEr, &updated, &sent, &headers, &r.Payload, &kafkaTopic, &partition, &offset, &now)
	if err != nil {
		return r, err
	}
	r.Row = rowID(id)
	r.State = [...]relay.State{relay.StateNew, relay.StateFailed, relay.StateSending, relay.StateSent, relay.StateDead, ""}[state]
	r.AggregateType, r.AggregateID, r.Type, r.Topic, r.LastError = text(aggType), text(aggID), text(typ), text(topic), text(lastEr)
	r.CreatedAt, r.NextRetryAt, r.UpdatedAt, r.SentAt = utc(created), utc(next), utc(updated), utc(sent)
	if created != nil {
		r.Age = max(now.Sub(*created), 0)
	}
	if r.State == relay.StateDead {
		r.NextRetryAt = time.Time{} // it has no next attempt
	}
	r.Discarded = r.State == relay.StateDead && strings.HasPrefix(r.LastError, discardedPrefix)
	if headers != nil {
		r.Headers, r.Malformed = relay.DecodeHeaders([]byte(*headers))
	}
	if offset != nil {
		r.Receipt = &relay.Receipt{Topic: text(kafkaTopic), Offset: *offset}
		if partition != nil {
			r.Receipt.Partition = *partition
		}
	}
	return r, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// Retry implements relay.Admin. Without a limit in the filter it takes all rows, in short transactions.
func (s *Store) Retry(ctx context.Context, f relay.Filter, dryRun bool) (done, skipped int64, err error) {
	l := s.layout
	if l.cols.Status == "" {
		return 0, 0, errNoStatus
	}
	set := fmt.Sprintf("%s = %s, %s = 0, %s = %s", quote(l.cols.Status), l.failed, quote(l.cols.RetryCount),
		quote(l.cols.NextRetryAt), l.clock(l.cols.NextRetryAt))
	dead := fmt.Sprintf("%s = %s", l.status(), l.dead)
	if len(f.EventIDs) == 0 {
		dead += " AND NOT " + l.discarded()
	}
	eligible := l.tried(fmt.Sprintf("(%s OR %s)", l.isFailed(), dead))
	return s.change(ctx, f, eligible, "UPDATE "+l.table+" t SET "+set+l.touched(), dryRun)
}

// Discard implements relay.Admin.
func (s *Store) Discard(ctx context.Context, f relay.Filter, reason string, dryRun bool) (done, skipped int64, err error) {
	l := s.layout
	if l.cols.Status == "" {
		return 0, 0, errNoStatus
	}
	eligible := l.tried(fmt.Sprintf("%s = %s AND NOT %s", l.status(), l.dead, l.discarded()))
	if l.cols.LastError == "" {
		return s.change(ctx, f, eligible, "DELETE FROM "+l.table+" t", dryRun)
	}
	old := l.text(l.cols.LastError)
	note := lit(discardedPrefix + " " + clip(reason, maxLastError/2))
	set := fmt.Sprintf("%s = left(%s || CASE WHEN coalesce(%s, '') = '' THEN '' ELSE ': ' || %s END, %d)",
		quote(l.cols.LastError), note, old, old, l.lastError)
	return s.change(ctx, f, eligible, "UPDATE "+l.table+" t SET "+set+l.touched(), dryRun)
}

// KeepsDiscarded implements relay.Admin.
func (s *Store) KeepsDiscarded() bool { return s.layout.cols.LastError != "" }

func (l *layout) touched() string {
	if l.cols.UpdatedAt == "" {
		return ""
	}
	return ", " + quote(l.cols.UpdatedAt) + " = " + l.clock(l.cols.UpdatedAt)
}

// change applies verb to the filter's rows that are eligible, and counts the others.
func (s *Store) change(ctx context.Context, f relay.Filter, eligible, verb string, dryRun bool) (done, skipped int64, err error) {
	l := s.layout
	id := l.col(l.cols.ID, "int8")
	if skipped, err = s.skipped(ctx, f, eligible); err != nil {
		return 0, 0, fmt.Errorf("count events to skip: %w", err)
	}
	for f.Limit <= 0 || done < int64(f.Limit) {
		n := int64(changeRows)
		if f.Limit > 0 {
			n = min(n, int64(f.Limit)-done)
		}
		c := l.filter(f)
		c.and(eligible)
		pick := fmt.Sprintf("SELECT %s FROM %s t WHERE %s%s LIMIT %d", id, l.table, c, l.order(relay.Filter{States: []relay.State{relay.StateDead}}), n)
		query := fmt.Sprintf("WITH pick AS MATERIALIZED (%s FOR UPDATE), did AS (%s WHERE %s IN (SELECT * FROM pick) RETURNING 1) SELECT count(*), coalesce(max(%s), 0)::int8 FROM pick",
			pick, verb, id, quote(l.cols.ID))
		if dryRun {
			query = fmt.Sprintf("SELECT count(*), coalesce(max(%s), 0)::int8 FROM (%s) pick", quote(l.cols.ID), pick)
		}
		var got, last int64
		if err := s.query(ctx, query, c.args, &got, &last); err != nil {
			return done, skipped, fmt.Errorf("change events: %w", err)
		}
		done += got
		if got < n {
			break
		}
		f.After = rowID(last)
	}
	return done, skipped, nil
}

// skipped counts the filter's rows that are not eligible, as far as a person wants to know.
func (s *Store) skipped(ctx context.Context, f relay.Filter, eligible string) (n int64, err error) {
	l := s.layout
	c := l.filter(f)
	c.and("(" + eligible + ") IS NOT TRUE")
	err = s.query(ctx, fmt.Sprintf("SELECT count(*) FROM (SELECT FROM %s t WHERE %s LIMIT %d) x", l.table, c, skippedMost), c.args, &n)
	return n, err
}
