package librarytest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

// TestCase_W01_LostCommitReply cuts the reply to a COMMIT that the server has executed, and lets the
// service repeat its function as services do.
func TestCase_W01_LostCommitReply(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "CREATE TABLE orders (id VARCHAR(20))") // not unique: only the event id can tell
		p := newProxy(t, b.url.Host)
		direct := b.url
		u := *b.url
		u.Host = p.addr
		b.url = &u
		db := b.open(t, url.Values{"search_path": {b.name}})
		if b.dialect != outbox.Postgres {
			db = b.open(t, nil)
		}
		b.url = direct

		w := outbox.New(b.dialect, outbox.Options{})
		place := func(eventID string, cut bool) error {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			_, err = tx.ExecContext(t.Context(), "INSERT INTO orders VALUES ('o-71')")
			require.NoError(t, err)
			if err := w.Write(t.Context(), tx, order(eventID)); err != nil {
				return err
			}
			p.cut.Store(cut)
			return tx.Commit()
		}
		count := func() int { return one[int](t, b, "SELECT count(*) FROM outbox_events") }

		require.Error(t, place("e-71", true), "the client must not learn of the commit")
		require.Equal(t, 1, count(), "the server has committed, and the library has repeated nothing")
		err := place("e-71", false)
		require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
		require.ErrorContains(t, err, "e-71")
		require.Equal(t, 1, count(), "one event")
		require.Equal(t, 1, one[int](t, b, "SELECT count(*) FROM orders"), "the repeated order was rolled back")

		// An id that the library draws differs at each attempt and cannot protect: see Event.ID.
		require.Error(t, place("", true))
		require.NoError(t, place("", false))
		require.Equal(t, 3, count())
	}, outbox.Postgres, outbox.MySQL, outbox.MariaDB)
}

// columnType is a payload column that the tests try.
type columnType struct {
	dialect outbox.Dialect
	sql     string
	options outbox.ColumnType
}

var columnTypes = []columnType{
	{outbox.Postgres, "BYTEA", outbox.Bytes},
	{outbox.Postgres, "TEXT", outbox.Text},
	{outbox.Postgres, "JSON", outbox.JSON},
	{outbox.Postgres, "JSONB", outbox.JSONB},
	{outbox.MySQL, "LONGBLOB", outbox.Bytes},
	{outbox.MySQL, "LONGTEXT CHARACTER SET utf8mb4", outbox.Text},
	{outbox.MySQL, "JSON", outbox.JSON},
	{outbox.MariaDB, "LONGBLOB", outbox.Bytes},
	{outbox.MariaDB, "LONGTEXT CHARACTER SET utf8mb4", outbox.Text},
	{outbox.MariaDB, "JSON", outbox.JSON},
	{outbox.SQLite, "BLOB", outbox.Bytes},
	{outbox.SQLite, "TEXT", outbox.Text},
	{outbox.SQLite, "TEXT", outbox.JSON},
}

func (c columnType) String() string { return fmt.Sprintf("%s as %s", c.sql, c.options) }

// keepsBytes reports whether the column gives back what it was given to the byte.
func (c columnType) keepsBytes() bool {
	return c.options != outbox.JSONB && (c.dialect != outbox.MySQL || c.options != outbox.JSON)
}

// onEveryColumn runs a test on each payload column type of each server.
func onEveryColumn(t *testing.T, test func(t *testing.T, b *base, c columnType, w *outbox.Writer)) {
	t.Helper()
	onEvery(t, func(t *testing.T, b *base) {
		for i, c := range columnTypes {
			if c.dialect != b.dialect {
				continue
			}
			table := fmt.Sprintf("box%d", i)
			b.exec(t, "CREATE TABLE "+table+" (event_id VARCHAR(64) PRIMARY KEY, payload "+c.sql+")")
			w := outbox.New(b.dialect, outbox.Options{
				Table: table, PayloadType: c.options,
				Columns: outbox.Columns{
					AggregateType: outbox.Omit, AggregateID: outbox.Omit, EventType: outbox.Omit,
					Topic: outbox.Omit, MessageKey: outbox.Omit, Headers: outbox.Omit,
				},
			})
			require.NoError(t, w.Err())
			t.Run(c.String(), func(t *testing.T) { test(t, b, c, w) })
		}
	})
}

// stored writes a payload and returns what the column gives back, or the error of the write. The
// transaction commits either way: the error must not have spoiled it.
func stored(t *testing.T, b *base, w *outbox.Writer, payload string) (string, error) {
	t.Helper()
	e := outbox.Event{ID: outbox.NewID(), Payload: []byte(payload)}
	var err error
	b.inTx(t, func(ctx context.Context, tx *sql.Tx) { err = w.Write(ctx, tx, e) })
	if err != nil {
		return "", err
	}
	for i := range columnTypes {
		var got []byte
		found := b.QueryRow(fmt.Sprintf("SELECT payload FROM box%d WHERE event_id = %s", i, b.arg(1)), e.ID).Scan(&got)
		if found == nil {
			return string(got), nil
		}
	}
	require.Fail(t, "the row is not there")
	return "", nil
}

// TestCase_W02_NulInJSONB and its neighbours: each column takes the event byte for byte or refuses it
// by name before the statement; the transaction commits in both cases.
func TestCase_W02_NulInJSONB(t *testing.T) {
	t.Parallel()
	refusals := map[string]map[outbox.ColumnType]string{
		`{"note":"a\u0000b"}`: {outbox.JSONB: "column payload, byte 10: U+0000 cannot be stored in jsonb; use bytea or json/text"},
		`{"note":"\ud83d"}`: {
			outbox.JSONB: "column payload, byte 9: unpaired surrogate cannot be stored in jsonb; use bytea or json/text",
		},
		"a\x00b": {
			outbox.Text: "column payload, byte 1: U+0000 cannot be stored in text; use bytea",
			outbox.JSON: "not valid JSON", outbox.JSONB: "not valid JSON",
		},
	}
	onEveryColumn(t, func(t *testing.T, b *base, c columnType, w *outbox.Writer) {
		for payload, byType := range refusals {
			got, err := stored(t, b, w, payload)
			want := byType[c.options]
			if payload == `{"note":"\ud83d"}` && c.options == outbox.JSON && (b.dialect == outbox.MySQL || b.dialect == outbox.MariaDB) {
				want = "column payload, byte 9: unpaired surrogate cannot be stored in JSON"
			}
			if c.options == outbox.Text && b.dialect != outbox.Postgres {
				want = "" // only PostgreSQL takes no NUL in text
			}
			if want == "" {
				require.NoError(t, err)
				if c.keepsBytes() {
					require.Equal(t, payload, got)
				}
				continue
			}
			var invalid *outbox.ValidationError
			require.ErrorAs(t, err, &invalid)
			require.ErrorContains(t, err, want)
		}
	})
}

// TestWriter_AgreesWithTheColumn holds the validation against the database itself: what the writer
// takes the column takes too, and what it refuses the column refuses or alters.
func TestWriter_AgreesWithTheColumn(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	payloads := []string{
		`{}`, ` [1, 2] `, ``, ` `, `{`, `[1,]`, `01`, `1.`, `1e5`, `"\x"`, `nul`, "\ufeff{}", "\"a\nb\"", "\"a\x00b\"", "\"\xff\"",
		"a\xc3", "\xed\xa0\xbd", `"\u0000"`, `"\ud83d"`, `"\ud83d\ude00"`, `"\ude00"`, `"\ud83d\ud83d"`, "\"\x7f\u2028😀\"",
		nested(31), nested(32), nested(100), nested(101), nested(1000), strings.Repeat(`{"a":`, 31) + "1" + strings.Repeat("}", 31),
		`1.10`, `-0`, `18446744073709551615`, `18446744073709551616`, `-9223372036854775809`, `0.1`, `0.30000000000000004`,
		`0.1234567890123456789`, `12345678901234567.89`, `1e308`, `1e400`, `1e131071`, `1e131072`, `1e-16383`, `1e-16384`,
		`0e308`, `0e309`, `0.0e309`, `1.5e308`, `0e999999`, `0e-999999`, `100e-16384`, `1e99999999999999999999`, `{"a":1,"a":2}`,
	}
	onEveryColumn(t, func(t *testing.T, b *base, c columnType, w *outbox.Writer) {
		for _, payload := range payloads {
			got, err := stored(t, b, w, payload)
			var invalid *outbox.ValidationError
			if err == nil {
				if c.keepsBytes() {
					require.Equal(t, payload, got)
				}
				continue
			}
			require.ErrorAs(t, err, &invalid, "%.40q: the database refused what the writer took", payload)
			if b.dialect != outbox.Postgres && (!utf8.ValidString(payload) || c.options == outbox.JSON && !json.Valid([]byte(payload))) {
				continue // SQLite stores any text, MariaDB takes "1." and broken UTF-8; readers would not
			}
			table := fmt.Sprintf("box%d", indexOf(c))
			if b.dialect == outbox.SQLite {
				require.Greater(t, strings.Count(payload, "["), 999, "only the depth that json_valid takes")
				continue
			}
			if b.dialect == outbox.Postgres {
				_, err = b.Exec("INSERT INTO "+table+" VALUES ($1, convert_from($2::bytea, 'UTF8')::"+c.sql+")", outbox.NewID(), []byte(payload))
			} else {
				_, err = b.Exec("INSERT INTO "+table+" VALUES (?, ?)", outbox.NewID(), payload)
			}
			if err == nil && c.dialect == outbox.MySQL && strings.Contains(invalid.Reason, "rounds this number") {
				continue // taken, and altered
			}
			require.Error(t, err, "%.40q: the column takes what the writer refused: %v", payload, invalid)
		}
	})
}

func indexOf(c columnType) int { return slices.Index(columnTypes, c) }

// TestCase_W04_PayloadBytes signs a payload and looks whether the signature still holds.
func TestCase_W04_PayloadBytes(t *testing.T) {
	t.Parallel()
	const payload = `{"b":1, "a":2,"b":3, "amt": 10.50}`
	sign := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	onEveryColumn(t, func(t *testing.T, b *base, c columnType, w *outbox.Writer) {
		got, err := stored(t, b, w, payload)
		require.NoError(t, err)
		switch {
		case c.keepsBytes():
			require.Equal(t, sign(payload), sign(got))
		case c.options == outbox.JSONB:
			require.Equal(t, `{"a": 2, "b": 3, "amt": 10.50}`, got, "the database's own text form")
		default:
			require.Equal(t, `{"a": 2, "b": 3, "amt": 10.5}`, got, "the database's own text form")
		}
	})
}

// TestCase_W05_BigNumbers: every digit is kept, or the event is refused by position.
func TestCase_W05_BigNumbers(t *testing.T) {
	t.Parallel()
	const payload = `{"account":1234567890123456789,"wei":19876543210987654321,"p":1.10}`
	onEveryColumn(t, func(t *testing.T, b *base, c columnType, w *outbox.Writer) {
		got, err := stored(t, b, w, payload)
		if c.dialect == outbox.MySQL && c.options == outbox.JSON {
			require.ErrorContains(t, err, "byte 37: MySQL's JSON type rounds this number to a double; use LONGBLOB or LONGTEXT")
			got, err = stored(t, b, w, `{"account":1234567890123456789,"max":18446744073709551615,"p":1.10}`)
			require.NoError(t, err)
			require.Contains(t, got, "1234567890123456789")
			require.Contains(t, got, "18446744073709551615")
			return
		}
		require.NoError(t, err)
		for _, digits := range []string{"1234567890123456789", "19876543210987654321", "1.10"} {
			require.Contains(t, got, digits)
		}
	})
}

// TestCase_C13_IDsAreNeverReused purges the newest row and writes again.
func TestCase_C13_IDsAreNeverReused(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		w := outbox.New(b.dialect, outbox.Options{})
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			require.NoError(t, w.Write(ctx, tx, order(""), order(""), order("")))
		})
		last := one[int64](t, b, "SELECT max(id) FROM outbox_events")
		b.exec(t, "DELETE FROM outbox_events")
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) { require.NoError(t, w.Write(ctx, tx, order(""))) })
		require.Greater(t, one[int64](t, b, "SELECT id FROM outbox_events"), last)
	})
}

// TestCase_R05_InboxUniqueness delivers an event on two days and twice at once: the second effect is
// refused, and a table that could not refuse it is.
func TestCase_R05_InboxUniqueness(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "CREATE TABLE effects (n INT)")
		box := inbox.New(b.dialect, "inventory", inbox.Options{})
		require.NoError(t, box.Check(t.Context(), b.DB))
		deliver := func() (fresh bool, err error) {
			tx, err := b.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			fresh, err = box.Once(t.Context(), tx, "e-71", func(ctx context.Context) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (1)")
				return err
			})
			return fresh, errors.Join(err, tx.Commit())
		}
		fresh, err := deliver()
		require.NoError(t, err)
		require.True(t, fresh)
		switch b.dialect { // yesterday
		case outbox.Postgres:
			b.exec(t, "UPDATE inbox_events SET processed_at = processed_at - interval '1 day'")
		case outbox.SQLite:
			b.exec(t, "UPDATE inbox_events SET processed_at = '2020-01-01T00:00:00.000Z'")
		default:
			b.exec(t, "UPDATE inbox_events SET processed_at = processed_at - INTERVAL 1 DAY")
		}
		fresh, err = deliver()
		require.NoError(t, err)
		require.False(t, fresh)

		b.exec(t, "DELETE FROM inbox_events", "DELETE FROM effects")
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				if _, err := deliver(); err != nil && !retriable(err) {
					t.Errorf("deliver: %v", err)
				}
			})
		}
		wait.Wait()
		require.Equal(t, 1, one[int](t, b, "SELECT count(*) FROM effects"))
	})
}

// retriable reports the errors that a consumer answers by repeating its transaction.
func retriable(err error) bool {
	return strings.Contains(err.Error(), "Error 1213") || strings.Contains(err.Error(), "database is locked")
}

func TestCase_R05_InboxPartitionedByTimeIsRefused(t *testing.T) {
	t.Parallel()
	tables := map[outbox.Dialect][]string{
		outbox.Postgres: {
			`CREATE TABLE inbox_events (consumer_group TEXT, event_id TEXT, processed_at TIMESTAMPTZ DEFAULT now(),
				PRIMARY KEY (consumer_group, event_id, processed_at)) PARTITION BY RANGE (processed_at)`,
			`CREATE TABLE inbox_all PARTITION OF inbox_events DEFAULT`,
		},
		outbox.MySQL: {
			`CREATE TABLE inbox_events (consumer_group VARCHAR(99), event_id VARCHAR(99), processed_at DATETIME DEFAULT CURRENT_TIMESTAMP,
				PRIMARY KEY (consumer_group, event_id, processed_at)) PARTITION BY RANGE COLUMNS (processed_at) (PARTITION p VALUES LESS THAN (MAXVALUE))`,
		},
		outbox.SQLite: {`CREATE TABLE inbox_events (consumer_group TEXT, event_id TEXT, processed_at TEXT,
			PRIMARY KEY (consumer_group, event_id, processed_at))`},
	}
	tables[outbox.MariaDB] = tables[outbox.MySQL]
	onEvery(t, func(t *testing.T, b *base) {
		b.exec(t, tables[b.dialect]...)
		box := inbox.New(b.dialect, "inventory", inbox.Options{})
		err := box.Check(t.Context(), b.DB)
		require.ErrorIs(t, err, inbox.ErrNoUniqueKey)
		require.ErrorContains(t, err, "primary key of exactly (consumer_group, event_id)")
		if b.dialect == outbox.Postgres || b.dialect == outbox.SQLite { // they refuse the statement itself
			tx, err := b.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			_, err = box.Once(t.Context(), tx, "e-71", func(context.Context) error { return nil })
			require.ErrorIs(t, err, inbox.ErrNoUniqueKey)
		}
	})
}

// TestCase_R05_InboxPartitionedByHash is the partitioning that keeps the promise.
func TestCase_R05_InboxPartitionedByHash(t *testing.T) {
	t.Parallel()
	tables := map[outbox.Dialect][]string{
		outbox.Postgres: {
			`CREATE TABLE inbox_events (consumer_group TEXT, event_id TEXT, processed_at TIMESTAMPTZ DEFAULT now(),
				PRIMARY KEY (consumer_group, event_id)) PARTITION BY HASH (event_id)`,
			`CREATE TABLE inbox_0 PARTITION OF inbox_events FOR VALUES WITH (MODULUS 2, REMAINDER 0)`,
			`CREATE TABLE inbox_1 PARTITION OF inbox_events FOR VALUES WITH (MODULUS 2, REMAINDER 1)`,
		},
		outbox.MySQL: {
			`CREATE TABLE inbox_events (consumer_group VARCHAR(99), event_id VARCHAR(99), processed_at DATETIME DEFAULT CURRENT_TIMESTAMP,
				PRIMARY KEY (consumer_group, event_id)) PARTITION BY KEY (event_id) PARTITIONS 2`,
		},
	}
	tables[outbox.MariaDB] = tables[outbox.MySQL]
	on(t, func(t *testing.T, b *base) {
		b.exec(t, tables[b.dialect]...)
		box := inbox.New(b.dialect, "inventory", inbox.Options{})
		require.NoError(t, box.Check(t.Context(), b.DB))
		for i := range 20 {
			for attempt := range 2 {
				b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
					fresh, err := box.Once(ctx, tx, fmt.Sprintf("e-%d", i), func(context.Context) error { return nil })
					require.NoError(t, err)
					require.Equal(t, attempt == 0, fresh)
				})
			}
		}
	}, outbox.Postgres, outbox.MySQL, outbox.MariaDB)
}

// TestCase_R05_DuplicateOnAPartitionedOutbox: the key must hold the partition column, so the database
// refuses a repeated id within one partition only. A duplicate that it sees is still recognised.
func TestCase_R05_DuplicateOnAPartitionedOutbox(t *testing.T) {
	t.Parallel()
	tables := map[outbox.Dialect][]string{
		outbox.Postgres: {
			`CREATE TABLE outbox_events (LIKE tmpl INCLUDING DEFAULTS, day DATE DEFAULT '2026-11-30', PRIMARY KEY (event_id, day)) PARTITION BY RANGE (day)`,
			`CREATE TABLE outbox_events_2026_11 PARTITION OF outbox_events DEFAULT`,
		},
		outbox.MySQL: {
			`CREATE TABLE outbox_events (event_id VARCHAR(64), aggregate_type VARCHAR(64), aggregate_id VARCHAR(64), event_type VARCHAR(64),
				topic VARCHAR(64), message_key VARCHAR(64), payload BLOB, headers TEXT, day DATE DEFAULT '2026-11-30', PRIMARY KEY (event_id, day))
				PARTITION BY RANGE COLUMNS (day) (PARTITION p VALUES LESS THAN (MAXVALUE))`,
		},
	}
	tables[outbox.MariaDB] = tables[outbox.MySQL]
	on(t, func(t *testing.T, b *base) {
		if b.dialect == outbox.Postgres {
			b.exec(t, `CREATE TABLE tmpl (event_id TEXT, aggregate_type TEXT, aggregate_id TEXT, event_type TEXT, topic TEXT, message_key TEXT, payload BYTEA, headers JSON)`)
		}
		b.exec(t, tables[b.dialect]...)
		w := outbox.New(b.dialect, outbox.Options{})
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) { require.NoError(t, w.Write(ctx, tx, order("e-71"))) })
		tx, err := b.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		err = w.Write(t.Context(), tx, order("e-7"), order("e-71"))
		var dup *outbox.DuplicateError
		require.ErrorAs(t, err, &dup)
		require.Equal(t, []string{"e-71"}, dup.EventIDs)
	}, outbox.Postgres, outbox.MySQL, outbox.MariaDB)
}
