package orms

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/glebarez/go-sqlite"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/schema"
)

// writer is made once per process.
var writer = outbox.New(outbox.SQLite, outbox.Options{})

func orderCreated(no string) outbox.Event {
	return outbox.Event{
		AggregateType: "Order", AggregateID: no, Type: "OrderCreated", Payload: []byte(`{"orderNo":"` + no + `"}`),
	}
}

// open returns a database in memory with the outbox and the service's own table.
func open() *sql.DB {
	db, err := sql.Open("sqlite", ":memory:?_pragma=foreign_keys(1)")
	check(err)
	db.SetMaxOpenConns(1) // each connection has a memory of its own
	_, err = schema.Apply(context.Background(), db, outbox.SQLite)
	check(err)
	_, err = db.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, no TEXT NOT NULL UNIQUE)")
	check(err)
	return db
}

// show prints what committed.
func show(db *sql.DB) {
	rows, err := db.Query("SELECT o.no, e.event_type, e.status FROM orders o JOIN outbox_events e ON e.aggregate_id = o.no ORDER BY e.id")
	check(err)
	defer rows.Close()
	for rows.Next() {
		var no, eventType, status string
		check(rows.Scan(&no, &eventType, &status))
		fmt.Println(no, eventType, status)
	}
	check(rows.Err())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
