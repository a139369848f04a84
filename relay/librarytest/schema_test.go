package librarytest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/schema"
)

func TestApply_TwiceAndByManyAtOnce(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		before, err := schema.Status(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.Equal(t, 0, before.Installed)
		require.False(t, before.Complete())
		require.Contains(t, before.Missing, "outbox_events")

		var wait sync.WaitGroup
		var mu sync.Mutex
		var applied []string
		for range 12 {
			wait.Go(func() {
				names, err := schema.Apply(t.Context(), b.DB, b.dialect)
				mu.Lock()
				defer mu.Unlock()
				applied = append(applied, names...)
				if err != nil {
					t.Errorf("apply: %v", err)
				}
			})
		}
		wait.Wait()
		require.Equal(t, []string{"0001_outbox"}, applied, "one of them applies")

		names, err := schema.Apply(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.Empty(t, names)
		after, err := schema.Status(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.Equal(t, schema.State{Installed: schema.Latest(b.dialect), Latest: schema.Latest(b.dialect), Missing: []string{}}, after)
		require.True(t, after.Complete())
	})
}

// TestPrint_RunsInTheDatabase runs the printed SQL as a migration tool would, twice.
func TestPrint_RunsInTheDatabase(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		db := b.DB
		if b.dialect == outbox.MySQL || b.dialect == outbox.MariaDB {
			db = b.open(t, url.Values{"multiStatements": {"true"}})
		}
		for range 2 {
			_, err := db.Exec(schema.Print(b.dialect))
			require.NoError(t, err)
		}
		state, err := schema.Status(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.True(t, state.Complete(), "%+v", state)
		names, err := schema.Apply(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.Empty(t, names, "Apply sees what another tool has run")
	})
}

// TestApply_AfterAnInterruptedRun drops what the last statements made, as a crash between two
// statements of MySQL's leaves it.
func TestApply_AfterAnInterruptedRun(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "DROP TABLE postrider_schema", "DROP TABLE inbox_events")
		state, err := schema.Status(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.Equal(t, []string{"inbox_events", "postrider_schema"}, state.Missing)
		names, err := schema.Apply(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.Equal(t, []string{"0001_outbox"}, names)
	})
}

// TestApply_MakesDroppedTablesAgain: the noted version says that all is there, the database says not.
func TestApply_MakesDroppedTablesAgain(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "DROP TABLE outbox_events")
		names, err := schema.Apply(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.Equal(t, []string{"0001_outbox"}, names)
		state, err := schema.Status(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.True(t, state.Complete(), "%+v", state)
	})
}

// TestApply_SaysHowLostColumnsComeBack: the statements of the error are run, and nothing is missing.
func TestApply_SaysHowLostColumnsComeBack(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		if b.dialect == outbox.SQLite {
			b.exec(t, "DROP INDEX outbox_events_retry_idx")
		}
		b.exec(t, "ALTER TABLE outbox_events DROP COLUMN last_error", "ALTER TABLE outbox_events DROP COLUMN next_retry_at",
			"ALTER TABLE outbox_events DROP COLUMN kafka_offset")
		_, err := schema.Apply(t.Context(), b.DB, b.dialect)
		var incomplete *schema.IncompleteError
		require.ErrorAs(t, err, &incomplete)
		require.Equal(t, []string{"next_retry_at", "last_error", "kafka_offset"}, incomplete.Missing)
		require.ErrorContains(t, err, "table outbox_events lacks next_retry_at, last_error, kafka_offset: run ALTER TABLE outbox_events ADD COLUMN next_retry_at ")
		b.exec(t, incomplete.Fix...)
		names, err := schema.Apply(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.Empty(t, names)
		if b.dialect == outbox.Postgres || b.dialect == outbox.SQLite {
			require.Contains(t, incomplete.Fix[len(incomplete.Fix)-1], "CREATE INDEX IF NOT EXISTS outbox_events_retry_idx ON outbox_events (next_retry_at, id)")
		}
	})
}

func TestApply_RefusesAForeignTable(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.exec(t, "CREATE TABLE outbox_events (id BIGINT PRIMARY KEY, event_id VARCHAR(64), payload VARCHAR(10))")
		_, err := schema.Apply(t.Context(), b.DB, b.dialect)
		var conflict *schema.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, "outbox_events", conflict.Table)
		require.Contains(t, conflict.Missing, "kafka_offset")
		require.Contains(t, err.Error(), "outbox.preset")
		state, err := schema.Status(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.Contains(t, state.Missing, "outbox_events.kafka_offset")
		require.Contains(t, state.Missing, "inbox_events")
	})
}

func TestApply_RefusesANewerDatabase(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "INSERT INTO postrider_schema (version) VALUES (99)")
		_, err := schema.Apply(t.Context(), b.DB, b.dialect)
		require.ErrorContains(t, err, "the database has version 99")
		state, err := schema.Status(t.Context(), b.DB, b.dialect)
		require.NoError(t, err)
		require.True(t, state.Complete())
	})
}

func TestApply_WithoutRights(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		user := "u" + b.name[len(b.name)-16:]
		var connect func() *sql.DB // as the user, with the rights of the moment
		switch b.dialect {
		case outbox.SQLite:
			b.exec(t, "CREATE TABLE orders (id INTEGER)")
			connect = func() *sql.DB { return b.open(t, url.Values{"mode": {"ro"}}) }
		case outbox.Postgres:
			b.exec(t, "CREATE ROLE "+user+" LOGIN PASSWORD 'p'", "GRANT USAGE ON SCHEMA "+b.name+" TO "+user)
			t.Cleanup(func() { b.exec(t, "DROP OWNED BY "+user, "DROP ROLE "+user) })
			connect = func() *sql.DB {
				return b.openAs(t, url.UserPassword(user, "p"), url.Values{"search_path": {b.name}})
			}
		default:
			b.exec(t, "CREATE USER '"+user+"'@'%' IDENTIFIED BY 'p'", "GRANT SELECT ON "+b.name+".* TO '"+user+"'@'%'")
			t.Cleanup(func() { b.exec(t, "DROP USER '"+user+"'@'%'") })
			connect = func() *sql.DB { return b.openAs(t, url.UserPassword(user, "p"), nil) }
		}
		_, err := schema.Apply(t.Context(), connect(), b.dialect)
		var denied *schema.PermissionError
		require.ErrorAs(t, err, &denied)
		if b.dialect == outbox.SQLite {
			require.ErrorContains(t, err, "make the file and its folder writable")
			return
		}
		require.ErrorContains(t, err, "lacks CREATE on")
		_, grant, found := strings.Cut(denied.Fix, ": ")
		require.True(t, found)
		b.exec(t, grant)
		_, err = schema.Apply(t.Context(), connect(), b.dialect)
		require.NoError(t, err, "the statement in the error cures it")
	})
}

func TestApply_ReadOnlyServer(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		db := b.open(t, url.Values{"search_path": {b.name}, "default_transaction_read_only": {"on"}})
		_, err := schema.Apply(t.Context(), db, b.dialect)
		require.ErrorContains(t, err, "read-only")
		require.ErrorContains(t, err, "connect to the primary")
	}, outbox.Postgres)
}

func TestApply_NowhereToCreate(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		db := b.open(t, url.Values{"search_path": {"not_there"}})
		_, err := schema.Apply(t.Context(), db, b.dialect)
		require.ErrorContains(t, err, "no schema of the search_path exists")
	}, outbox.Postgres)
	on(t, func(t *testing.T, b *base) {
		nameless := *b
		nameless.name = ""
		_, err := schema.Apply(t.Context(), nameless.open(t, nil), b.dialect)
		require.ErrorContains(t, err, "no database is selected")
	}, outbox.MySQL, outbox.MariaDB)
}

// TestApply_UnderSerializable and TestApply_ThroughPgBouncer: set-ups that break careless migrations.
func TestApply_UnderSerializable(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		db := b.open(t, url.Values{"search_path": {b.name}, "default_transaction_isolation": {"serializable"}})
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				if _, err := schema.Apply(t.Context(), db, b.dialect); err != nil {
					t.Errorf("apply: %v", err)
				}
			})
		}
		wait.Wait()
	}, outbox.Postgres)
}

func TestApply_ThroughPgBouncer(t *testing.T) {
	t.Parallel()
	b := pooled(t)
	_, err := schema.Apply(t.Context(), b.DB, b.dialect)
	require.NoError(t, err)
	state, err := schema.Status(t.Context(), b.DB, b.dialect)
	require.NoError(t, err)
	require.True(t, state.Complete())
}

// TestSchema_OwnTableIsMadeForCheapMarks holds the layout that marks depend on.
func TestSchema_OwnTableIsMadeForCheapMarks(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t)
		rows, err := b.Query(`SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'outbox_events'`)
		require.NoError(t, err)
		defer rows.Close()
		var indexes []string
		for rows.Next() {
			var def string
			require.NoError(t, rows.Scan(&def))
			indexes = append(indexes, def)
			for _, column := range []string{"status", "sent_at", "updated_at", "kafka_", "retry_count"} {
				require.NotContains(t, def, column, "a mark would touch this index")
			}
		}
		require.NoError(t, rows.Err())
		require.Len(t, indexes, 3)

		const n = 500
		events := make([]outbox.Event, n)
		for i := range events {
			events[i] = order(fmt.Sprintf("e-%d", i))
			events[i].Payload = make([]byte, 300)
		}
		w := outbox.New(b.dialect, outbox.Options{})
		conn, err := b.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, w.Write(t.Context(), tx, events...))
		require.NoError(t, tx.Commit())
		_, err = conn.ExecContext(t.Context(), `UPDATE outbox_events SET status = 'SENT', updated_at = clock_timestamp(),
			sent_at = clock_timestamp(), kafka_topic = 'order-service-events', kafka_partition = 1, kafka_offset = id`)
		require.NoError(t, err)
		if _, err := conn.ExecContext(t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
			require.NoError(t, err)
		}
		var updates, hot int64
		require.NoError(t, conn.QueryRowContext(t.Context(),
			`SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = 'outbox_events'::regclass`).Scan(&updates, &hot))
		require.EqualValues(t, n, updates)
		require.GreaterOrEqual(t, hot, int64(n*98/100), "marks must be heap-only")
	}, outbox.Postgres)
}

// TestSchema_ScansUseTheirIndex asks each planner how it finds new and due rows among many sent ones.
func TestSchema_ScansUseTheirIndex(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t)
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			events := make([]outbox.Event, 3000)
			for i := range events {
				events[i] = order("")
			}
			require.NoError(t, outbox.New(b.dialect, outbox.Options{}).Write(ctx, tx, events...))
		})
		b.exec(t, "UPDATE outbox_events SET status = 'SENT' WHERE id <= 2900")
		explain := "EXPLAIN "
		if b.dialect == outbox.SQLite {
			explain = "EXPLAIN QUERY PLAN "
			b.exec(t, "ANALYZE")
		} else {
			planOf(t, b, "ANALYZE TABLE outbox_events")
		}
		force := " FORCE INDEX (outbox_events_status_idx)"
		if b.dialect == outbox.SQLite {
			force = ""
		}
		plan := planOf(t, b, explain+"SELECT id, payload FROM outbox_events"+force+" WHERE status = 'NEW' ORDER BY id LIMIT 100")
		require.Regexp(t, "outbox_events_(status|new)_idx", plan)
		require.NotRegexp(t, "(?i)filesort|temp b-tree", plan)
		plan = planOf(t, b, explain+"SELECT id FROM outbox_events WHERE next_retry_at <= '2026-01-01 00:00:00' AND status = 'FAILED'")
		require.Regexp(t, "outbox_events_(retry|status)_idx", plan)
	}, outbox.MySQL, outbox.MariaDB, outbox.SQLite)
}

// planOf returns a plan as one text.
func planOf(t *testing.T, b *base, query string) string {
	t.Helper()
	rows, err := b.Query(query)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var plan strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		require.NoError(t, rows.Scan(values...))
		for _, v := range values {
			plan.WriteString(v.(*sql.NullString).String + " ")
		}
	}
	require.NoError(t, rows.Err())
	return plan.String()
}

// TestApply_SaysWhatMayNotBeRead: a user who may not even look is told so without the driver's text.
func TestApply_SaysWhatMayNotBeRead(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		if b.dialect != outbox.Postgres {
			t.Skip("MySQL's words name user and right; SQLite has no users")
		}
		user := "u" + b.name[len(b.name)-16:]
		b.apply(t).exec(t, "CREATE ROLE "+user+" LOGIN PASSWORD 'p'", "GRANT USAGE ON SCHEMA "+b.name+" TO "+user)
		t.Cleanup(func() { b.exec(t, "DROP OWNED BY "+user, "DROP ROLE "+user) })
		_, err := schema.Apply(t.Context(), b.openAs(t, url.UserPassword(user, "p"), url.Values{"search_path": {b.name}}), b.dialect)
		var denied *schema.PermissionError
		require.ErrorAs(t, err, &denied)
		require.EqualError(t, denied, "user of this connection lacks a right on table postrider_schema: run it as the owner of the tables, who alone may change them")
	})
}
