package outboxpgx

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/outbox"
)

// Queue puts the INSERT of the events into a batch that the caller sends with the business statements,
// so that the events cost no round trip of their own. Ctx gives the trace context; sending has its own.
// The statements are those that Write would execute: one, or several for a set beyond the limits of a
// statement. Without events nothing is queued.
//
// Every event is checked before anything is queued: after an error, a *outbox.ValidationError for
// example, the batch is as it was and may still be sent.
//
// What the database says is known when the batch's results are read. Close of the BatchResults reads
// them and returns the first error of the batch, of whichever statement: for an event id that the table
// already has it is one in which errors.Is finds outbox.ErrDuplicateEvent, every other error is pgx's
// own. The duplicate fails the batch as a whole, as any error does: later statements are not executed,
// the transaction is aborted. So leave the results of what Queue added to Close, and check its error.
// BatchResults.Exec read by hand, once for each statement, passes by the check for a duplicate and
// returns pgx's error as it is.
//
// Queue cannot see where the batch goes, and that decides what an event is worth:
//
//   - Sent with pgx.Tx, the events share the fate of that transaction, as with Write.
//   - Sent with the *pgx.Conn beneath an open *sql.Tx, they share the fate of that one: see the example.
//   - Sent with a *pgx.Conn or a *pgxpool.Pool, outside of a transaction, PostgreSQL runs the batch as one
//     transaction, which commits at its end or not at all. The events are then atomic with the other
//     statements of this batch, and with nothing that was sent before or is sent afterwards: the
//     business data must be in the batch. A batch that has BEGIN, COMMIT or ROLLBACK in it is as
//     many transactions as these make.
func (w *Writer) Queue(ctx context.Context, batch *pgx.Batch, events ...outbox.Event) error {
	if batch == nil && w.Err() == nil && len(events) > 0 {
		return errors.New("queue events: the batch is nil")
	}
	statements, err := w.writer.Statements(ctx, events...)
	if err != nil {
		return err
	}
	for _, s := range statements {
		batch.Queue(s.Query, s.Args...).Fn = func(results pgx.BatchResults) error {
			_, err := results.Exec()
			return batchError(s, err)
		}
	}
	return nil
}

// batchError says which duplicate it was and leaves other errors alone: in two of its query modes pgx
// goes on to this statement's result after an earlier statement failed, and gives that one's error.
func batchError(s outbox.Statement, err error) error {
	if own := s.Err(err); errors.Is(own, outbox.ErrDuplicateEvent) {
		return own
	}
	return err
}
