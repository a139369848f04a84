package librarytest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
)

func TestWriter_FillsTheOwnTable(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		options := outbox.Options{TraceContext: func(context.Context) (string, string) { return "00-aa-bb-01", "k=v" }}
		w := outbox.New(b.dialect, options)
		full := outbox.Event{
			ID: "e-é", AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Topic: "orders", Key: []byte("u-7 "),
			Payload: []byte("\x00\xff{\"a\":1}"), Headers: map[string]string{"source": "order-service", "note": "a\x00\"\\\n😀"},
		}
		bare := outbox.Event{AggregateType: "Order", AggregateID: "o-71", Type: "OrderDeleted", Key: []byte{}}
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			require.NoError(t, w.Write(ctx, tx, full, bare))
		})

		var payload []byte
		var headers, topic, key, status sql.NullString
		read := func(where string) {
			t.Helper()
			require.NoError(t, b.QueryRow("SELECT payload, headers, topic, message_key, status FROM outbox_events WHERE "+where).
				Scan(&payload, &headers, &topic, &key, &status))
		}
		read("event_id = 'e-é'")
		require.Equal(t, full.Payload, payload)
		require.Equal(t, "orders", topic.String)
		require.Equal(t, "u-7 ", key.String)
		require.Equal(t, "NEW", status.String)
		var got map[string]string
		require.NoError(t, json.Unmarshal([]byte(headers.String), &got))
		require.Equal(t, map[string]string{
			"source": "order-service", "note": "a\x00\"\\\n😀", "traceparent": "00-aa-bb-01", "tracestate": "k=v",
		}, got)

		read("event_type = 'OrderDeleted'")
		require.Nil(t, payload, "a tombstone is NULL")
		require.False(t, topic.Valid)
		require.True(t, key.Valid && key.String == "", "an empty key is not NULL")
		require.Len(t, one[string](t, b, "SELECT event_id FROM outbox_events WHERE event_type = 'OrderDeleted'"), 36)
	})
}

func TestWriter_RollsBackWithTheBusiness(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		tx, err := b.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, outbox.New(b.dialect, outbox.Options{}).Write(t.Context(), tx, order("e-1")))
		require.NoError(t, tx.Rollback())
		require.Zero(t, one[int](t, b, "SELECT count(*) FROM outbox_events"))
	})
}

// TestWriter_TimesAreTheDatabases writes under a session in another time zone.
func TestWriter_TimesAreTheDatabases(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		db, now := b.DB, "SELECT now()"
		query := "SELECT created_at FROM outbox_events"
		switch b.dialect {
		case outbox.Postgres:
			db = b.open(t, url.Values{"search_path": {b.name}, "timezone": {"Asia/Shanghai"}})
		case outbox.MySQL, outbox.MariaDB:
			db = b.open(t, url.Values{"time_zone": {"'+08:00'"}, "parseTime": {"true"}, "loc": {"UTC"}})
			now = "SELECT UTC_TIMESTAMP(6)"
		case outbox.SQLite:
			now = "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
		}
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, outbox.New(b.dialect, outbox.Options{}).Write(t.Context(), tx, order("e-1")))
		require.NoError(t, tx.Commit())
		read := func(query string) time.Time {
			t.Helper()
			var at time.Time
			if b.dialect != outbox.SQLite {
				require.NoError(t, db.QueryRow(query).Scan(&at))
				return at
			}
			var text string
			require.NoError(t, db.QueryRow(query).Scan(&text))
			require.Len(t, text, len("2026-07-15T10:30:00.000Z"))
			at, err := time.Parse("2006-01-02T15:04:05.000Z", text)
			require.NoError(t, err)
			return at
		}
		require.WithinDuration(t, read(now), read(query), time.Minute)
	})
}

func TestWriter_ManyEventsInOneWrite(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		const n = 9000 // beyond the parameters of one statement
		events := make([]outbox.Event, n)
		for i := range events {
			events[i] = order(fmt.Sprintf("e-%05d", i))
		}
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			require.NoError(t, outbox.New(b.dialect, outbox.Options{}).Write(ctx, tx, events...))
		})
		require.Equal(t, n, one[int](t, b, "SELECT count(*) FROM outbox_events"))
		require.Zero(t, one[int](t, b, "SELECT count(*) FROM outbox_events a JOIN outbox_events b ON b.id = a.id + 1 WHERE b.event_id < a.event_id"),
			"ids follow the order of the call")
	})
}

func TestWriter_LargePayload(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		e := order("e-1")
		e.Payload = make([]byte, 8<<20) // the default limit
		for i := range e.Payload {
			e.Payload[i] = byte(i * 7)
		}
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			require.NoError(t, outbox.New(b.dialect, outbox.Options{}).Write(ctx, tx, e))
		})
		require.Equal(t, e.Payload, one[[]byte](t, b, "SELECT payload FROM outbox_events"))
	})
}

// TestWriter_LengthsAreTheTables writes names as long as the writer allows, in characters of four bytes.
func TestWriter_LengthsAreTheTables(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		long := func(n int) string { return strings.Repeat("😀", n) }
		e := outbox.Event{
			ID: long(64), AggregateType: long(255), AggregateID: long(255), Type: long(255),
			Topic: strings.Repeat("t", 249), Key: []byte(long(512)), Payload: []byte{},
		}
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			require.NoError(t, outbox.New(b.dialect, outbox.Options{}).Write(ctx, tx, e))
		})
		require.Equal(t, e.ID, one[string](t, b, "SELECT event_id FROM outbox_events"))
		require.Equal(t, string(e.Key), one[string](t, b, "SELECT message_key FROM outbox_events"))
		require.Zero(t, one[int](t, b, "SELECT count(*) FROM outbox_events WHERE payload IS NULL"), "an empty value is not a tombstone")
	})
}

func TestWriter_DuplicateIsRecognised(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		w := outbox.New(b.dialect, outbox.Options{})
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) { require.NoError(t, w.Write(ctx, tx, order("e-71"))) })
		for _, events := range [][]outbox.Event{{order("e-71")}, {order("e-7"), order("e-71"), order("e-710")}} {
			tx, err := b.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			err = w.Write(t.Context(), tx, events...)
			require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
			var dup *outbox.DuplicateError
			require.ErrorAs(t, err, &dup)
			if b.dialect != outbox.SQLite || len(events) == 1 { // SQLite names the column and no value
				require.Equal(t, []string{"e-71"}, dup.EventIDs)
			}
			require.Contains(t, err.Error(), "e-71")
			require.NoError(t, tx.Rollback())
		}
		// Ids are told apart by case and trailing space.
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			require.NoError(t, w.Write(ctx, tx, order("E-71"), order("e-71 ")))
		})
	})
}

// TestWriter_DuplicateOfAnotherTable lets a trigger on the outbox run into a unique key of its own.
func TestWriter_DuplicateOfAnotherTable(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "CREATE TABLE audit (n INT PRIMARY KEY)", "INSERT INTO audit VALUES (1)")
		if b.dialect == outbox.Postgres {
			b.exec(t, "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit VALUES (1); RETURN NEW; END'",
				"CREATE TRIGGER note AFTER INSERT ON outbox_events FOR EACH ROW EXECUTE FUNCTION note()")
		} else {
			body := "INSERT INTO audit VALUES (1)"
			if b.dialect == outbox.SQLite {
				body = "BEGIN " + body + "; END"
			}
			b.exec(t, "CREATE TRIGGER note AFTER INSERT ON outbox_events FOR EACH ROW "+body)
		}
		tx, err := b.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		err = outbox.New(b.dialect, outbox.Options{}).Write(t.Context(), tx, order("e-71"))
		require.Error(t, err)
		require.NotErrorIs(t, err, outbox.ErrDuplicateEvent, "%v", err)
	})
}

// TestWriter_DuplicateForAnInsertOnlyUser: PostgreSQL tells such a user no values.
func TestWriter_DuplicateForAnInsertOnlyUser(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		user := "w" + b.name[len(b.name)-16:]
		b.apply(t).exec(t, "CREATE ROLE "+user+" LOGIN PASSWORD 'p'", "GRANT USAGE ON SCHEMA "+b.name+" TO "+user,
			"GRANT INSERT ON outbox_events TO "+user)
		t.Cleanup(func() { b.exec(t, "DROP OWNED BY "+user, "DROP ROLE "+user) })
		db := b.openAs(t, url.UserPassword(user, "p"), url.Values{"search_path": {b.name}})
		w := outbox.New(b.dialect, outbox.Options{})
		write := func() error {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			return errors.Join(w.Write(t.Context(), tx, order("e-71"), order("e-72")), tx.Commit())
		}
		require.NoError(t, write())
		err := write()
		require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
		require.ErrorContains(t, err, "one of e-71, e-72")
	}, outbox.Postgres)
}

// TestWriter_UsableAfterAValidationError: the business goes on in the same transaction.
func TestWriter_UsableAfterAValidationError(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY)")
		w := outbox.New(b.dialect, outbox.Options{})
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('o-71')")
			require.NoError(t, err)
			bad := order("e-1")
			bad.Topic = "not a topic"
			var invalid *outbox.ValidationError
			require.ErrorAs(t, w.Write(ctx, tx, order("e-0"), bad), &invalid)
			bad.Topic = "a-topic"
			require.NoError(t, w.Write(ctx, tx, bad))
		})
		require.Equal(t, 1, one[int](t, b, "SELECT count(*) FROM orders"))
		require.Equal(t, "e-1", one[string](t, b, "SELECT event_id FROM outbox_events"))
	})
}

// TestWriter_MySQLClientSettings: the go-sql-driver settings that change how statements travel.
func TestWriter_MySQLClientSettings(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t)
		for i, params := range []url.Values{
			{"interpolateParams": {"true"}}, {"clientFoundRows": {"true"}}, {"sql_mode": {"''"}}, {"sql_mode": {"'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"}},
			{"interpolateParams": {"true"}, "collation": {"utf8mb4_bin"}},
		} {
			db := b.open(t, params)
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			e := order(fmt.Sprintf("e-%d", i))
			e.Payload = []byte("\x00\xff'\"\\\n😀")
			e.Headers = map[string]string{"h": "'\"\\\n😀"}
			w := outbox.New(b.dialect, outbox.Options{})
			require.NoError(t, w.Write(t.Context(), tx, e))
			require.ErrorIs(t, w.Write(t.Context(), tx, e), outbox.ErrDuplicateEvent)
			require.NoError(t, tx.Commit())
			require.Equal(t, e.Payload, one[[]byte](t, b, "SELECT payload FROM outbox_events WHERE event_id = ?", e.ID), "%v", params)
		}
	}, outbox.MySQL, outbox.MariaDB)
}
