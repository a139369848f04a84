package librarytest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

// onBatches runs a test in every query mode of pgx, in which batches go out in different ways, on
// tables of its own: the outbox and orders, whose note is checked at COMMIT only.
func onBatches(t *testing.T, test func(t *testing.T, b *base, conn *pgx.Conn)) {
	t.Helper()
	on(t, func(t *testing.T, b *base) {
		b.apply(t)
		b.exec(t, "CREATE TABLE orders (no TEXT PRIMARY KEY, note TEXT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
		for _, mode := range queryModes {
			t.Run(mode.String(), func(t *testing.T) {
				b.exec(t, "TRUNCATE outbox_events, orders")
				test(t, b, pgxConn(t, b, mode, url.Values{"search_path": {b.name}}))
			})
		}
	}, outbox.Postgres)
}

// sale is a batch of one order.
func sale(no, note string) *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO orders VALUES ($1, $2)", no, note)
	return batch
}

// holds says how many orders and events are committed.
func holds(t *testing.T, b *base, orders, events int) {
	t.Helper()
	require.Equal(t, orders, one[int](t, b, "SELECT count(*) FROM orders"), "orders")
	require.Equal(t, events, one[int](t, b, "SELECT count(*) FROM outbox_events"), "events")
}

// inPgx sends a batch in a transaction and commits it.
func inPgx(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// outside sends a batch on the connection itself.
func outside(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch) error {
	return conn.SendBatch(ctx, batch).Close()
}

func TestPgxWriter_Queue_SharesTheFateOfTheTransaction(t *testing.T) {
	t.Parallel()
	w := outboxpgx.New(outbox.Options{})
	onBatches(t, func(t *testing.T, b *base, conn *pgx.Conn) {
		batch := sale("o-1", "")
		full := order("e-1")
		full.Payload, full.Headers = []byte("\x00\xff'\"\\"), map[string]string{"a": `'"\` + "\x00"}
		require.NoError(t, w.Queue(t.Context(), batch, full, order("e-2")))
		require.NoError(t, w.Queue(t.Context(), batch))
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, tx.SendBatch(t.Context(), batch).Close())
		holds(t, b, 0, 0)
		require.NoError(t, tx.Commit(t.Context()))
		holds(t, b, 1, 2)
		require.Equal(t, full.Payload, one[[]byte](t, b, "SELECT payload FROM outbox_events WHERE event_id = 'e-1'"))
		require.Equal(t, `{"a":"'\"\\\u0000"}`, one[string](t, b, "SELECT headers::text FROM outbox_events WHERE event_id = 'e-1'"))

		batch = sale("o-2", "2")
		require.NoError(t, w.Queue(t.Context(), batch, order("e-3")))
		tx, err = conn.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, tx.SendBatch(t.Context(), batch).Close())
		require.NoError(t, tx.Rollback(t.Context()))
		holds(t, b, 1, 2)
	})
}

// TestPgxWriter_Queue_BatchThatBegins its transaction itself, as pgx offers it since v5.13.
func TestPgxWriter_Queue_BatchThatBegins(t *testing.T) {
	t.Parallel()
	w := outboxpgx.New(outbox.Options{})
	onBatches(t, func(t *testing.T, b *base, conn *pgx.Conn) {
		for i, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Rollback, pgx.Tx.Commit} {
			batch := &pgx.Batch{}
			batch.BeginTx(pgx.TxOptions{})
			batch.Queue("INSERT INTO orders VALUES ('o-1', '1')")
			require.NoError(t, w.Queue(t.Context(), batch, order("e-1")))
			results := conn.SendBatch(t.Context(), batch)
			require.NoError(t, results.Close())
			holds(t, b, 0, 0)
			require.NoError(t, end(results.Tx(), t.Context()))
			holds(t, b, i, i)
		}
	})
}

// TestPgxWriter_Queue_WithinDatabaseSQL sends the batch on the connection of an open *sql.Tx.
func TestPgxWriter_Queue_WithinDatabaseSQL(t *testing.T) {
	t.Parallel()
	w := outboxpgx.New(outbox.Options{})
	on(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "CREATE TABLE orders (no TEXT PRIMARY KEY, note TEXT)")
		place := func(no, eventID string, end func(*sql.Tx) error) error {
			conn, err := b.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer tx.Rollback()
			_, err = tx.ExecContext(t.Context(), "INSERT INTO orders VALUES ($1)", no)
			require.NoError(t, err)
			batch := &pgx.Batch{}
			batch.Queue("UPDATE orders SET note = 'paid' WHERE no = $1", no)
			require.NoError(t, w.Queue(t.Context(), batch, order(eventID)))
			err = conn.Raw(func(driver any) error {
				return driver.(*stdlib.Conn).Conn().SendBatch(t.Context(), batch).Close()
			})
			if err != nil {
				return err
			}
			return end(tx)
		}
		require.NoError(t, place("o-1", "e-1", (*sql.Tx).Rollback))
		holds(t, b, 0, 0)
		require.NoError(t, place("o-1", "e-1", (*sql.Tx).Commit))
		holds(t, b, 1, 1)
		require.Equal(t, 1, one[int](t, b, "SELECT count(*) FROM orders WHERE note = 'paid'"))
		require.ErrorIs(t, place("o-2", "e-1", (*sql.Tx).Commit), outbox.ErrDuplicateEvent)
		holds(t, b, 1, 1)
		require.NoError(t, place("o-2", "e-2", (*sql.Tx).Commit), "the connection is of use again")
		holds(t, b, 2, 2)
	}, outbox.Postgres)
}

func TestPgxWriter_Queue_ThroughPgBouncer(t *testing.T) {
	t.Parallel()
	w := outboxpgx.New(outbox.Options{})
	b := pooled(t).apply(t)
	b.exec(t, "CREATE TABLE orders (no TEXT PRIMARY KEY, note TEXT)")
	n := 0
	for _, mode := range queryModes {
		conn := pgxConn(t, b, mode, nil)
		for _, send := range []func(context.Context, *pgx.Conn, *pgx.Batch) error{inPgx, outside} {
			n++
			batch := sale(fmt.Sprintf("o-%d", n), "")
			require.NoError(t, w.Queue(t.Context(), batch, order(fmt.Sprintf("e-%d", n))))
			require.NoError(t, send(t.Context(), conn, batch))
			holds(t, b, n, n)

			batch = sale("again", "")
			require.NoError(t, w.Queue(t.Context(), batch, order(fmt.Sprintf("e-%d", n))))
			require.ErrorIs(t, send(t.Context(), conn, batch), outbox.ErrDuplicateEvent)
			holds(t, b, n, n)
		}
	}
}

func TestPgxWriter_Queue_SeveralStatements(t *testing.T) {
	t.Parallel()
	const n = 9000 // beyond the parameters of one statement
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = order(fmt.Sprintf("e-%05d", i))
	}
	onBatches(t, func(t *testing.T, b *base, conn *pgx.Conn) {
		batch := sale("o-1", "")
		require.NoError(t, outboxpgx.New(outbox.Options{}).Queue(t.Context(), batch, events...))
		require.Greater(t, batch.Len(), 2)
		require.NoError(t, inPgx(t.Context(), conn, batch))
		holds(t, b, 1, n)
		require.Zero(t, one[int](t, b, "SELECT count(*) FROM outbox_events a JOIN outbox_events b ON b.id = a.id + 1 WHERE b.event_id < a.event_id"),
			"ids follow the order of the call")
	})
}

func TestPgxWriter_Queue_InvalidEventLeavesTheBatch(t *testing.T) {
	t.Parallel()
	onBatches(t, func(t *testing.T, b *base, conn *pgx.Conn) {
		batch, broken := sale("o-1", ""), order("e-2")
		broken.Type = ""
		var invalid *outbox.ValidationError
		require.ErrorAs(t, outboxpgx.New(outbox.Options{}).Queue(t.Context(), batch, order("e-1"), broken), &invalid)
		require.NoError(t, inPgx(t.Context(), conn, batch), "the batch may be sent without the events")
		holds(t, b, 1, 0)
	})
}

// TestPgxWriter_Queue_DuplicateID: within a transaction and outside of one, the batch fails as a whole
// and the error tells the duplicate.
func TestPgxWriter_Queue_DuplicateID(t *testing.T) {
	t.Parallel()
	w := outboxpgx.New(outbox.Options{})
	onBatches(t, func(t *testing.T, b *base, conn *pgx.Conn) {
		batch := sale("o-1", "1")
		require.NoError(t, w.Queue(t.Context(), batch, order("e-1")))
		require.NoError(t, inPgx(t.Context(), conn, batch))
		for _, send := range []func(context.Context, *pgx.Conn, *pgx.Batch) error{inPgx, outside} {
			batch = sale("o-2", "2")
			require.NoError(t, w.Queue(t.Context(), batch, order("e-2"), order("e-1")))
			batch.Queue("INSERT INTO orders VALUES ('o-3', '3')")
			require.NoError(t, w.Queue(t.Context(), batch, order("e-3")))
			err := send(t.Context(), conn, batch)
			var dup *outbox.DuplicateError
			require.ErrorAs(t, err, &dup)
			require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
			require.Equal(t, []string{"e-1"}, dup.EventIDs)
			holds(t, b, 1, 1)
		}
	})
}

// TestPgxWriter_Queue_ErrorOfAnotherStatement is not taken for one of the outbox, wherever it stands.
func TestPgxWriter_Queue_ErrorOfAnotherStatement(t *testing.T) {
	t.Parallel()
	w := outboxpgx.New(outbox.Options{})
	onBatches(t, func(t *testing.T, b *base, conn *pgx.Conn) {
		b.exec(t, "INSERT INTO orders VALUES ('o-1', '1')")
		for _, send := range []func(context.Context, *pgx.Conn, *pgx.Batch) error{inPgx, outside} {
			before, after := sale("o-1", "2"), sale("o-2", "2")
			require.NoError(t, w.Queue(t.Context(), before, order("e-1")))
			require.NoError(t, w.Queue(t.Context(), after, order("e-1")))
			after.Queue("INSERT INTO orders VALUES ('o-1', '2')")
			for _, batch := range []*pgx.Batch{before, after} {
				err := send(t.Context(), conn, batch)
				require.ErrorContains(t, err, "orders_pkey")
				require.NotErrorIs(t, err, outbox.ErrDuplicateEvent)
				require.NotContains(t, err.Error(), "outbox")
				holds(t, b, 1, 0)
			}
		}
	})
}

// TestPgxWriter_Queue_OutsideOfATransaction: the batch is one transaction of its own, to its COMMIT,
// where the order that a deferred constraint refuses takes the event with it.
func TestPgxWriter_Queue_OutsideOfATransaction(t *testing.T) {
	t.Parallel()
	w := outboxpgx.New(outbox.Options{})
	onBatches(t, func(t *testing.T, b *base, conn *pgx.Conn) {
		batch := sale("o-1", "the same")
		require.NoError(t, w.Queue(t.Context(), batch, order("e-1")))
		require.NoError(t, outside(t.Context(), conn, batch))
		holds(t, b, 1, 1)

		batch = sale("o-2", "the same")
		require.NoError(t, w.Queue(t.Context(), batch, order("e-2")))
		require.ErrorContains(t, outside(t.Context(), conn, batch), "orders_note_key")
		holds(t, b, 1, 1)
	})
}

// TestPgxWriter_Queue_ResultsReadByHand: what the documentation says of Exec, and that Close still
// checks what is left.
func TestPgxWriter_Queue_ResultsReadByHand(t *testing.T) {
	t.Parallel()
	w := outboxpgx.New(outbox.Options{})
	onBatches(t, func(t *testing.T, b *base, conn *pgx.Conn) {
		batch := sale("o-1", "1")
		require.NoError(t, w.Queue(t.Context(), batch, order("e-1")))
		require.NoError(t, outside(t.Context(), conn, batch))

		batch = sale("o-2", "2")
		require.NoError(t, w.Queue(t.Context(), batch, order("e-1")))
		results := conn.SendBatch(t.Context(), batch)
		tag, err := results.Exec()
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())
		require.ErrorIs(t, results.Close(), outbox.ErrDuplicateEvent)

		batch = sale("o-2", "2")
		require.NoError(t, w.Queue(t.Context(), batch, order("e-1")))
		results = conn.SendBatch(t.Context(), batch)
		_, err = results.Exec()
		require.NoError(t, err)
		_, err = results.Exec()
		require.ErrorContains(t, err, "outbox_events_event_id_key")
		require.NotErrorIs(t, err, outbox.ErrDuplicateEvent)
		require.Error(t, results.Close())
		holds(t, b, 1, 1)
	})
}
