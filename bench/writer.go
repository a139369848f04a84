package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
)

// writerCost compares a business transaction of two statements with the same one that also writes an
// event, in turn, so that drift of the machine falls on both.
func writerCost(ctx context.Context, s settings) error {
	b, err := newBed(ctx, s.database)
	if err != nil {
		return err
	}
	defer b.close()
	b.db.SetMaxOpenConns(1)
	for _, q := range []string{
		"CREATE TABLE orders (order_no VARCHAR(64) PRIMARY KEY, user_id BIGINT, amount NUMERIC(12,2), status VARCHAR(32))",
		"CREATE TABLE accounts (id INT PRIMARY KEY, orders BIGINT)",
		"INSERT INTO accounts VALUES (1, 0)",
	} {
		if _, err := b.db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	w := outbox.New(b.dialect, outbox.Options{})
	body := []byte(`{"note":"` + strings.Repeat("x", max(s.size-11, 0)) + `"}`)
	n := 0
	tx := func(event bool) (time.Duration, error) {
		n++
		no := fmt.Sprintf("ORD-%d", n)
		began := time.Now()
		tx, err := b.db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, b.bind("INSERT INTO orders VALUES ($1, 1, 9.90, 'CREATED')"), no); err != nil {
			return 0, err
		}
		if _, err := tx.ExecContext(ctx, b.bind("UPDATE accounts SET orders = orders + 1 WHERE id = $1"), 1); err != nil {
			return 0, err
		}
		if event {
			err := w.Write(ctx, tx, outbox.Event{AggregateType: "Order", AggregateID: no, Type: "OrderCreated", Payload: body})
			if err != nil {
				return 0, err
			}
		}
		if err := tx.Commit(); err != nil {
			return 0, err
		}
		return time.Since(began), nil
	}
	var with, without, ratio []float64
	for round := range 41 {
		var sum [2]time.Duration
		for range 100 {
			for i, event := range []bool{false, true} {
				d, err := tx(event)
				if err != nil {
					return err
				}
				sum[i] += d
			}
		}
		if round == 0 {
			continue // warm-up
		}
		without = append(without, sum[0].Seconds()*1e4)
		with = append(with, sum[1].Seconds()*1e4)
		ratio = append(ratio, sum[1].Seconds()/sum[0].Seconds())
	}
	fmt.Printf("two statements and COMMIT: %.0f µs, with an event: %.0f µs, ratio %.3f (medians of 40 rounds of 100)\n",
		median(without), median(with), median(ratio))
	return nil
}
