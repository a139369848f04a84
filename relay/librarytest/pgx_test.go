package librarytest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/inboxpgx"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

var queryModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// pgxConn opens pgx's own connection in one of its query modes.
func pgxConn(t testing.TB, b *base, mode pgx.QueryExecMode, params url.Values) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(b.postgresURL(params))
	require.NoError(t, err)
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// writeEverything writes to tables of every column type, with and without NULLs.
func writeEverything(t *testing.T, conn *pgx.Conn, name string) {
	t.Helper()
	own := outboxpgx.New(outbox.Options{})
	article := outbox.ArticlePostgres()
	article.Table = "article"
	full := outbox.Event{
		AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Topic: "orders", Key: []byte(`'"\`),
		Payload: []byte("\x00\xff'\"\\"), Headers: map[string]string{"a": `'"\` + "\x00"},
	}
	js := outbox.Event{
		AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated",
		Payload: []byte(`{"it's":"\\ \"x\""}`), Headers: map[string]string{"a": `'"\`},
	}
	tombstone := outbox.Event{AggregateType: "Order", AggregateID: "o-71", Type: "OrderDeleted"}

	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for i := range 3 { // the second time with a cached statement
		full.ID = fmt.Sprintf("%s-%d", name, i)
		require.NoError(t, own.Write(t.Context(), tx, full, tombstone))
		require.NoError(t, outboxpgx.New(article).Write(t.Context(), tx, js, js))
		require.NoError(t, outboxpgx.New(outbox.Debezium()).Write(t.Context(), tx, outbox.Event{
			AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Payload: js.Payload,
		}, tombstone))
	}
	require.NoError(t, tx.Commit(t.Context()))

	var payload []byte
	var key, headers string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT payload, message_key, headers::text FROM outbox_events WHERE event_id = $1",
		full.ID).Scan(&payload, &key, &headers))
	require.Equal(t, full.Payload, payload)
	require.Equal(t, string(full.Key), key)
	require.Equal(t, `{"a":"'\"\\\u0000"}`, headers)
	var text string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT payload::text FROM article LIMIT 1").Scan(&text))
	require.JSONEq(t, string(js.Payload), text)

	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	err = own.Write(t.Context(), tx, full)
	require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
	require.ErrorContains(t, err, full.ID)
	require.NoError(t, tx.Rollback(t.Context()))
}

func mappedTables(t *testing.T, b *base) {
	t.Helper()
	b.exec(t,
		`CREATE TABLE article (id BIGSERIAL PRIMARY KEY, event_id VARCHAR(64) NOT NULL UNIQUE, aggregate_type VARCHAR(64) NOT NULL,
			aggregate_id VARCHAR(64) NOT NULL, event_type VARCHAR(128) NOT NULL, payload JSONB NOT NULL, headers JSONB)`,
		`CREATE TABLE outbox (id UUID PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL,
			type VARCHAR(255) NOT NULL, payload JSONB)`)
}

func TestPgxWriter_EveryQueryMode(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t)
		mappedTables(t, b)
		for _, mode := range queryModes {
			conn := pgxConn(t, b, mode, url.Values{"search_path": {b.name}})
			writeEverything(t, conn, mode.String())
		}
	}, outbox.Postgres)
}

func TestPgxWriter_ThroughPgBouncer(t *testing.T) {
	t.Parallel()
	b := pooled(t).apply(t)
	mappedTables(t, b)
	for _, mode := range queryModes {
		writeEverything(t, pgxConn(t, b, mode, nil), mode.String())
	}
}

func TestPgxInbox_Once(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t)
		for _, mode := range queryModes {
			conn := pgxConn(t, b, mode, url.Values{"search_path": {b.name}})
			box := inboxpgx.New(mode.String(), inbox.Options{})
			require.NoError(t, box.Err())
			require.Equal(t, mode.String(), box.Group())
			ran := 0
			for attempt := range 3 {
				tx, err := conn.Begin(t.Context())
				require.NoError(t, err)
				fresh, err := box.Once(t.Context(), tx, "e-71", func(ctx context.Context) error {
					ran++
					_, err := tx.Exec(ctx, "SELECT 1")
					return err
				})
				require.NoError(t, err)
				require.Equal(t, attempt == 0, fresh)
				_, err = tx.Exec(t.Context(), "SELECT 1")
				require.NoError(t, err, "a duplicate leaves the transaction usable")
				require.NoError(t, tx.Commit(t.Context()))
			}
			require.Equal(t, 1, ran)

			broken := errors.New("no stock")
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			fresh, err := box.Once(t.Context(), tx, "e-72", func(context.Context) error { return broken })
			require.ErrorIs(t, err, broken)
			require.True(t, fresh)
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}, outbox.Postgres)
}

// TestPgxTx_EndsTheTransaction: outboxpgx.Tx is a whole transaction to code that takes an outbox.Tx.
func TestPgxTx_EndsTheTransaction(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t)
		conn := pgxConn(t, b, pgx.QueryExecModeCacheStatement, url.Values{"search_path": {b.name}})
		for _, end := range []func(outbox.Tx) error{outbox.Tx.Commit, outbox.Tx.Rollback} {
			inner, err := conn.Begin(t.Context())
			require.NoError(t, err)
			tx := outboxpgx.Tx(t.Context(), inner)
			result, err := tx.ExecContext(t.Context(), "SELECT 1")
			require.NoError(t, err)
			rows, err := result.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 1, rows)
			_, err = result.LastInsertId()
			require.Error(t, err)
			require.NoError(t, outbox.New(outbox.Postgres, outbox.Options{}).Write(t.Context(), tx, order("")))
			require.NoError(t, end(tx))
			require.ErrorIs(t, end(tx), pgx.ErrTxClosed)
		}
		require.Equal(t, 1, one[int](t, b, "SELECT count(*) FROM outbox_events"))
		require.Error(t, outboxpgx.New(outbox.Options{}).Write(t.Context(), nil, order("")))
		require.Error(t, outboxpgx.New(outbox.Options{PayloadType: "xml"}).Err())
	}, outbox.Postgres)
}
