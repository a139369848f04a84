package orms

import (
	"context"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/postrider/postrider/examples/orms/ent"
)

// An *ent.Tx is a transaction once the client is generated with the feature sql/execquery.
func Example_ent() {
	ctx := context.Background()
	pool := open()
	defer pool.Close()
	client := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.SQLite, pool)))

	tx, err := client.Tx(ctx)
	check(err)
	_, err = tx.Order.Create().SetNo("o-71").Save(ctx)
	check(err)
	check(writer.Write(ctx, tx, orderCreated("o-71")))
	check(tx.Commit())

	show(pool)
	// Output: o-71 OrderCreated NEW
}
