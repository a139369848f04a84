package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/relay"
)

// checkMode refuses combinations that could lose track of an event.
func (l *layout) checkMode() error {
	if c, ok := l.catalog.column(l.cols.NextRetryAt); ok {
		l.nullNRA = !c.notNull
	}
	if l.cols.Status == "" {
		if !l.delete {
			return usage("outbox.columns.status", "the table has no status column, so a sent row cannot be told from a new one",
				"set relay.after_send: delete, or add the column")
		}
		if l.claim == relay.ClaimRows {
			return usage("relay.claim", "rows needs a status column to write SENDING to", "use claim: lanes")
		}
		l.notices = append(l.notices, "the table has no status column: what a row cannot say of failed and dead events is remembered only while the relay runs")
		return nil
	}
	if l.cols.NextRetryAt == "" {
		return usage("outbox.columns.next_retry_at", "the table has a status but no time for the next attempt",
			"add a column, for example: ALTER TABLE "+l.table+" ADD COLUMN next_retry_at TEXT")
	}
	if l.cols.RetryCount == "" {
		return usage("outbox.columns.retry_count", "the table has a status but no count of attempts",
			"add a column, for example: ALTER TABLE "+l.table+" ADD COLUMN retry_count INTEGER NOT NULL DEFAULT 0")
	}
	return nil
}

// checkIDs sees to it that the row's number gives the order of writing and means one row for good
// (case C13: SQLite hands out the number of a deleted last row again).
func (l *layout) checkIDs() error {
	thing := fmt.Sprintf("table %s", l.table)
	has, declared, auto := l.catalog.rowids()
	if !has {
		return usage(thing, "is WITHOUT ROWID, so nothing says in which order its rows were written",
			"use a table with INTEGER PRIMARY KEY AUTOINCREMENT")
	}
	id, _ := l.catalog.column(l.cols.ID)
	rowid := declared && id.pk > 0
	if auto {
		return nil
	}
	l.guarded = true
	event := l.cols.EventID
	if event == "" && !rowid {
		event = l.cols.ID
	}
	if event == "" || !l.catalog.unique(event) {
		return usage(thing, "hands out the ids of deleted rows again and has no unique event id, so a consumer would take a new event for one it has seen",
			"map a unique column with outbox.columns.event_id, or create the table with INTEGER PRIMARY KEY AUTOINCREMENT")
	}
	l.notices = append(l.notices, fmt.Sprintf("ids of table %s can be reused after deletes: events are told apart by %q", l.table, event))
	return nil
}

// checkStates asks SQLite itself whether the column's CHECK lets the words pass that would be written.
func (l *layout) checkStates(ctx context.Context, db *sql.DB) error {
	if l.cols.Status == "" {
		return nil
	}
	words := map[string]string{"new": l.states.New, "failed": l.states.Failed, "dead": l.states.Dead}
	if !l.delete {
		words["sent"] = l.states.Sent
	}
	if l.claim == relay.ClaimRows {
		words["sending"] = l.states.Sending
	}
	checks := checkClauses(l.catalog.create)
	for _, state := range []string{"new", "sending", "sent", "failed", "dead"} {
		word, used := words[state]
		if !used {
			continue
		}
		if word == "" {
			return usage("outbox.states."+state, "is empty", "set the word that the table uses")
		}
		for _, check := range checks {
			var ok sql.NullBool
			query := fmt.Sprintf("SELECT (%s) FROM (SELECT %s AS %s)", check, lit(word), col(l.cols.Status))
			if err := db.QueryRowContext(ctx, query).Scan(&ok); err != nil {
				continue // the clause speaks of other columns too
			}
			if ok.Valid && !ok.Bool {
				return usage(fmt.Sprintf("table %s", l.table),
					fmt.Sprintf("does not allow %q in column %q: CHECK (%s)", word, l.cols.Status,
						strings.TrimSpace(check)),
					"set outbox.states."+state+" to a word that the table knows, or extend the CHECK")
			}
		}
	}
	return nil
}

// checkClauses finds the expressions of the CHECKs in a CREATE TABLE statement.
func checkClauses(create string) []string {
	var clauses []string
	s := stripComments(create)
	upper := strings.ToUpper(s)
	for i := 0; ; {
		at := strings.Index(upper[i:], "CHECK")
		if at < 0 {
			return clauses
		}
		i += at + len("CHECK")
		open := i + len(s[i:]) - len(strings.TrimLeft(s[i:], " \t\r\n"))
		if open >= len(s) || s[open] != '(' {
			continue
		}
		if end := closing(s, open); end > 0 {
			clauses = append(clauses, s[open+1:end])
			i = end
		}
	}
}

// closing finds the parenthesis that closes the one at open, strings and quoted names aside.
func closing(s string, open int) int {
	depth := 0
	for i := open; i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		case '\'', '"', '`':
			end := strings.IndexByte(s[i+1:], s[i])
			if end < 0 {
				return -1
			}
			i += end + 1
		}
	}
	return -1
}

// readClocks finds out in which form each column of the table writes its times.
func (l *layout) readClocks(ctx context.Context, db *sql.DB) error {
	l.clocks = map[string]clock{}
	for _, name := range []string{l.cols.CreatedAt, l.cols.UpdatedAt, l.cols.NextRetryAt, l.cols.SentAt} {
		if name == "" || l.own {
			continue // clockISO is the zero value
		}
		c, _ := l.catalog.column(name)
		var sample string
		err := db.QueryRowContext(ctx, fmt.Sprintf(
			"SELECT CAST(%[1]s AS TEXT) FROM (SELECT %[1]s FROM %[2]s ORDER BY rowid DESC LIMIT 100) WHERE %[1]s IS NOT NULL LIMIT 1",
			col(name), l.table)).Scan(&sample)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("look at column %q: %w", name, err)
		}
		l.clocks[name] = guessClock(c, sample)
	}
	return nil
}

// checkPayload tells of columns that may change what was written.
func (l *layout) checkPayload() error {
	if c, _ := l.catalog.column(l.cols.Payload); affinityIsNumeric(c.declared) {
		l.notices = append(l.notices, fmt.Sprintf(
			"column %q is declared %s, which SQLite stores as a number where it can: a payload that is a bare number may change its digits", c.name, c.declared))
	}
	return nil
}

// affinityIsNumeric follows SQLite's rules for declared types.
func affinityIsNumeric(declared string) bool {
	for _, s := range []string{"CHAR", "CLOB", "TEXT", "BLOB"} {
		if strings.Contains(declared, s) {
			return false
		}
	}
	return declared != ""
}
