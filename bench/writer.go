package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

// shop is a business with two tables beside an outbox. Its transactions are always of two statements.
type shop struct {
	*bed
	conn   *pgx.Conn // nil but on PostgreSQL
	writer *outbox.Writer
	native *outboxpgx.Writer
	order  string // the two statements
	count  string
	hand   string // the INSERT that the writer makes, written by hand
	body   []byte
	n      int
}

// sale is one way to make the transaction.
type sale struct {
	name string
	base bool // it writes no event, and those after it are compared with it
	run  func(ctx context.Context) error
}

// writerCost compares a business transaction of two statements with the same one that also writes an
// event. All ways take turns, transaction by transaction, so that drift of the machine falls on all.
func writerCost(ctx context.Context, s settings) error {
	shop, err := newShop(ctx, s)
	if err != nil {
		return err
	}
	defer shop.close()
	sales := shop.sqlSales()
	if shop.conn != nil {
		sales = append(sales, shop.pgxSales()...)
	}
	const rounds, each = 40, 50
	micros, ratio := make([][]float64, len(sales)), make([][]float64, len(sales))
	for round := range rounds + 1 {
		sum := make([]float64, len(sales))
		for range each {
			for i := range sales {
				shop.n++
				began := time.Now()
				if err := sales[i].run(ctx); err != nil {
					return fmt.Errorf("%s: %w", sales[i].name, err)
				}
				sum[i] += time.Since(began).Seconds() * 1e6
			}
		}
		if round == 0 {
			continue // warm-up
		}
		base := 0
		for i := range sales {
			if sales[i].base {
				base = i
			}
			micros[i] = append(micros[i], sum[i]/each)
			ratio[i] = append(ratio[i], sum[i]/sum[base])
		}
	}
	fmt.Printf("%-56s %8s %8s\n", fmt.Sprintf("medians of %d rounds of %d", rounds, each), "µs", "")
	for i := range sales {
		if sales[i].base {
			fmt.Printf("%-56s %8.0f\n", sales[i].name, median(micros[i]))
			continue
		}
		fmt.Printf("  + %-52s %8.0f %+7.1f%%\n", sales[i].name, median(micros[i]), 100*(median(ratio[i])-1))
	}
	return nil
}

func newShop(ctx context.Context, s settings) (*shop, error) {
	b, err := newBed(ctx, s)
	if err != nil {
		return nil, err
	}
	b.db.SetMaxOpenConns(1)
	for _, q := range []string{
		"CREATE TABLE orders (order_no VARCHAR(64) PRIMARY KEY, user_id BIGINT, amount NUMERIC(12,2), status VARCHAR(32))",
		"CREATE TABLE accounts (id INT PRIMARY KEY, orders BIGINT)",
		"INSERT INTO accounts VALUES (1, 0)",
	} {
		if _, err := b.db.ExecContext(ctx, q); err != nil {
			b.close()
			return nil, err
		}
	}
	shop := &shop{
		bed: b, writer: outbox.New(b.dialect, outbox.Options{}), native: outboxpgx.New(outbox.Options{}),
		order: b.bind("INSERT INTO orders VALUES ($1, 1, 9.90, 'CREATED')"),
		count: b.bind("UPDATE accounts SET orders = orders + 1 WHERE id = $1"),
		hand: b.bind("INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, topic, message_key, payload, headers) " +
			"VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"),
		body: []byte(`{"note":"` + strings.Repeat("x", max(s.size-11, 0)) + `"}`),
	}
	if b.dialect == outbox.Postgres {
		if shop.conn, err = pgx.Connect(ctx, b.url); err != nil {
			b.close()
			return nil, err
		}
	}
	return shop, nil
}

func (s *shop) close() {
	if s.conn != nil {
		_ = s.conn.Close(context.Background())
	}
	s.bed.close()
}

func (s *shop) no() string { return fmt.Sprintf("ORD-%d", s.n) }

func (s *shop) event() outbox.Event {
	return outbox.Event{AggregateType: "Order", AggregateID: s.no(), Type: "OrderCreated", Payload: s.body}
}

// byHand are the arguments of the INSERT written by hand.
func (s *shop) byHand() []any {
	return []any{outbox.NewID(), "Order", s.no(), "OrderCreated", nil, nil, s.body, nil}
}
