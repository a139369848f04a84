package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
)

// lockWait bounds how long Apply waits for another Apply on MySQL and SQLite; PostgreSQL waits as long
// as the context allows.
const lockWait = time.Minute

// querier is what *sql.DB, *sql.Conn and *sql.Tx have in common.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// catalogue reads what a database has.
type catalogue struct {
	dialect outbox.Dialect
	conn    querier
}

// tables lists the tables that an installation on this database has.
func (c catalogue) tables() []table {
	var own []table
	for _, t := range tables {
		if t.only == "" || t.only == c.dialect {
			own = append(own, t)
		}
	}
	return own
}

// columns returns the names of a table's columns, none when there is no such table.
func (c catalogue) columns(ctx context.Context, name string) ([]string, error) {
	// PostgreSQL's information_schema hides what the user has no right on; its catalogue does not.
	query := `SELECT attname FROM pg_catalog.pg_attribute
		WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`
	switch c.dialect {
	case outbox.MySQL, outbox.MariaDB:
		query = `SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?`
	case outbox.SQLite:
		query = `SELECT name FROM pragma_table_info(?)`
	}
	rows, err := c.conn.QueryContext(ctx, query, name)
	if err != nil {
		return nil, fmt.Errorf("read columns of %s: %w", name, err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var column string
		if err := rows.Scan(&column); err != nil {
			return nil, fmt.Errorf("read columns of %s: %w", name, err)
		}
		names = append(names, column)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read columns of %s: %w", name, err)
	}
	return names, nil
}

// version returns the installed version, 0 when there is none.
func (c catalogue) version(ctx context.Context) (int, error) {
	columns, err := c.columns(ctx, versionTable)
	if err != nil || len(columns) == 0 {
		return 0, err
	}
	var version int
	err = c.conn.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM "+versionTable).Scan(&version)
	if err != nil {
		return 0, fmt.Errorf("read version from %s: %w", versionTable, err)
	}
	return version, nil
}

// session is one connection that holds the lock under which the tables change.
type session struct {
	catalogue
	commit func(ctx context.Context) error
	close  func() // releases the lock; rolls back what was not committed
}

func open(ctx context.Context, db *sql.DB, d outbox.Dialect) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	s := &session{catalogue: catalogue{d, conn}}
	switch d {
	case outbox.Postgres:
		err = s.lockPostgres(ctx, conn)
	case outbox.SQLite:
		err = s.lockSQLite(ctx, conn)
	default:
		err = s.lockMySQL(ctx, conn)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	return s, nil
}

// lockPostgres takes a lock that ends with the transaction, so it works through PgBouncer and cannot
// be left behind.
func (s *session) lockPostgres(ctx context.Context, conn *sql.Conn) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	const key = 0x706f73747269 // "postri"
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(key)); err != nil {
		_ = tx.Rollback()
		return err
	}
	s.conn = tx
	s.commit = func(context.Context) error { return tx.Commit() }
	s.close = func() {
		_ = tx.Rollback() // says that the transaction has ended when it was committed
		_ = conn.Close()
	}
	return nil
}

// lockMySQL takes a named lock of the current database, since DDL ends a transaction.
func (s *session) lockMySQL(ctx context.Context, conn *sql.Conn) error {
	var database sql.NullString
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return err
	}
	if !database.Valid {
		return errors.New("no database is selected: name one in the URL")
	}
	var got sql.NullInt64
	const name = "CONCAT('postrider_', LEFT(SHA2(DATABASE(), 256), 40))" // at most 64 characters
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+name+", ?)", int(lockWait.Seconds())).Scan(&got)
	if err != nil {
		return err
	}
	if got.Int64 != 1 {
		return fmt.Errorf("another session has been changing the schema of %s for %s: see SHOW PROCESSLIST", database.String, lockWait)
	}
	s.commit = func(context.Context) error { return nil }
	s.close = func() {
		// The context may have ended by now; a lock that is not released ends with the connection.
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK("+name+")")
		_ = conn.Close()
	}
	return nil
}

// lockSQLite begins as a writer: a transaction that reads first could not become one.
func (s *session) lockSQLite(ctx context.Context, conn *sql.Conn) error {
	deadline := time.Now().Add(lockWait)
	for {
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "database is locked") || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	open := true
	s.commit = func(ctx context.Context) error {
		_, err := conn.ExecContext(ctx, "COMMIT")
		open = err != nil
		return err
	}
	s.close = func() {
		if open {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
		_ = conn.Close()
	}
	return nil
}
