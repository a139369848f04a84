// Command tx is a test's input: a transaction compiles.
package main

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/outbox"
)

func main() {
	var value *sql.Tx
	_ = outbox.New(outbox.Postgres, outbox.Options{}).Write(context.Background(), value, outbox.Event{})
}
