// Package inbox runs a handler once per event and consumer group, in the caller's own database
// transaction: the note that the event was applied commits or rolls back with what the handler did.
//
//	box := inbox.New(outbox.Postgres, "inventory", inbox.Options{})
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	fresh, err := box.Once(ctx, tx, eventID, func(ctx context.Context) error {
//		// UPDATE stock ...
//	})
//	err = tx.Commit() // roll back when Once returned an error
//	// only now commit the Kafka offset
//
// It owns the statement that takes an event and the answer whether it was new. It refuses to know
// Kafka, offsets, retries and how a transaction begins or ends. It imports no driver.
package inbox
