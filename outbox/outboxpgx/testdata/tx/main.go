// Command tx is a test's input: a transaction compiles.
package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

func main() {
	var value *pgxpool.Tx
	_ = outboxpgx.New(outbox.Options{}).Write(context.Background(), value, outbox.Event{})
}
