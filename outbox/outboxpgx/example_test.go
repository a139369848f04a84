package outboxpgx_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
