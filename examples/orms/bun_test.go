package orms

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
)

type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`

	ID int64  `bun:",pk,autoincrement"`
	No string `bun:"no"`
}

// Pass the *sql.Tx within bun's transaction. A bun.Tx compiles as well, but it formats the
// statement itself and knows "?" alone: on PostgreSQL the writer's "$1" would lose its arguments, and
// the database would refuse the statement.
func Example_bun() {
	ctx := context.Background()
	pool := open()
	defer pool.Close()
	db := bun.NewDB(pool, sqlitedialect.New())

	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&bunOrder{No: "o-71"}).Exec(ctx); err != nil {
			return err
		}
		return writer.Write(ctx, tx.Tx, orderCreated("o-71"))
	})
	check(err)

	show(pool)
	// Output: o-71 OrderCreated NEW
}
