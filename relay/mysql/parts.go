package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

// part is one of the questions of a Fetch: abandoned rows, retries that are due, new rows.
type part struct {
	where     string // what makes it due
	filter    string // what is busy or blocked
	index     string
	sort      bool // the index does not give the rows in order
	abandoned bool
}

func (s *Store) parts(r *read) []part {
	l, p := s.layout(), &s.layout().plan
	var parts []part
	if l.claim == relay.ClaimRows {
		parts = append(parts, part{where: l.abandonedWhere(s.claimTimeout.Microseconds()), filter: r.tried,
			index: p.statusIndex, sort: true, abandoned: true})
	}
	if p.retry != "" {
		parts = append(parts, part{where: p.retry, filter: r.tried, index: p.retryIndex, sort: true})
	}
	fresh := part{where: p.fresh, filter: r.fresh, index: p.freshIndex, sort: p.sorted}
	if r.start > 0 {
		fresh.where += fmt.Sprintf(" AND %s > %s", col(l.cols.ID), l.digits(r.start))
	}
	parts = append(parts, fresh)
	if r.fetch.HeadsOnly {
		for i := range parts {
			parts[i].index, parts[i].sort = l.force(l.uniqueIndex()), false
		}
	}
	return parts
}

// sql asks for a part's rows in the order of their ids. Where they must be sorted, only their ids are,
// without locks, and the rows are then read by id.
func (s *Store) sql(n int, p part, r *read, lock string) string {
	l := s.layout()
	id := col(l.cols.ID)
	if !p.sort {
		return fmt.Sprintf("SELECT %d, %s FROM %s%s WHERE %s%s ORDER BY %s LIMIT %d%s",
			n, l.eventColumns(true), l.table, p.index, p.where, p.filter, id, r.page, lock)
	}
	ids := fmt.Sprintf("SELECT %s AS postrider_n FROM %s%s WHERE %s%s ORDER BY %s LIMIT %d", id, l.table, p.index,
		p.where, p.filter, id, r.page)
	return fmt.Sprintf("SELECT %d, %s FROM (%s) d STRAIGHT_JOIN %s t%s ON t.%s = d.postrider_n WHERE %s ORDER BY d.postrider_n LIMIT %d%s",
		n, l.eventColumns(true), ids, l.table, l.force(l.uniqueIndex()), id, p.where, r.page, lock)
}

// readRows asks all parts in one statement.
func (s *Store) readRows(ctx context.Context, r *read) (relay.Fetched, error) {
	var selects []string
	for n, p := range s.parts(r) {
		selects = append(selects, s.sql(n, p, r, ""))
	}
	query := selects[0]
	if len(selects) > 1 {
		query = "(" + strings.Join(selects, ") UNION ALL (") + ")"
	}
	if err := s.collect(ctx, s.db, query, r); err != nil {
		return relay.Fetched{}, err
	}
	taken, more := s.fit(r)
	s.raiseFloor(ctx, r)
	got := relay.Fetched{More: more}
	for _, f := range taken {
		got.Events = append(got.Events, f.event)
	}
	return got, nil
}

// claimRows locks the rows of each part, passing over those that others hold, and writes SENDING and
// the time of the claim, which is its token.
func (s *Store) claimRows(ctx context.Context, tx *sql.Tx, r *read) (relay.Fetched, error) {
	for n, p := range s.parts(r) {
		if err := s.collect(ctx, tx, s.sql(n, p, r, " FOR UPDATE SKIP LOCKED"), r); err != nil {
			return relay.Fetched{}, err
		}
	}
	taken, more := s.fit(r)
	got := relay.Fetched{More: more}
	if len(taken) == 0 {
		return got, nil
	}
	l, token := s.layout(), taken[len(taken)-1].stamp
	numbers := make([]uint64, len(taken))
	for i := range taken {
		f := &taken[i]
		numbers[i] = f.number
		f.event.State, f.event.Claim = relay.StateSending, token
		if f.abandoned {
			got.Reclaimed++
		}
		got.Events = append(got.Events, f.event)
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET %s = %s, %s = %s WHERE %s IN (%s)", l.table,
		col(l.cols.Status), quote(l.states.Sending),
		col(l.claimColumn()), quote(token), col(l.cols.ID), l.list(numbers)))
	return got, err
}

// querier is what a statement runs on.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// found is a row as read, before it is known whether it fits.
type found struct {
	number    uint64
	event     relay.Event
	abandoned bool
	dropped   bool   // read, too much for this Fetch, and let go
	stamp     string // the database's now, as the claim column keeps it
}

// collect reads rows. Each part keeps at most the bytes of a Fetch: what lies behind cannot be among
// the first rows of all parts together, so its payload is let go at once.
func (s *Store) collect(ctx context.Context, q querier, query string, r *read) error {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	row := newEventRow()
	var bytes, all int64
	count, part := 0, -1
	for rows.Next() {
		if err := rows.Scan(row.dest...); err != nil {
			return err
		}
		f, err := row.found(s.layout())
		if err != nil {
			return err
		}
		if row.part != part {
			part, count, bytes = row.part, 0, 0
		}
		if held, ok := r.parked[f.number]; ok {
			f.event.State, f.event.RetryCount = relay.StateFailed, max(f.event.RetryCount, held.attempts)
		}
		size := f.event.Size()
		count, bytes, all = count+1, bytes+size, all+size
		if r.fetch.MaxBytes > 0 && bytes > r.fetch.MaxBytes && count > 1 && f.number != s.cut.row {
			f.event.Payload, f.dropped = nil, true
		}
		if count == r.page {
			r.horizon = min(r.horizon, f.number)
		}
		r.rows = append(r.rows, f)
	}
	s.learn(all, len(r.rows))
	return rows.Err()
}

// learn keeps an average of how large events are, by which the next reads ask for as many as fit.
func (s *Store) learn(bytes int64, rows int) {
	if rows == 0 {
		return
	}
	mean := float64(bytes) / float64(rows)
	if s.bytes == 0 {
		s.bytes = mean
	}
	s.bytes += (mean - s.bytes) / 2
}

// fit takes the first rows that are within the limits: at least one, and none behind one left out.
func (s *Store) fit(r *read) (taken []found, more bool) {
	slices.SortFunc(r.rows, func(a, b found) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	more = r.horizon < math.MaxUint64
	var bytes int64
	left := uint64(0)
	for i := range r.rows {
		f := &r.rows[i]
		bytes += f.event.Size()
		if i > 0 && (f.dropped || r.fetch.MaxBytes > 0 && bytes > r.fetch.MaxBytes) {
			left = f.number
		}
		if i == r.limit || f.number > r.horizon || left != 0 {
			more = true
			break
		}
		taken = append(taken, *f)
	}
	if left != 0 && left == s.cut.row {
		if f, ok := r.alone(left); ok {
			taken = []found{f}
		}
	}
	if left == 0 && r.horizon < math.MaxUint64 {
		s.cut.missed = s.cut.row != 0 // it is perhaps behind what was read
	} else {
		s.cut = cut{row: left, page: r.page}
	}
	return taken, more
}

// alone gives a row that was left out for its size twice running. Smaller rows that are due again and
// again must not keep it away; earlier rows of its own key may.
func (r *read) alone(number uint64) (found, bool) {
	i := slices.IndexFunc(r.rows, func(f found) bool { return f.number == number })
	f := r.rows[i]
	if f.dropped {
		return f, false
	}
	for _, earlier := range r.rows[:i] {
		if f.event.Key != nil && earlier.event.Key != nil && *earlier.event.Key == *f.event.Key {
			return f, false
		}
	}
	return f, true
}

// raiseFloor notes how far a slow scan saw only blocked rows: up to the first that is not.
func (s *Store) raiseFloor(ctx context.Context, r *read) {
	ended := time.Now()
	if len(r.fetch.Blocked) == 0 || r.fetch.HeadsOnly || ended.Sub(r.began) < floorCost {
		return
	}
	clear := s.floor.last
	if len(r.rows) > 0 {
		clear = r.rows[0].number - 1
	} else {
		s.floor.last = s.lastNew(ctx)
	}
	if len(r.busy) > 0 {
		clear = min(clear, r.busy[0]-1)
	}
	s.floor.scanned(r.start, clear, r.began, ended)
}

// lastNew is the last new row there is, 0 when that cannot be told.
func (s *Store) lastNew(ctx context.Context) uint64 {
	l := s.layout()
	var id sql.NullString
	err := s.db.QueryRowContext(ctx, fmt.Sprintf("SELECT MAX(%s) FROM %s%s WHERE %s", col(l.cols.ID), l.table,
		l.plan.freshIndex, l.status(l.states.New))).Scan(&id)
	if err != nil || !id.Valid {
		return 0
	}
	n, err := l.rowNumber(relay.RowID(id.String))
	if err != nil {
		return 0
	}
	return n
}
