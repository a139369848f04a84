package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// Querier is what Check asks questions with: *sql.DB, *sql.Conn, *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Check looks whether the table exists with its columns and whether its unique key really is group
// and event id: a key that a partition column extends lets the same event pass twice, and MySQL would
// not say so. It writes nothing. A consumer calls it once at start. The error is ErrNoUniqueKey
// where the key is at fault.
func (b *Inbox) Check(ctx context.Context, db Querier) error {
	if b.err != nil {
		return b.err
	}
	if err := b.plan(ctx, db); err != nil {
		if b.table.lacksKey(err) {
			return b.noKey(err)
		}
		return fmt.Errorf("check inbox table %s: %w", b.table.name, err)
	}
	if b.table.dialect == outbox.MySQL || b.table.dialect == outbox.MariaDB {
		return b.checkMySQLKey(ctx, db)
	}
	return nil
}

// plan lets the database plan the statement, which settles the names, and the key on PostgreSQL and
// SQLite. Some drivers report an error of planning with the rows only.
func (b *Inbox) plan(ctx context.Context, db Querier) error {
	rows, err := db.QueryContext(ctx, "EXPLAIN "+b.insert, b.group, "check")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		continue
	}
	return rows.Err()
}

// checkMySQLKey looks for a unique key that holds no column beside group and event id.
func (b *Inbox) checkMySQLKey(ctx context.Context, db Querier) error {
	const query = `SELECT GROUP_CONCAT(LOWER(COLUMN_NAME) SEPARATOR '/') FROM information_schema.STATISTICS
		WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ? AND NON_UNIQUE = 0
		GROUP BY INDEX_NAME`
	parts, _ := outbox.SplitTable(b.table.name)
	rows, err := db.QueryContext(ctx, query, strings.Join(parts[:len(parts)-1], ""), b.table.bare)
	if err != nil {
		return fmt.Errorf("read keys of inbox table %s: %w", b.table.name, err)
	}
	defer rows.Close()
	want := []string{strings.ToLower(b.table.group), strings.ToLower(b.table.eventID)}
	slices.Sort(want)
	for rows.Next() {
		var columns string
		if err := rows.Scan(&columns); err != nil {
			return fmt.Errorf("read keys of inbox table %s: %w", b.table.name, err)
		}
		have := strings.Split(columns, "/")
		slices.Sort(have)
		if slices.Equal(have, want) {
			return nil
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read keys of inbox table %s: %w", b.table.name, err)
	}
	return b.noKey(nil)
}

// noKey names the remedy; cause may be nil.
func (b *Inbox) noKey(cause error) error {
	err := fmt.Errorf("%w: give %s a primary key of exactly (%s, %s), not extended by a partition column",
		ErrNoUniqueKey, b.table.name, b.table.group, b.table.eventID)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
