// Package outbox writes events into an outbox table within the caller's own database transaction,
// so that the business data and the event commit or roll back together.
//
//	writer := outbox.New(outbox.Postgres, outbox.Options{})
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	// INSERT INTO orders ...
//	err = writer.Write(ctx, tx, outbox.Event{
//		AggregateType: "Order",
//		AggregateID:   order.No,
//		Type:          "OrderCreated",
//		Payload:       payload,
//	})
//	err = tx.Commit()
//
// It owns the event, its validation and the INSERT. It refuses to know Kafka, the relay that reads
// the table, any driver, and how a transaction begins or ends. It imports the standard library only.
package outbox
