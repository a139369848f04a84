package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

// Settle writes outcomes in one transaction: one set-based UPDATE, and one DELETE where sent rows are
// deleted. A row that is no longer as it was read is left alone and returned as lost.
func (s *Store) Settle(ctx context.Context, outs []relay.Outcome) ([]relay.RowID, error) {
	if len(outs) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	marks, err := s.marks(outs)
	if err != nil {
		return nil, fmt.Errorf("mark events: %w", err)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("mark events: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	var lost []relay.RowID
	for _, m := range marks {
		missed, err := s.mark(ctx, tx, m)
		if err != nil {
			return nil, fmt.Errorf("mark events: %w", err)
		}
		lost = append(lost, missed...)
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("mark events: %w", err)
	}
	s.park(outs)
	return lost, nil
}

// marking is one statement and the outcomes it is for.
type marking struct {
	query string
	outs  []relay.Outcome
}

// marks sorts outcomes by statement. An unclaimed row that goes back unsent needs none: it is as it was.
func (s *Store) marks(outs []relay.Outcome) ([]marking, error) {
	l := s.layout
	var update, remove, check []relay.Outcome
	for _, o := range outs {
		if _, err := rowid(o.Row); err != nil {
			return nil, err
		}
		switch {
		case o.State == relay.StateSent && l.delete:
			remove = append(remove, o)
		case o.State == relay.StateNew && o.Claim == "":
		case len(l.sets()) > 0:
			update = append(update, o)
		default: // nothing can be written; is the row there?
			check = append(check, o)
		}
	}
	var marks []marking
	if len(update) > 0 {
		marks = append(marks, marking{l.updateSQL(), update})
	}
	if len(remove) > 0 {
		marks = append(marks, marking{l.deleteSQL(), remove})
	}
	if len(check) > 0 {
		marks = append(marks, marking{l.checkSQL(), check})
	}
	return marks, nil
}

// outcomes is the JSON parameter as a table of one column, whose name is no other's.
const outcomes = "SELECT value AS postrider_v FROM json_each(?)"

// The fields of an outcome in the JSON.
const (
	markRow = iota
	markFrom
	markState
	markKind // S sent, F failed, D dead, N back to new
	markClaim
	markEvent
	markAttempt
	markDelay // seconds
	markError
	markTopic
	markPartition
	markOffset
)

func (l *layout) encode(outs []relay.Outcome) (string, error) {
	rows := make([][]any, len(outs))
	for i, o := range outs {
		n, _ := rowid(o.Row)
		row := []any{n, l.word(o.From), l.word(o.State), "N", o.Claim, o.EventID, 0, "+0 seconds", nil, nil, nil, nil}
		if o.Attempt {
			row[markAttempt] = 1
		}
		switch o.State {
		case relay.StateSent:
			row[markKind] = "S"
			row[markTopic], row[markPartition], row[markOffset] = o.Receipt.Topic, o.Receipt.Partition, o.Receipt.Offset
		case relay.StateFailed:
			row[markKind], row[markDelay], row[markError] = "F", l.delay(o.RetryAfter), errorText(o.LastError)
		case relay.StateDead:
			row[markKind], row[markError] = "D", errorText(o.LastError)
		}
		rows[i] = row
	}
	text, err := json.Marshal(rows)
	return string(text), err
}

// errorMax bounds last_error, in bytes.
const errorMax = 60_000

// errorText keeps what every reader of the column can take: valid text without NUL, of bounded length.
func errorText(s string) string {
	if len(s) > errorMax {
		s = s[:errorMax]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
}

// delay is a modifier of SQLite's time functions. A column of whole seconds is rounded up: never early.
func (l *layout) delay(d time.Duration) string {
	if l.clocks[l.cols.NextRetryAt].kind == clockSeconds && d > 0 {
		d += time.Second - time.Millisecond
	}
	return fmt.Sprintf("+%.3f seconds", max(0, d.Seconds()))
}

func given(field int) string { return fmt.Sprintf("(postrider_v ->> %d)", field) }

// markWhere is the condition: the row is in the state and under the claim in which it was read.
func (l *layout) markWhere() string {
	where := []string{"t.rowid = " + given(markRow)}
	if l.cols.Status != "" {
		where = append(where, "t."+col(l.cols.Status)+" = "+given(markFrom))
	}
	switch {
	case l.claim == relay.ClaimRows:
		where = append(where, fmt.Sprintf("CAST(t.%s AS TEXT) = %s", col(l.claimColumn()), given(markClaim)))
	case l.cols.NextRetryAt != "":
		// A row was due when it was read. One that says FAILED already, and was FAILED then, is told by
		// its new time.
		where = append(where, fmt.Sprintf("(%s IS NULL OR %s)", col(l.cols.NextRetryAt), l.due()))
	}
	if l.guarded {
		event := l.cols.EventID
		if event == "" {
			event = l.cols.ID
		}
		where = append(where, fmt.Sprintf("CAST(t.%s AS TEXT) = %s", col(event), given(markEvent)))
	}
	return strings.Join(where, " AND ")
}

// sets are the assignments of an outcome, for the columns that the table has.
func (l *layout) sets() []string {
	var sets []string
	set := func(name, format string, args ...any) {
		if name != "" {
			sets = append(sets, col(name)+" = "+fmt.Sprintf(format, args...))
		}
	}
	at := func(name string) string { return l.clocks[name].at("'now'", "") }
	kind := given(markKind)
	if l.cols.Status != "" {
		// A claimed row that goes back unsent is again what it was before the claim.
		set(l.cols.Status, "iif(%s = 'N' AND %s, %s, %s)", kind, l.wasFailed(), lit(l.states.Failed), given(markState))
	}
	set(l.cols.RetryCount, "%s + %s", col(l.cols.RetryCount), given(markAttempt))
	if l.cols.NextRetryAt != "" {
		was := col(l.cols.NextRetryAt)
		rest, dead := "NULL", "NULL"
		if !l.nullNRA {
			rest, dead = was, was
		}
		if l.own {
			dead = lit(never)
		}
		set(l.cols.NextRetryAt, "CASE %s WHEN 'F' THEN %s WHEN 'D' THEN %s WHEN 'N' THEN %s ELSE %s END", kind,
			l.clocks[l.cols.NextRetryAt].at("'now'", given(markDelay)), dead, was, rest)
	}
	if c, ok := l.catalog.column(l.cols.LastError); ok {
		none := "NULL"
		if c.notNull {
			none = "''"
		}
		set(c.name, "CASE %s WHEN 'S' THEN %s ELSE coalesce(%s, %s) END", kind, none, given(markError), col(c.name))
	}
	set(l.cols.UpdatedAt, "%s", at(l.cols.UpdatedAt))
	set(l.cols.SentAt, "CASE %s WHEN 'S' THEN %s ELSE %s END", kind, at(l.cols.SentAt), col(l.cols.SentAt))
	set(l.cols.KafkaTopic, "coalesce(%s, %s)", given(markTopic), col(l.cols.KafkaTopic))
	set(l.cols.KafkaPartition, "coalesce(%s, %s)", given(markPartition), col(l.cols.KafkaPartition))
	set(l.cols.KafkaOffset, "coalesce(%s, %s)", given(markOffset), col(l.cols.KafkaOffset))
	return sets
}

// wasFailed tells of a claimed row whether it was FAILED before.
func (l *layout) wasFailed() string {
	if l.nullNRA && l.claimColumn() != l.cols.NextRetryAt {
		return col(l.cols.NextRetryAt) + " IS NOT NULL"
	}
	return col(l.cols.RetryCount) + " > 0"
}

func (l *layout) updateSQL() string {
	return fmt.Sprintf("UPDATE %s AS t SET %s FROM (%s) WHERE %s RETURNING rowid",
		l.table, strings.Join(l.sets(), ", "), outcomes, l.markWhere())
}

// deleteSQL names the rows by a list first, so that the rows are found by their number.
func (l *layout) deleteSQL() string {
	return fmt.Sprintf(`DELETE FROM %[1]s WHERE rowid IN (%[2]s) RETURNING rowid`, l.table, l.checkSQL())
}

// checkSQL names the rows that are as they were read.
func (l *layout) checkSQL() string {
	return fmt.Sprintf("SELECT t.rowid FROM (%s) CROSS JOIN %s AS t WHERE %s", outcomes, l.table, l.markWhere())
}

// mark runs one statement and returns the rows that it did not find as they were read.
func (s *Store) mark(ctx context.Context, tx *sql.Tx, m marking) ([]relay.RowID, error) {
	text, err := s.layout.encode(m.outs)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, m.query, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	done := make(map[relay.RowID]struct{}, len(m.outs))
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		done[rowID(id)] = struct{}{}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(done) == len(m.outs) {
		return nil, nil
	}
	var missed []relay.Outcome
	for _, o := range m.outs {
		if _, ok := done[o.Row]; !ok {
			missed = append(missed, o)
		}
	}
	return s.lost(ctx, tx, missed)
}

// lost sorts out rows that are SENT as the outcome says: the same call was made before and its answer
// did not arrive. With claims it is another relay's mark.
func (s *Store) lost(ctx context.Context, tx *sql.Tx, missed []relay.Outcome) ([]relay.RowID, error) {
	l := s.layout
	var ids []int64
	for _, o := range missed {
		if n, err := rowid(o.Row); err == nil && o.State == relay.StateSent && l.claim != relay.ClaimRows {
			ids = append(ids, n)
		}
	}
	query := fmt.Sprintf("SELECT rowid FROM %s WHERE rowid IN (%s)", l.table, list(ids))
	if !l.delete {
		query += " AND " + l.status(l.states.Sent)
	}
	found, err := numbers(ctx, tx, query)
	if err != nil {
		return nil, err
	}
	var lost []relay.RowID
	for _, o := range missed {
		n, _ := rowid(o.Row)
		if slices.Contains(ids, n) && slices.Contains(found, n) != l.delete {
			continue // sent, or gone where sent rows are deleted
		}
		lost = append(lost, o.Row)
	}
	return lost, nil
}

// park remembers what a table without a status column cannot say.
func (s *Store) park(outs []relay.Outcome) {
	if s.layout.cols.Status != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range outs {
		n, _ := rowid(o.Row)
		r := s.parked[n]
		if o.Attempt {
			r.attempts++
		}
		switch o.State {
		case relay.StateSent:
			delete(s.parked, n)
			continue
		case relay.StateDead:
			r.dead = true
		case relay.StateFailed:
			if s.layout.cols.NextRetryAt == "" {
				r.due = time.Now().Add(o.RetryAfter)
			}
		}
		s.parked[n] = r
	}
}

// parkedRows is a copy for one read.
func (s *Store) parkedRows() map[int64]parked {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make(map[int64]parked, len(s.parked))
	for n, r := range s.parked {
		rows[n] = r
	}
	return rows
}

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
	l := s.layout
	where := "(" + l.blockingWhere() + ")"
	if l.cols.Status == "" {
		where = "1"
	}
	still, err := numbers(ctx, s.read, fmt.Sprintf("SELECT rowid FROM %s WHERE rowid IN (%s) AND %s", l.table, list(ids), where))
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
	l := s.layout
	if l.cols.Status == "" {
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
	l := s.layout
	rows, err := s.read.QueryContext(ctx, fmt.Sprintf("SELECT rowid, %s, coalesce(%s, 0) - %s FROM %s WHERE (%s) AND %s IS NOT NULL ORDER BY rowid LIMIT %d",
		l.key, columnMillis(col(l.cols.NextRetryAt)), now, l.table, where, l.key, limit))
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
