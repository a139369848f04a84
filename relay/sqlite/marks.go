package sqlite

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

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

// markWhere is the condition: the row is in the state and under the claim in which it was read. With lanes
// SENT needs less: that Kafka has the record is the newer truth than a verdict of a relay that did not know yet
// that it had lost the lane. What a person gave up stays so.
func (l *layout) markWhere() string {
	where := append([]string{"t.rowid = " + given(markRow)}, l.guard()...)
	same := l.asRead()
	if l.claim != relay.ClaimLanes || len(same) == 0 {
		return strings.Join(append(where, same...), " AND ")
	}
	return fmt.Sprintf("%s AND iif(%s = 'S', %s, %s)", strings.Join(where, " AND "), given(markKind), l.unsettled(), strings.Join(same, " AND "))
}

// unsettled is the condition that a row may be made SENT by whoever knows that it was sent.
func (l *layout) unsettled() string {
	if l.cols.Status == "" {
		return "1"
	}
	given := ""
	if l.cols.LastError != "" {
		given = fmt.Sprintf(" AND coalesce(%s, '') NOT LIKE 'discarded:%%'", col(l.cols.LastError))
	}
	return fmt.Sprintf("(%s OR %s OR %s%s)", l.status(l.states.New), l.status(l.states.Failed), l.status(l.states.Dead), given)
}

// asRead is the condition of a row's state and claim, in parts.
func (l *layout) asRead() (where []string) {
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
	return where
}

// guard is the condition that the row still is the event's, where ids may name another row later.
func (l *layout) guard() []string {
	if !l.guarded {
		return nil
	}
	event := l.cols.EventID
	if event == "" {
		event = l.cols.ID
	}
	return []string{fmt.Sprintf("CAST(t.%s AS TEXT) = %s", col(event), given(markEvent))}
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
		released := was
		if l.own { // it is the claim's time now
			released = fmt.Sprintf("iif(%s, %s, NULL)", l.wasFailed(), was)
		}
		set(l.cols.NextRetryAt, "CASE %s WHEN 'F' THEN %s WHEN 'D' THEN %s WHEN 'N' THEN %s ELSE %s END", kind,
			l.clocks[l.cols.NextRetryAt].at("'now'", given(markDelay)), dead, released, rest)
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
	if l.nullNRA && !l.own && l.claimColumn() != l.cols.NextRetryAt {
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
