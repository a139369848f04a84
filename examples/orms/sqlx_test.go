package orms

import (
	"context"

	"github.com/jmoiron/sqlx"
)

// A *sqlx.Tx is a transaction as it is.
func Example_sqlx() {
	ctx := context.Background()
	pool := open()
	defer pool.Close()
	db := sqlx.NewDb(pool, "sqlite")

	tx, err := db.BeginTxx(ctx, nil)
	check(err)
	defer tx.Rollback()
	_, err = tx.NamedExecContext(ctx, "INSERT INTO orders (no) VALUES (:no)", map[string]any{"no": "o-71"})
	check(err)
	check(writer.Write(ctx, tx, orderCreated("o-71")))
	check(tx.Commit())

	show(pool)
	// Output: o-71 OrderCreated NEW
}
