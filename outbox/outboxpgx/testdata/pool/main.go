// Command pool is a test's input: a pool is no transaction and must not compile.
package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

func main() {
	var value *pgxpool.Pool
	_ = outboxpgx.New(outbox.Options{}).Write(context.Background(), value, outbox.Event{})
}
