// Command conn is a test's input: a connection is no transaction and must not compile.
package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

func main() {
	var value *pgx.Conn
	_ = outboxpgx.New(outbox.Options{}).Write(context.Background(), value, outbox.Event{})
}
