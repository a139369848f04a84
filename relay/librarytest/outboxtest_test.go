package librarytest

import (
	"context"
	"database/sql"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
	"github.com/postrider/postrider/outbox/outboxtest"
)

func TestOutboxtest_ReadsBackWhatWasWritten(t *testing.T) {
	t.Parallel()
	events := []outbox.Event{
		{
			ID: "e-1", AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Topic: "orders", Key: []byte{},
			Payload: []byte("\x00\xff"), Headers: map[string]string{"h": "a\x00\"é"},
		},
		{AggregateType: "Order", AggregateID: "o-71", Type: "OrderDeleted"},
		{AggregateType: "Order", AggregateID: "o-72", Type: "OrderTouched", Payload: []byte{}},
	}
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		table := outboxtest.Table{Dialect: b.dialect}
		tx, err := b.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		table.Require(t, tx)
		require.NoError(t, outbox.New(b.dialect, outbox.Options{}).Write(t.Context(), tx, events...))
		table.Require(t, tx, events...) // before the commit
		require.NoError(t, tx.Commit())
		table.Require(t, b.DB, events...)
	})
	on(t, func(t *testing.T, b *base) { // with pgx, in a mapped table
		mappedTables(t, b)
		options := outbox.ArticlePostgres()
		options.Table = "article"
		table := outboxtest.Table{Dialect: b.dialect, Options: options}
		want := outbox.Event{
			ID: "e-1", AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Payload: []byte(`{"b":1,"a":1.10}`),
			Headers: map[string]string{"h": "v"},
		}
		conn := pgxConn(t, b, pgx.QueryExecModeCacheStatement, url.Values{"search_path": {b.name}})
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		require.NoError(t, outboxpgx.New(options).Write(t.Context(), tx, want))
		rows, err := tx.Query(t.Context(), table.Query())
		require.NoError(t, err)
		defer rows.Close()
		require.Empty(t, outboxtest.Diff(table.Scan(t, rows), want))
	}, outbox.Postgres)
	on(t, func(t *testing.T, b *base) { // binary ids
		b.exec(t, "CREATE TABLE box (event_id BINARY(16) PRIMARY KEY, payload BLOB)")
		omit := outbox.Omit
		options := outbox.Options{
			Table: "box", EventIDType: outbox.UUIDBytes,
			Columns: outbox.Columns{AggregateType: omit, AggregateID: omit, EventType: omit, Topic: omit, MessageKey: omit, Headers: omit},
		}
		want := outbox.Event{ID: "0190a0b0-0000-7000-8000-00000000000a", Payload: []byte("x")}
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			require.NoError(t, outbox.New(b.dialect, options).Write(ctx, tx, want))
		})
		outboxtest.Table{Dialect: b.dialect, Options: options, OrderBy: "event_id"}.Require(t, b.DB, want)
	}, outbox.MySQL, outbox.MariaDB)
}
