package outbox

import (
	"context"
	"database/sql"
)

// Tx is an open transaction of the caller. It has Commit and Rollback only so that a value without
// a transaction behind it does not compile: *sql.Tx, *sqlx.Tx, the *sql.Tx inside a bun.Tx, GORM's
// transaction pool and ent's Tx satisfy it; *sql.DB and *sql.Conn do not. This package calls
// ExecContext and nothing else: ending the transaction stays with the one who began it.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

var _ Tx = (*sql.Tx)(nil)
