package sqlite

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func plain(name string) relay.Table {
	return relay.Table{Name: name, States: ownTable().States,
		Columns: relay.Columns{ID: "id", EventID: "event_id?", AggregateID: "aggregate_id?",
			Payload: "payload", Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at", UpdatedAt: "updated_at?"}}
}

// Ids that are handed out twice must not make a new event look like an old one.
func TestCase_C13_reused_ids(t *testing.T) {
	t.Parallel()
	const rest = ", aggregate_id TEXT, payload TEXT, status TEXT DEFAULT 'NEW', retry_count INT DEFAULT 0, next_retry_at TEXT)"
	for _, c := range []struct {
		name, ddl, refusal, notice string
	}{
		{"plain key, no event id", "CREATE TABLE o (id INTEGER PRIMARY KEY" + rest, "no unique event id", ""},
		{"plain key, event id not unique", "CREATE TABLE o (id INTEGER PRIMARY KEY, event_id TEXT" + rest,
			"no unique event id", ""},
		{"plain key, unique event id", "CREATE TABLE o (id INTEGER PRIMARY KEY, event_id TEXT UNIQUE" + rest, "",
			`told apart by "event_id"`},
		{"autoincrement only in a comment", "CREATE TABLE o (id INTEGER PRIMARY KEY /* AUTOINCREMENT */" + rest,
			"no unique event id", ""},
		{"autoincrement", "CREATE TABLE o (id INTEGER PRIMARY KEY AUTOINCREMENT" + rest, "", ""},
		{"uuid as key", "CREATE TABLE o (id TEXT PRIMARY KEY" + rest, "", `told apart by "id"`},
		{"without rowid", "CREATE TABLE o (id TEXT PRIMARY KEY" + rest + " WITHOUT ROWID", "WITHOUT ROWID", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path, _ := newFile(t, c.ddl)
			s, err := Open(t.Context(), relay.StoreOptions{URL: "sqlite:" + path, Table: plain("o")})
			if c.refusal != "" {
				require.NotNil(t, relay.AsSetup(err), "%v", err)
				require.ErrorContains(t, err, c.refusal)
				return
			}
			require.NoError(t, err)
			defer s.Close()
			require.Contains(t, strings.Join(s.Notices(), "\n"), c.notice)
		})
	}
}

func TestCase_C13_a_late_mark_does_not_meet_the_new_row(t *testing.T) {
	t.Parallel()
	path, db := newFile(t, `CREATE TABLE o (id INTEGER PRIMARY KEY, event_id TEXT UNIQUE, aggregate_id TEXT, payload TEXT,
status TEXT DEFAULT 'NEW', retry_count INT DEFAULT 0, next_retry_at TEXT)`)
	s := open(t, path, plain("o"))
	_, err := db.ExecContext(t.Context(), "INSERT INTO o (event_id, payload) VALUES ('old', '')")
	require.NoError(t, err)
	evs := fetch(t, s, relay.Fetch{})
	_, err = db.ExecContext(t.Context(), "DELETE FROM o; INSERT INTO o (event_id, payload) VALUES ('new', '')")
	require.NoError(t, err)
	lost, err := s.Settle(t.Context(), []relay.Outcome{outcome(evs[0], relay.StateSent)})
	require.NoError(t, err)
	require.Equal(t, []relay.RowID{"1"}, lost)
	require.Equal(t, []string{"new"}, ids(fetch(t, s, relay.Fetch{})))
}

// No question about states walks over sent rows: each is served by one of the small indexes.
func TestCase_C17_reads_use_the_small_indexes(t *testing.T) {
	t.Parallel()
	path, _ := newFile(t, "")
	for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows} {
		s := open(t, path, ownTable(), func(o *relay.StoreOptions) { o.Claim = claim })
		l := s.layout()
		require.Contains(t, l.fresh, "outbox_events_new_idx")
		require.Contains(t, l.rest, "outbox_events_retry_idx")
		for from, wheres := range map[string][]string{
			l.fresh: {l.freshWhere(), l.stateWhere(relay.StateNew)},
			l.rest: {l.retryWhere(), l.failedWhere(), l.deadWhere(), l.blockingWhere(), l.stateWhere(relay.StateSending),
				"(" + l.failedWhere() + ") OR (" + l.deadWhere() + ")"},
		} {
			if claim == relay.ClaimRows && from == l.rest {
				wheres = append(wheres, l.abandonedWhere(1000))
			}
			for _, where := range wheres {
				p, err := l.explain(t.Context(), s.read, from, where)
				require.NoError(t, err)
				require.True(t, p.serves, where)
			}
		}
	}
	// The articles' tables have one index for all.
	for _, k := range kinds()[1:3] {
		path, _ := newFile(t, k.ddl)
		l := open(t, path, k.table).layout()
		require.NotEqual(t, l.table, l.rest, k.name)
		if k.name == "article-mysql" {
			require.NotEqual(t, l.table, l.fresh, k.name)
		}
	}
}

func TestStore_Fetch_after_its_index_was_dropped(t *testing.T) {
	t.Parallel()
	path, db := newFile(t, "")
	s := open(t, path, ownTable())
	write(t, db, "a-1")
	_, err := db.ExecContext(t.Context(), "DROP INDEX outbox_events_new_idx")
	require.NoError(t, err)
	got, err := s.Fetch(t.Context(), relay.Fetch{Limit: 10, MaxBytes: 1 << 20})
	require.NoError(t, err)
	require.True(t, got.More)
	require.Equal(t, []string{"a-1"}, ids(fetch(t, s, relay.Fetch{})))
	require.Contains(t, strings.Join(s.Notices(), "\n"), "no index gives new rows in order")
}

// Services that write while the relay reads and marks meet no "database is locked".
func TestStore_writers_meet_no_busy(t *testing.T) {
	t.Parallel()
	for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			path, db := newFile(t, "")
			s := open(t, path, ownTable(), func(o *relay.StoreOptions) { o.Claim = claim })
			const writers, each = 4, 100
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := range each {
						_, err := db.ExecContext(context.Background(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
VALUES (?, 'order', ?, 'OrderCreated', '{}')`, fmt.Sprintf("%d-%04d", w, i), fmt.Sprint(w))
						if err != nil {
							t.Errorf("a service met %v", err)
						}
					}
				})
			}
			last := map[string]string{}
			for seen := 0; seen < writers*each; {
				evs := fetch(t, s, relay.Fetch{Limit: 50})
				var outs []relay.Outcome
				for _, e := range evs {
					require.Less(t, last[*e.Key], e.ID)
					last[*e.Key] = e.ID
					outs = append(outs, outcome(e, relay.StateSent))
				}
				settle(t, s, outs...)
				seen += len(evs)
			}
			wg.Wait()
		})
	}
}

// A backlog of large events stays within the byte limit.
func TestCase_C16_large_events(t *testing.T) { // not parallel: it looks at the memory of the process
	path, db := newFile(t, "")
	s := open(t, path, ownTable())
	const size, rows, budget = 1 << 20, 40, 8 << 20
	for i := range rows {
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
VALUES (?, 'o', ?, 't', zeroblob(?))`, fmt.Sprintf("%03d", i), fmt.Sprint(i%7), size)
		require.NoError(t, err)
	}
	var busy []relay.RowID
	for len(busy) < rows {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := s.Fetch(t.Context(), relay.Fetch{Limit: 500, MaxBytes: budget, Busy: busy})
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		require.Len(t, got.Events, min(7, rows-len(busy)))
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4*budget))
		for _, e := range got.Events {
			busy = append(busy, e.Row)
		}
	}
}

// Times come in whatever form a table has, and go back in the same.
func TestStore_forms_of_time(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, kind, now, never string }{
		{"iso", "TEXT", "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')", "'2999-01-01T00:00:00.000Z'"},
		{"with offset", "TEXT", "strftime('%Y-%m-%dT%H:%M:%f', 'now') || '+00:00'", "'2999-01-01T00:00:00+02:00'"},
		{"current_timestamp", "DATETIME", "CURRENT_TIMESTAMP", "'2999-01-01 00:00:00'"},
		{"seconds", "INTEGER", "unixepoch()", "32472144000"},
		{"milliseconds", "INTEGER", "CAST(unixepoch('subsec') * 1000 AS INTEGER)", "32472144000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path, db := newFile(t, fmt.Sprintf(`CREATE TABLE o (id INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT UNIQUE, payload TEXT, status TEXT DEFAULT 'NEW',
retry_count INT DEFAULT 0, next_retry_at %[1]s, updated_at %[1]s DEFAULT (%[2]s), created_at %[1]s DEFAULT (%[2]s))`, c.kind, c.now))
			_, err := db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO o (event_id, payload, next_retry_at) VALUES ('due', '', %s), ('later', '', %s)", c.now, c.never))
			require.NoError(t, err)
			table := plain("o")
			table.Columns.CreatedAt = "created_at"
			s := open(t, path, table, func(o *relay.StoreOptions) {
				o.Claim, o.ClaimTimeout = relay.ClaimRows, 3*time.Second
			})
			evs := fetch(t, s, relay.Fetch{})
			require.Equal(t, []string{"due"}, ids(evs))
			require.WithinDuration(t, time.Now(), evs[0].CreatedAt, time.Minute)
			require.Less(t, evs[0].Age, time.Minute)
			o := outcome(evs[0], relay.StateFailed)
			o.RetryAfter = time.Hour
			settle(t, s, o)
			ds, err := s.Doubts(t.Context(), 10)
			require.NoError(t, err)
			require.Empty(t, ds, "rows without a key hold nobody")
			row, _, err := s.Get(t.Context(), "due")
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(time.Hour), row.NextRetryAt, time.Minute)
			var form, now string
			require.NoError(t, db.QueryRowContext(t.Context(),
				"SELECT typeof(next_retry_at) || length(next_retry_at) FROM o WHERE event_id = 'due'").Scan(&form))
			require.NoError(t, db.QueryRowContext(t.Context(),
				fmt.Sprintf("SELECT typeof(%[1]s) || length(%[1]s)", c.now)).Scan(&now))
			require.Equal(t, form[:4], now[:4])
			_, err = db.ExecContext(t.Context(), "UPDATE o SET next_retry_at = 'not a time' WHERE event_id = 'due'")
			require.NoError(t, err)
			require.Equal(t, []string{"due"}, ids(fetch(t, s, relay.Fetch{})), "what cannot be read keeps nothing back")
		})
	}
}

func TestCheckClauses(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"a IN ('x', ')')", " length(b) < 3 "},
		checkClauses("CREATE TABLE t (a TEXT CHECK (a IN ('x', ')')), -- CHECK (no)\n b TEXT check( length(b) < 3 ), checked INT)"))
}

func TestStore_Fetch_steps_over_a_blocked_backlog(t *testing.T) {
	t.Parallel()
	path, db := newFile(t, "")
	s := open(t, path, ownTable())
	_, err := db.ExecContext(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type) SELECT 'hot-' || i, 'o', 'hot', 't' FROM n`)
	require.NoError(t, err)
	write(t, db, "cold-1")
	blocked := []relay.Blocked{{Key: "hot", Head: "1"}}
	require.Equal(t, []string{"cold-1"}, ids(fetch(t, s, relay.Fetch{Blocked: blocked})))
	require.EqualValues(t, 20000, s.floor.row)
	// What commits late below is found by the next whole scan.
	_, err = db.ExecContext(t.Context(), "DELETE FROM outbox_events WHERE id = 77")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `INSERT INTO outbox_events (id, event_id, aggregate_type, aggregate_id, event_type) VALUES (77, 'late', 'o', 'late', 't')`)
	require.NoError(t, err)
	s.floor.until = time.Now()
	require.Equal(t, []string{"late", "cold-1"}, ids(fetch(t, s, relay.Fetch{Blocked: blocked})))
	require.Len(t, fetch(t, s, relay.Fetch{Reopened: blocked, Limit: 5}), 5)
	require.Zero(t, s.floor.row)
}
