package orms

import (
	"errors"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/postrider/postrider/outbox"
)

type gormOrder struct {
	ID int64
	No string
}

func (gormOrder) TableName() string { return "orders" }

// Within a GORM transaction the connection pool of the statement is the transaction. Outside of one
// it is the pool, which is no outbox.Tx: the assertion says so instead of writing without a
// transaction.
func Example_gorm() {
	pool := open()
	defer pool.Close()
	db, err := gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{})
	check(err)

	err = db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&gormOrder{No: "o-71"}).Error; err != nil {
			return err
		}
		sqlTx, ok := tx.Statement.ConnPool.(outbox.Tx)
		if !ok {
			return errors.New("not within a transaction")
		}
		return writer.Write(tx.Statement.Context, sqlTx, orderCreated("o-71"))
	})
	check(err)
	if _, ok := db.Statement.ConnPool.(outbox.Tx); ok {
		panic("a pool passes for a transaction")
	}

	show(pool)
	// Output: o-71 OrderCreated NEW
}

// With prepared statements GORM wraps its transaction, and the wrapper is an outbox.Tx as well.
func Example_gormPrepared() {
	pool := open()
	defer pool.Close()
	db, err := gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{PrepareStmt: true})
	check(err)

	tx := db.Begin()
	defer tx.Rollback()
	check(tx.Create(&gormOrder{No: "o-72"}).Error)
	check(writer.Write(tx.Statement.Context, tx.Statement.ConnPool.(outbox.Tx), orderCreated("o-72")))
	check(tx.Commit().Error)

	show(pool)
	// Output: o-72 OrderCreated NEW
}
