package librarytest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

// BenchmarkBusinessTransaction compares a business transaction of two statements with the same one
// that also writes an event of 300 B, by hand and by the writer. All take turns, so that a busy machine
// is as hard on one as on the others, and medians are compared.
func BenchmarkBusinessTransaction(b *testing.B) {
	for _, s := range servers {
		if s.variable != "" && os.Getenv(s.variable) == "" {
			continue
		}
		b.Run(s.name+"/sql", func(b *testing.B) { paired(b, newShop(b, s).sql) })
		if s.dialect == outbox.Postgres {
			b.Run(s.name+"/pgx", func(b *testing.B) {
				shop := newShop(b, s)
				conn := pgxConn(b, shop.base, pgx.QueryExecModeCacheStatement, url.Values{"search_path": {shop.name}})
				paired(b, func(b *testing.B, k kind) { shop.pgx(b, conn, k) })
			})
		}
	}
}

// kind is what a transaction does about the event.
type kind int

const (
	noEvent kind = iota
	byHand
	byWriter
	kinds
)

// paired runs the kinds of transaction in turns and reports their medians.
func paired(b *testing.B, transaction func(b *testing.B, k kind)) {
	var times [kinds][]time.Duration
	for b.Loop() {
		for k := range kinds {
			start := time.Now()
			transaction(b, k)
			times[k] = append(times[k], time.Since(start))
		}
	}
	var median [kinds]float64
	for k := range times {
		slices.Sort(times[k])
		median[k] = float64(times[k][len(times[k])/2].Nanoseconds()) / 1000
	}
	b.ReportMetric(median[noEvent], "µs-without")
	b.ReportMetric(100*(median[byHand]/median[noEvent]-1), "%-by-hand")
	b.ReportMetric(100*(median[byWriter]/median[noEvent]-1), "%-by-writer")
}

// shop is a business with two tables.
type shop struct {
	*base
	writer         *outbox.Writer
	native         *outboxpgx.Writer
	insert, update string
	hand           string // the outbox row as one would write it
	n              int
}

func newShop(b *testing.B, s server) *shop {
	b.Helper()
	base := s.fresh(b).apply(b)
	id := "BIGINT AUTO_INCREMENT"
	switch s.dialect {
	case outbox.Postgres:
		id = "BIGINT GENERATED ALWAYS AS IDENTITY"
	case outbox.SQLite:
		id = "INTEGER"
	}
	base.exec(b, "CREATE TABLE orders (id "+id+" PRIMARY KEY, no VARCHAR(64) NOT NULL UNIQUE, amount NUMERIC(12,2) NOT NULL)",
		"CREATE TABLE stock (sku INT PRIMARY KEY, n INT NOT NULL)")
	rows := make([]string, 1000)
	for sku := range rows {
		rows[sku] = fmt.Sprintf("(%d, 1000000)", sku)
	}
	base.exec(b, "INSERT INTO stock VALUES "+strings.Join(rows, ", "))
	return &shop{
		base: base, writer: outbox.New(s.dialect, outbox.Options{}), native: outboxpgx.New(outbox.Options{}),
		insert: "INSERT INTO orders (no, amount) VALUES (" + base.arg(1) + ", 99.90)",
		update: "UPDATE stock SET n = n - 1 WHERE sku = " + base.arg(1),
		hand: fmt.Sprintf("INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES (%s, %s, %s, %s, %s)",
			base.arg(1), base.arg(2), base.arg(3), base.arg(4), base.arg(5)),
	}
}

func (s *shop) event() outbox.Event {
	return outbox.Event{
		AggregateType: "Order", AggregateID: fmt.Sprint(s.n), Type: "OrderCreated",
		Payload: []byte(`{"pad":"` + strings.Repeat("x", 290) + `"}`),
	}
}

func (s *shop) sql(b *testing.B, k kind) {
	s.n++
	tx, err := s.BeginTx(context.Background(), nil)
	require.NoError(b, err)
	_, err = tx.Exec(s.insert, fmt.Sprint(s.n))
	require.NoError(b, err)
	_, err = tx.Exec(s.update, s.n%1000)
	require.NoError(b, err)
	switch e := s.event(); k {
	case byHand:
		_, err = tx.Exec(s.hand, outbox.NewID(), e.AggregateType, e.AggregateID, e.Type, e.Payload)
		require.NoError(b, err)
	case byWriter:
		require.NoError(b, s.writer.Write(context.Background(), tx, e))
	}
	require.NoError(b, tx.Commit())
}

func (s *shop) pgx(b *testing.B, conn *pgx.Conn, k kind) {
	ctx := context.Background()
	s.n++
	tx, err := conn.Begin(ctx)
	require.NoError(b, err)
	_, err = tx.Exec(ctx, s.insert, fmt.Sprint(s.n))
	require.NoError(b, err)
	_, err = tx.Exec(ctx, s.update, s.n%1000)
	require.NoError(b, err)
	switch e := s.event(); k {
	case byHand:
		_, err = tx.Exec(ctx, s.hand, outbox.NewID(), e.AggregateType, e.AggregateID, e.Type, e.Payload)
		require.NoError(b, err)
	case byWriter:
		require.NoError(b, s.native.Write(ctx, tx, e))
	}
	require.NoError(b, tx.Commit(ctx))
}
