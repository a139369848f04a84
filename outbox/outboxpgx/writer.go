// Package outboxpgx writes events into an outbox table within a pgx transaction. It is package outbox
// for services that use pgx without database/sql, and it works in every query mode of pgx, through
// PgBouncer in transaction mode as well. Where the business statements go out in a pgx.Batch, Queue
// lets the event travel with them, at no round trip of its own.
//
// It owns the step from a pgx.Tx to an outbox.Tx, and from events to a batch, and nothing else.
package outboxpgx

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/outbox"
)

// Writer writes events to one outbox table of PostgreSQL. It holds no connection and is safe for use
// by many goroutines.
type Writer struct{ writer *outbox.Writer }

// New returns a Writer. Wrong options do not panic: Err reports them, and so does every Write.
func New(options outbox.Options) *Writer {
	return &Writer{outbox.New(outbox.Postgres, options)}
}

// Err reports what is wrong with the options given to New, nil when nothing is.
func (w *Writer) Err() error { return w.writer.Err() }

// Write inserts the events within tx, as outbox.Writer.Write does. A *pgx.Conn or a *pgxpool.Pool is
// no pgx.Tx and does not compile.
func (w *Writer) Write(ctx context.Context, tx pgx.Tx, events ...outbox.Event) error {
	if tx == nil {
		return w.writer.Write(ctx, nil, events...)
	}
	return w.writer.Write(ctx, Tx(ctx, tx), events...)
}

// Tx shows a pgx transaction as an outbox.Tx, for code that takes the latter. Its Commit and Rollback
// end the pgx transaction with ctx.
func Tx(ctx context.Context, tx pgx.Tx) outbox.Tx { return adapter{ctx, tx} }

// adapter keeps a context because database/sql's Commit and Rollback take none; it lives for one call.
type adapter struct {
	ctx context.Context
	tx  pgx.Tx
}

func (a adapter) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := a.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return result{tag}, nil
}

func (a adapter) Commit() error   { return a.tx.Commit(a.ctx) }
func (a adapter) Rollback() error { return a.tx.Rollback(a.ctx) }

// result is pgx's command tag as a sql.Result.
type result struct{ tag pgconn.CommandTag }

func (r result) RowsAffected() (int64, error) { return r.tag.RowsAffected(), nil }

// LastInsertId is never known: PostgreSQL has no such thing.
func (r result) LastInsertId() (int64, error) {
	return 0, errors.New("PostgreSQL reports no last insert id: use RETURNING")
}
