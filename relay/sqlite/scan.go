package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/postrider/postrider/relay"
)

// now is SQLite's clock in milliseconds since 1970; it does not move within a statement.
var now = millis("'now'")

// status compares the status column with a word; true for a table without one, where a row that is
// there is new.
func (l *layout) status(word string) string {
	if l.cols.Status == "" {
		return "1"
	}
	return col(l.cols.Status) + " = " + lit(word)
}

// due says that a row's time has come: it has none, or it has passed, or it cannot be read.
func (l *layout) due() string {
	if l.cols.NextRetryAt == "" {
		return "1"
	}
	if l.own { // fixed width text, compared in the index
		return fmt.Sprintf("%s <= %s", col(l.cols.NextRetryAt), clock{}.at("'now'", ""))
	}
	return fmt.Sprintf("coalesce(%s, 0) <= %s", columnMillis(col(l.cols.NextRetryAt)), now)
}

// sameWord says that a failed row goes back to the word of new ones, with a time.
func (l *layout) sameWord() bool { return l.states.Failed == l.states.New }

// timed says that failed rows have the word of new ones, and a time that new rows do not have.
func (l *layout) timed() bool {
	return l.nullNRA && (l.sameWord() || l.cols.Status == "")
}

// freshWhere are the rows that were never tried or were handed back, and, where failed rows cannot be
// told from those, failed ones that are due.
func (l *layout) freshWhere() string {
	switch {
	case l.cols.NextRetryAt == "":
		return l.status(l.states.New)
	case l.timed():
		return l.status(l.states.New) + " AND " + col(l.cols.NextRetryAt) + " IS NULL"
	default:
		return l.status(l.states.New) + " AND (" + col(l.cols.NextRetryAt) + " IS NULL OR " + l.due() + ")"
	}
}

// retryWhere are the rows whose next attempt is due, "" when freshWhere has them all.
func (l *layout) retryWhere() string {
	switch {
	case l.cols.NextRetryAt == "":
		return ""
	case l.timed():
		return l.status(l.states.New) + " AND " + col(l.cols.NextRetryAt) + " IS NOT NULL AND " + l.due()
	case l.sameWord() || l.cols.Status == "":
		return ""
	default:
		return l.status(l.states.Failed) + " AND " + col(l.cols.NextRetryAt) + " IS NOT NULL AND " + l.due()
	}
}

// tried tells of a row with the word of new ones that it failed before.
func (l *layout) tried() string {
	switch {
	case l.nullNRA:
		return col(l.cols.NextRetryAt) + " IS NOT NULL"
	case l.sameWord() && l.cols.RetryCount != "":
		return col(l.cols.RetryCount) + " > 0"
	default:
		return "0"
	}
}

// failedWhere are the rows that count as FAILED, due or not.
func (l *layout) failedWhere() string {
	switch {
	case l.cols.Status == "" && !l.timed():
		return "0"
	case l.cols.Status != "" && !l.sameWord():
		return l.status(l.states.Failed)
	case l.timed():
		return l.status(l.states.New) + " AND " + col(l.cols.NextRetryAt) + " IS NOT NULL"
	default:
		return fmt.Sprintf("%s AND (%s > 0 OR NOT %s)", l.status(l.states.New), col(l.cols.RetryCount), l.due())
	}
}

// deadWhere are the DEAD rows that nobody has discarded.
func (l *layout) deadWhere() string {
	if l.cols.Status == "" {
		return "0"
	}
	if l.cols.LastError == "" {
		return l.status(l.states.Dead)
	}
	return fmt.Sprintf("%s AND coalesce(%s, '') NOT LIKE 'discarded:%%'", l.status(l.states.Dead), col(l.cols.LastError))
}

// abandonedWhere are claimed rows whose claim is older than the timeout, given in milliseconds. A
// column of whole seconds may say up to a second less than the time of the claim.
func (l *layout) abandonedWhere(timeoutMillis int64) string {
	if l.claim != relay.ClaimRows {
		return ""
	}
	if l.clocks[l.claimColumn()].kind == clockSeconds {
		timeoutMillis += 999
	}
	return fmt.Sprintf("%s AND coalesce(%s, 0) <= %s - %d",
		l.status(l.states.Sending), columnMillis(col(l.claimColumn())), now, timeoutMillis)
}

// chooseScan looks for an index that gives new rows in order without a sort and without walking over
// sent ones, and ties the scan to it: without statistics SQLite might prefer another one.
func (l *layout) chooseScan(ctx context.Context, db *sql.DB) error {
	for _, ix := range l.catalog.indexes {
		from := l.table + " INDEXED BY " + col(ix.name)
		ordered, err := l.ordered(ctx, db, from, ix.partial)
		if err != nil {
			return err
		}
		if ordered {
			l.fresh = from
			l.notices = append(l.notices, fmt.Sprintf("new rows are read in order by index %q", ix.name))
			return nil
		}
	}
	l.fresh = l.table
	if l.cols.Status != "" {
		l.notices = append(l.notices, fmt.Sprintf(
			"no index gives new rows in order, so each read looks at more rows than it returns; CREATE INDEX outbox_new ON %s (%s) WHERE %s",
			l.table, col(l.cols.ID), l.status(l.states.New)))
	}
	return nil
}

// ordered asks the planner. A forced index that cannot serve the query is an error to SQLite.
func (l *layout) ordered(ctx context.Context, db *sql.DB, from string, partial bool) (bool, error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf("EXPLAIN QUERY PLAN SELECT rowid FROM %s WHERE %s ORDER BY rowid", from, l.freshWhere()))
	if err != nil {
		return false, ctx.Err()
	}
	defer rows.Close()
	search, sorts := false, false
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return false, fmt.Errorf("explain the scan: %w", err)
		}
		search = search || strings.HasPrefix(detail, "SEARCH")
		sorts = sorts || strings.Contains(detail, "TEMP B-TREE")
	}
	return (search || partial) && !sorts, rows.Err()
}
