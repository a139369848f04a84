// Command db is a test's input: a pool is no transaction and must not compile.
package main

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/outbox"
)

func main() {
	var value *sql.DB
	_ = outbox.New(outbox.Postgres, outbox.Options{}).Write(context.Background(), value, outbox.Event{})
}
