package mysql

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// effort is what a statement cost the server, whatever plan it chose: rows looked at and rows sorted.
type effort struct{ reads, sorted int }

// work measures what f costs on the store's only session.
func work(t *testing.T, s *Store, f func()) effort {
	t.Helper()
	before := counters(t, s)
	f()
	after := counters(t, s)
	return effort{after.reads - before.reads, after.sorted - before.sorted}
}

func counters(t *testing.T, s *Store) (e effort) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Sort_rows'")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int
		require.NoError(t, rows.Scan(&name, &n))
		if name == "Sort_rows" {
			e.sorted += n
		} else if name != "Handler_read_rnd_next" || n > 1000 { // SHOW STATUS itself reads a few hundred
			e.reads += n
		}
	}
	require.NoError(t, rows.Err())
	return e
}

// fill adds n rows of one state, many at once.
func (f *table) fill(t *testing.T, n int, state relay.State, change string) {
	t.Helper()
	l := f.l
	names := fmt.Sprintf("%s, %s, %s, %s, %s, %s", col(l.cols.EventID), col(l.cols.AggregateID),
		col(l.cols.AggregateType), col(l.cols.EventType), col(l.cols.Payload), col(l.cols.Status))
	values := "UUID(), CONCAT('key-', n), 'order', 'OrderCreated', '{}', " + quote(l.word(state))
	if l.sameWord() {
		names, values = names+", "+col(l.cols.Topic), values+", 'orders'"
	}
	_, err := f.db.ExecContext(t.Context(), `SET SESSION cte_max_recursion_depth = 1000000`)
	if err != nil { // MariaDB calls it otherwise
		_, err = f.db.ExecContext(t.Context(), `SET SESSION max_recursive_iterations = 1000000`)
	}
	require.NoError(t, err)
	_, err = f.db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO %s (%s) WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < %d) SELECT %s FROM r", l.table, names, n, values))
	require.NoError(t, err)
	if change != "" {
		_, err = f.db.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s SET %s WHERE %s", l.table, change,
			l.status(l.word(state))))
		require.NoError(t, err)
	}
}

// The cost of a read depends neither on sent rows, nor on dead ones, nor on the backlog, nor on whether
// the statistics know of any.
func TestCase_C17_reads_stay_cheap(t *testing.T) {
	sent, backlog := 60_000, 20_000
	if testing.Short() {
		sent, backlog = 6_000, 4_000
	}
	onBoth(t, func(t *testing.T, v flavour) {
		for _, k := range kinds(v) {
			for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows} {
				if k.name != "own" && k.name != "article-mysql" {
					continue
				}
				t.Run(k.name+"/"+string(claim), func(t *testing.T) {
					p := &tables{t: t, flavour: v, kind: k}
					f := p.make(t)
					f.t = t
					f.db.SetMaxOpenConns(1)
					st, err := f.Open(t.Context(), relay.StoreOptions{Claim: claim})
					require.NoError(t, err)
					s := st.(*Store)
					s.db.SetMaxOpenConns(1)
					s.bytes = 300 // as after a few reads

					f.fill(t, sent, relay.StateSent, "")
					f.fill(t, 1000, relay.StateDead, "")
					f.fill(t, 100, relay.StateNew, "")
					var evs []relay.Event
					cost := work(t, s, func() { evs = fetch(t, s, relay.Fetch{Limit: 1000, MaxBytes: 8 << 20}) })
					require.Len(t, evs, 100)
					t.Logf("100 new rows behind %d sent ones: %+v", sent, cost)
					require.Less(t, cost.reads, 1500)

					f.fill(t, backlog, relay.StateNew, "")
					var busy []relay.RowID
					for _, e := range evs {
						busy = append(busy, e.Row)
					}
					for range 3 {
						f := relay.Fetch{Limit: 1000, MaxBytes: 8 << 20, Busy: busy}
						cost = work(t, s, func() { evs = fetch(t, s, f) })
						require.Len(t, evs, 1000)
						t.Logf("1000 of %d new rows, %d busy: %+v", backlog, len(busy), cost)
						require.Less(t, cost.reads, 6000)
						require.LessOrEqual(t, cost.sorted, 0, "nothing is sorted")
						for _, e := range evs {
							busy = append(busy, e.Row)
						}
					}
					var outs []relay.Outcome
					for _, e := range evs {
						outs = append(outs, outcome(e, relay.StateSent))
					}
					cost = work(t, s, func() { settle(t, s, outs...) })
					t.Logf("1000 marks: %+v", cost)
					require.Less(t, cost.reads, 8000)
				})
			}
		}
	})
}

// A hot key that waits for a person does not make every read walk over its backlog, and what commits
// late below is found all the same.
func TestStore_Fetch_steps_over_a_blocked_backlog(t *testing.T) {
	t.Parallel()
	f := floor{}
	began := time.Unix(1000, 0)
	require.Zero(t, f.start(false, began))
	f.scanned(0, 5000, began, began.Add(10*time.Millisecond))
	require.Zero(t, f.start(false, began), "a quick scan needs no floor")
	f.scanned(0, 5000, began, began.Add(300*time.Millisecond))
	require.EqualValues(t, 5000, f.start(false, began.Add(time.Second)))
	f.scanned(5000, 9000, began.Add(time.Second), began.Add(2*time.Second))
	require.EqualValues(t, 9000, f.start(false, began.Add(5*time.Second)))
	require.Zero(t, f.start(false, began.Add(7*time.Second)), "a whole scan now and then, at a twentieth of the time")
	f.scanned(0, 9000, began, began.Add(time.Second))
	require.Zero(t, f.start(true, began), "a key that reopens has rows below")
}

func TestStore_Fetch_finds_late_rows_below_the_floor(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable())
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('late-1', 'o', 'late', 't', '')`)
		require.NoError(t, err)
		write(t, db, "hot-1", "hot-2", "cold-1")
		all := fetch(t, s, relay.Fetch{})
		require.Equal(t, []string{"hot-1", "hot-2", "cold-1"}, ids(all))
		blocked := []relay.Blocked{{Key: "hot", Head: all[0].Row}}
		top, err := s.layout().rowNumber(all[1].Row)
		require.NoError(t, err)
		s.floor = floor{row: top, until: time.Now().Add(time.Hour)} // as after a slow scan
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"cold-1"}, ids(fetch(t, s, relay.Fetch{Blocked: blocked})))
		s.floor.until = time.Now()
		require.Equal(t, []string{"late-1", "cold-1"}, ids(fetch(t, s, relay.Fetch{Blocked: blocked})))
		s.floor = floor{row: top, until: time.Now().Add(time.Hour)}
		require.Equal(t, []string{"late-1", "hot-1", "hot-2", "cold-1"}, ids(fetch(t, s, relay.Fetch{Reopened: blocked})))
	})
}
