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

// marked compares the status with a word that is not NEW or SENT. In the own table such rows have a
// next_retry_at, and so are in the small index of those that have one.
func (l *layout) marked(word string) string {
	if l.own {
		return l.status(word) + " AND " + col(l.cols.NextRetryAt) + " IS NOT NULL"
	}
	return l.status(word)
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
		return l.marked(l.states.Failed)
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
		return l.marked(l.states.Dead)
	}
	return fmt.Sprintf("%s AND coalesce(%s, '') NOT LIKE 'discarded:%%'", l.marked(l.states.Dead), col(l.cols.LastError))
}

// discardedWhere are the other DEAD rows.
func (l *layout) discardedWhere() string {
	if l.cols.Status == "" || l.cols.LastError == "" {
		return "0"
	}
	return fmt.Sprintf("%s AND %s LIKE 'discarded:%%'", l.marked(l.states.Dead), col(l.cols.LastError))
}

// abandonedWhere are claimed rows whose claim is older than the timeout, given in milliseconds. A
// column of whole seconds may say up to a second less than the time of the claim.
func (l *layout) abandonedWhere(timeoutMillis int64) string {
	if l.claim != relay.ClaimRows {
		return ""
	}
	if l.own { // claimed rows have the claim's time as next_retry_at too, for its index
		return fmt.Sprintf("%s AND %s <= %s", l.marked(l.states.Sending), col(l.cols.NextRetryAt),
			clock{}.at("'now'", lit(fmt.Sprintf("-%.3f seconds", float64(timeoutMillis)/1000))))
	}
	if l.clocks[l.claimColumn()].kind == clockSeconds {
		timeoutMillis += 999
	}
	return fmt.Sprintf("%s AND coalesce(%s, 0) <= %s - %d",
		l.status(l.states.Sending), columnMillis(col(l.claimColumn())), now, timeoutMillis)
}

// chooseScans looks for an index that gives new rows in order without a sort and without walking over
// sent ones, and for one that finds failed and dead rows, and ties the scans to them: without
// statistics SQLite might prefer others.
func (l *layout) chooseScans(ctx context.Context, db *sql.DB) error {
	l.fresh, l.rest = l.table, l.table
	for _, ix := range l.catalog.indexes {
		from := l.table + " INDEXED BY " + col(ix.name)
		if l.fresh == l.table {
			p, err := l.explain(ctx, db, from, l.freshWhere()+" ORDER BY rowid")
			if err != nil {
				return err
			}
			if (p.search || p.serves && ix.partial) && !p.sorts {
				l.fresh = from
				l.notices = append(l.notices, fmt.Sprintf("new rows are read in order by index %q", ix.name))
			}
		}
		if l.rest == l.table && l.cols.Status != "" {
			p, err := l.explain(ctx, db, from, l.marked(l.states.Dead))
			if err != nil {
				return err
			}
			if p.search || p.serves && ix.partial {
				l.rest = from
			}
		}
	}
	if l.fresh == l.table && l.cols.Status != "" {
		l.notices = append(l.notices, fmt.Sprintf(
			"no index gives new rows in order, so each read looks at more rows than it returns: CREATE INDEX outbox_new ON %s (%s) WHERE %s",
			l.table, col(l.cols.ID), l.status(l.states.New)))
	}
	return nil
}

// planned is what the planner says about a query.
type planned struct{ serves, search, sorts bool }

// explain asks the planner. An index that is forced and cannot serve the query is an error to SQLite.
func (l *layout) explain(ctx context.Context, db *sql.DB, from, where string) (p planned, err error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf("EXPLAIN QUERY PLAN SELECT rowid FROM %s WHERE %s", from, where))
	if err != nil {
		return p, ctx.Err()
	}
	defer rows.Close()
	p.serves = true
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return p, fmt.Errorf("explain the scan: %w", err)
		}
		p.search = p.search || strings.HasPrefix(detail, "SEARCH")
		p.sorts = p.sorts || strings.Contains(detail, "TEMP B-TREE")
	}
	return p, rows.Err()
}
