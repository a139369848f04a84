package postgres

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// plan runs a statement on a session of the store and returns its plan and the pages it touched.
func plan(t *testing.T, st *Store, sql string, args ...any) (text string, pages int) {
	t.Helper()
	var out []byte
	err := st.db.tx(t.Context(), stmt{sql: "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, args: args, read: func(rows pgx.Rows) error {
		rows.Next()
		out = append(out, rows.RawValues()[0]...)
		return nil
	}})
	require.NoError(t, err)
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, json.Unmarshal(out, &plans))
	return string(out), plans[0].Plan.Hit + plans[0].Plan.Read
}

// TestCase_C17_Plans: with 200,000 sent rows, their dead versions kept by an old snapshot, and no statistics,
// every statement of the hot path goes by an index and touches few pages.
func TestCase_C17_Plans(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, url string) {
		for _, c := range []struct {
			name, ddl string
			table     relay.Table
			analyze   bool
		}{
			{"own", ownDDL(), ownTable(), false},
			{"article", articleDDL, articleTable(), false},
			{"article analysed", articleDDL, articleTable(), true},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := newSpace(t, url, c.ddl)
				conn := s.conn()
				exec(t, conn, "ALTER TABLE outbox_events SET (autovacuum_enabled = off)")
				old, err := s.conn().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
				require.NoError(t, err)
				_, err = old.Exec(t.Context(), "SELECT txid_current(), count(*) FROM outbox_events")
				require.NoError(t, err)

				fill(t, s, 200_000)
				exec(t, conn, "UPDATE outbox_events SET status = 'SENT', sent_at = now()")
				exec(t, conn, `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
					SELECT 'n' || g, 'order', 'k' || g % 7, 'T', '{}' FROM generate_series(1, 100) g`)
				exec(t, conn, "UPDATE outbox_events SET status = 'FAILED', next_retry_at = now() - interval '1 minute' WHERE event_id IN ('n50', 'n60')")
				if c.analyze {
					exec(t, conn, "ANALYZE outbox_events")
				}
				st := s.open(func(o *relay.StoreOptions) { o.Table = c.table })
				q, none := st.reader.sql, []string{}
				laned := *st.layout
				laned.lanes = testLanes
				some, mine := newStatements(&laned, true), make([]bool, testLanes)
				mine[3] = true
				before := st.engine.cursor()
				require.Zero(t, before)
				began := time.Now()
				if !c.table.Own { // without its cursor the own table is read from the beginning
					require.Len(t, s.fetch(st), 100)
					require.Less(t, time.Since(began), 5*time.Second)
				}
				for name, run := range map[string]struct {
					sql  string
					args []any
				}{
					"forward":            {q.forward, []any{200_000, 2000, 1 << 20, 2000}},
					"forward blocked":    {q.forwardBlocked, []any{200_000, 2000, 1 << 20, 2000, []string{"k1", "k2"}}},
					"lookup":             {q.lookup, []any{[]int64{7, 100, 200_001}, []int64{7, 120, 200_001}, 2000, 1 << 20}},
					"due":                {q.due, []any{1000, 2000, 1 << 20}},
					"due exact":          {q.dueExact, []any{1000, 2000, 1 << 20, none, []int64{}, []int64{}}},
					"replay":             {q.replay, []any{199_990, 200_100, 2000, 1 << 20, 2000, []string{"k1"}}},
					"settle":             {st.marks.fresh, []any{seq(200_001, 100), topics(100), make([]int32, 100), seq(1, 100)}},
					"forward in lanes":   {some.forward, []any{200_000, 2000, 1 << 20, 2000, mine}},
					"lookup in lanes":    {some.lookup, []any{[]int64{7, 100, 200_001}, []int64{7, 120, 200_001}, 2000, 1 << 20, mine, 2000}},
					"due in lanes":       {some.due, []any{1000, 2000, 1 << 20, mine}},
					"due exact in lanes": {some.dueExact, []any{1000, 2000, 1 << 20, none, []int64{}, []int64{}, mine}},
				} {
					text, pages := plan(t, st, run.sql, run.args...)
					require.NotContains(t, text, "Seq Scan on outbox", name)
					require.NotContains(t, text, `"Seq Scan"`, "%s: %s", name, text)
					most := 1500
					if name == "settle" {
						most = 4000 // each row: descent, page, new version
					}
					require.Less(t, pages, most, "%s: %s", name, text)
				}
				if st.reader.sql.reclaim != "" {
					text, pages := plan(t, st, q.reclaim, 1000, 2000, 1<<20)
					require.NotContains(t, text, `"Seq Scan"`)
					require.Less(t, pages, 1500)
				}
				ds, err := st.Doubts(t.Context(), 10)
				require.NoError(t, err)
				require.Len(t, ds, 2)
				require.NoError(t, old.Rollback(t.Context()))
			})
		}
	})
}

func seq(from int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = from + int64(i)
	}
	return out
}

func topics(n int) []string { return strings.Split(strings.Repeat("t ", n-1)+"t", " ") }

// TestSettle_HeapOnly: marking an event of the product's own table as sent changes no index.
func TestSettle_HeapOnly(t *testing.T) {
	t.Parallel()
	for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimLanes} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			heapOnly(t, claim)
		})
	}
}

func heapOnly(t *testing.T, claim relay.ClaimMode) {
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	fill(t, s, 10_000)
	st := s.open(func(o *relay.StoreOptions) { o.Claim, o.Lanes = claim, testLanes })
	if claim == relay.ClaimLanes {
		require.NoError(t, st.Own(t.Context(), ownedLanes(0, testLanes)))
	}
	drain(t, st, 10_000, 1000)
	require.NoError(t, st.Close()) // sessions report their counts when they end
	var all, hot int64
	until(t, "the server's statistics", func() bool {
		require.NoError(t, s.conn().QueryRow(t.Context(), fmt.Sprintf(
			"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = '%s.outbox_events'::regclass", s.schema)).Scan(&all, &hot))
		return all >= 10_000
	})
	require.Greater(t, hot, all*95/100)
}
