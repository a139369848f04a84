package outboxpgx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

// The event goes to the server together with the statements that it is about.
func ExampleWriter_Queue() {
	writer := outboxpgx.New(outbox.Options{})

	createOrder := func(ctx context.Context, pool *pgxpool.Pool, no string, payload []byte) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()

		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO orders (order_no, amount) VALUES ($1, 99.90)", no)
		batch.Queue("UPDATE stock SET reserved = reserved + 1 WHERE sku = $1", "A-1")
		err = writer.Queue(ctx, batch, outbox.Event{
			ID: "order-created-" + no, AggregateType: "Order", AggregateID: no, Type: "OrderCreated", Payload: payload,
		})
		if err != nil {
			return err // the event is at fault, nothing was sent
		}
		err = tx.SendBatch(ctx, batch).Close()
		if errors.Is(err, outbox.ErrDuplicateEvent) {
			return fmt.Errorf("order %s was created before: %w", no, err)
		}
		if err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	_ = createOrder
}

// A service on database/sql with pgx as its driver reaches the batch through the connection that its
// transaction runs on. The event goes to the server together with the last statement.
func ExampleWriter_Queue_databaseSQL() {
	writer := outboxpgx.New(outbox.Options{})

	pay := func(ctx context.Context, db *sql.DB, no string, payload []byte) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments (order_no) VALUES ($1)", no); err != nil {
			return err
		}

		batch := &pgx.Batch{}
		batch.Queue("UPDATE orders SET status = 'PAID' WHERE order_no = $1", no)
		err = writer.Queue(ctx, batch, outbox.Event{AggregateType: "Order", AggregateID: no, Type: "OrderPaid", Payload: payload})
		if err != nil {
			return err
		}
		err = conn.Raw(func(driver any) error {
			return driver.(*stdlib.Conn).Conn().SendBatch(ctx, batch).Close()
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = pay
}
