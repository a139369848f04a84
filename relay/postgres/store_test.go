package postgres

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// write inserts plain events of the given ids, key "k" unless "id:key" says another.
func (s *space) write(ids ...string) {
	s.Helper()
	conn := s.conn()
	for _, id := range ids {
		id, key, ok := strings.Cut(id, ":")
		if !ok {
			key = "k"
		}
		_, err := conn.Exec(s.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'order', $2, 'T', '{}')`, id, key)
		require.NoError(s, err)
	}
	require.NoError(s, conn.Close(s.Context()))
}

func (s *space) fetch(st *Store, busy ...relay.RowID) []relay.Event {
	s.Helper()
	var evs []relay.Event
	for {
		f := relay.Fetch{Limit: 100, MaxBytes: 1 << 20, Busy: busy}
		for _, e := range evs {
			f.Busy = append(f.Busy, e.Row)
		}
		got, err := st.Fetch(s.Context(), f)
		require.NoError(s, err)
		evs = append(evs, got.Events...)
		if !got.More {
			return evs
		}
	}
}

func names(evs []relay.Event) []string {
	out := []string{}
	for _, e := range evs {
		out = append(out, e.ID)
	}
	return out
}

func (s *space) settle(st *Store, state relay.State, evs ...relay.Event) {
	s.Helper()
	var outs []relay.Outcome
	for _, e := range evs {
		outs = append(outs, relay.Outcome{Row: e.Row, Claim: e.Claim, From: e.State, State: state, Attempt: state != relay.StateSent})
	}
	lost, err := st.Settle(s.Context(), outs)
	require.NoError(s, err)
	require.Empty(s, lost)
}

// until repeats an act that something in the background must make succeed.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		require.True(t, time.Now().Before(deadline), "waited in vain for %s", what)
		<-tick.C
	}
}

// TestStore_NoKey: events without any key have no gate and come again when they are handed back.
func TestStore_NoKey(t *testing.T) {
	t.Parallel()
	for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL()+"; ALTER TABLE outbox_events ALTER aggregate_id DROP NOT NULL")
			exec(t, s.conn(), "INSERT INTO outbox_events (event_id, aggregate_type, event_type) SELECT 'e' || g, 'order', 'T' FROM generate_series(1, 5) g")
			st := s.open(func(o *relay.StoreOptions) { o.Claim = claim })
			evs := s.fetch(st)
			require.Equal(t, []string{"e1", "e2", "e3", "e4", "e5"}, names(evs))
			require.Nil(t, evs[0].Key)
			s.settle(st, relay.StateSent, evs[0], evs[1])
			s.settle(st, relay.StateFailed, evs[2])
			if claim == relay.ClaimRows {
				lost, err := st.Settle(t.Context(), []relay.Outcome{{Row: evs[3].Row, Claim: evs[3].Claim, From: evs[3].State, State: relay.StateNew}})
				require.NoError(t, err)
				require.Empty(t, lost)
			}
			// Four is busy no more, and nobody names a key that reopens; five still is.
			require.Equal(t, []string{"e3", "e4"}, names(s.fetch(st, evs[4].Row)))
		})
	}
}

// TestStore_Cursor: a relay that starts again begins where the last one was, not at the beginning, and a row
// that was not committed then is not lost.
func TestStore_Cursor(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, url string) {
		for _, ddl := range []string{ownDDL(), articleDDL} {
			table := ownTable()
			if ddl == articleDDL {
				table = articleTable()
			}
			s := newSpace(t, url, ddl)
			opened := func() *Store { return s.open(func(o *relay.StoreOptions) { o.Table = table }) }
			fill(t, s, 20_000)
			st := opened()
			drain(t, st, 20_000, 2000)
			slow, err := s.conn().Begin(t.Context())
			require.NoError(t, err)
			_, err = slow.Exec(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('slow', 'order', 'k', 'T', '{}')`)
			require.NoError(t, err)
			s.write("quick")
			require.Equal(t, []string{"quick"}, names(s.fetch(st)))
			require.NoError(t, st.Close())

			st = opened()
			require.Equal(t, []string{"quick"}, names(s.fetch(st)), "read, not settled")
			require.GreaterOrEqual(t, st.engine.low(), int64(20_000), "not from the beginning")
			require.NoError(t, st.Close())
			st = opened()
			evs := s.fetch(st)
			s.settle(st, relay.StateSent, evs...)
			require.NoError(t, slow.Commit(t.Context()))
			require.Equal(t, []string{"slow"}, names(s.fetch(st)), "known to be missing, or to be open")
			require.Zero(t, st.SweepFound())
		}
	})
}

// TestStore_TableEmptied: ids that count from the beginning again are noticed.
func TestStore_TableEmptied(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	s.write("a", "b", "c")
	st := s.open()
	s.settle(st, relay.StateSent, s.fetch(st)...)
	until(t, "the keeper to know the sequence", func() bool { return st.keeper.seen.Load() > 0 })
	exec(t, s.conn(), "TRUNCATE outbox_events RESTART IDENTITY")
	s.write("d")
	until(t, "the new row", func() bool { return len(s.fetch(st)) == 1 })

	s.settle(st, relay.StateSent, s.fetch(st)...)
	require.NoError(t, st.Close())
	exec(t, s.conn(), "TRUNCATE outbox_events RESTART IDENTITY")
	exec(t, s.conn(), "UPDATE outbox_cursor SET low_id = 1000")
	s.write("e")
	require.Equal(t, []string{"e"}, names(s.fetch(s.open())), "the cursor of the old table is not believed")
}

// TestStore_Sweep: what a person makes new below the cursor is found.
func TestStore_Sweep(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, url string) {
		for _, ddl := range []string{ownDDL(), articleDDL} {
			s := newSpace(t, url, ddl)
			st := s.open(func(o *relay.StoreOptions) {
				if ddl == articleDDL {
					o.Table = articleTable()
				}
			})
			st.keeper.pause = 0
			s.write("sent", "dead", "kept:l")
			evs := s.fetch(st)
			s.settle(st, relay.StateSent, evs[0], evs[2])
			s.settle(st, relay.StateDead, evs[1])
			s.write("busy:m")
			busy := s.fetch(st)
			require.Equal(t, []string{"busy"}, names(busy))
			exec(t, s.conn(), "UPDATE outbox_events SET status = 'NEW' WHERE event_id IN ('sent', 'dead')")
			var got []string
			until(t, "the rows made new by hand", func() bool {
				got = append(got, names(s.fetch(st, busy[0].Row))...)
				return len(got) >= 2
			})
			require.Equal(t, []string{"sent", "dead"}, got)
			require.EqualValues(t, 2, st.SweepFound())
		}
	})
}

// TestStore_LockLost: the owner is told when its session ends, and another relay gets the table.
func TestStore_LockLost(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	one, two := s.open(), s.open(func(o *relay.StoreOptions) { o.Relay = "relay-2" })
	lost, err := one.Acquire(t.Context(), func(string) { t.Error("nobody holds it") })
	require.NoError(t, err)
	holder := make(chan string, 1)
	acquired := make(chan error, 1)
	go func() {
		_, err := two.Acquire(t.Context(), func(h string) { holder <- h })
		acquired <- err
	}()
	h := <-holder
	require.Contains(t, h, "postrider/relay-1, claim: single")
	require.Contains(t, h, "since")
	endLockSession(t, s, one)
	select {
	case <-lost:
	case <-time.After(20 * time.Second):
		require.Fail(t, "the loss was not noticed")
	}
	require.NoError(t, <-acquired)
}

// endLockSession ends the sessions that hold the table for the kind of a store.
func endLockSession(t *testing.T, s *space, st *Store) {
	t.Helper()
	l := st.tableLock()
	exec(t, s.conn(), fmt.Sprintf(`SELECT pg_terminate_backend(l.pid, 5000) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted
		AND l.classid = %d AND l.objid = %d`, l.table, l.peers))
}

// TestStore_LockRetaken: relays that share a table go on when the session ends that keeps others away, once it is
// taken anew; if others came first they do not.
func TestStore_LockRetaken(t *testing.T) {
	t.Parallel()
	for _, claim := range []relay.ClaimMode{relay.ClaimRows, relay.ClaimLanes} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
			gate := newProxy(t, s.url)
			shared := func(o *relay.StoreOptions) { o.URL, o.Claim, o.Lanes = gate.url, claim, testLanes }
			one, other := s.open(shared), s.open()
			if claim == relay.ClaimLanes {
				require.NoError(t, one.Own(t.Context(), ownedLanes(0, testLanes)))
			}
			lost, err := one.Acquire(t.Context(), func(string) { t.Error("nobody holds it") })
			require.NoError(t, err)
			s.write("a:1")
			s.settle(one, relay.StateSent, s.fetch(one)...)
			endLockSession(t, s, one)
			until(t, "the lock is taken anew", func() bool {
				one.owner.suspect()
				l, n := one.tableLock(), 0
				err := s.conn().QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = $1 AND objid = $2",
					l.table, l.peers).Scan(&n)
				require.NoError(t, err)
				return n > 0
			})
			until(t, "reading goes on", func() bool { return !one.owner.away.Load() })
			s.write("b:2")
			require.Len(t, s.fetch(one), 1)

			gate.swallowReplies() // now a relay of another mode comes first
			endLockSession(t, s, one)
			until(t, "the loss is noticed", one.owner.away.Load)
			_, err = one.Fetch(t.Context(), relay.Fetch{Limit: 1, MaxBytes: 1})
			require.ErrorIs(t, err, errAway)
			_, err = other.Acquire(t.Context(), func(string) {})
			require.NoError(t, err)
			gate.heal()
			select {
			case <-lost:
			case <-time.After(20 * time.Second):
				require.Fail(t, "another relay has the table, and this one goes on")
			}
		})
	}
}

// TestCase_C16_Memory: rows that are stored compressed do not flood the memory: what comes beyond the bound is
// dropped as it comes, and weighed better the next time.
func TestCase_C16_Memory(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), articleDDL)
	const n, size, budget = 60, 2 << 20, 8 << 20
	exec(t, s.conn(), fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
		SELECT 'e' || g, 'order', 'k' || g, 'T', jsonb_build_object('pad', repeat('x', %d)) FROM generate_series(1, %d) g`, size, n))
	st := s.open(func(o *relay.StoreOptions) { o.Table = articleTable() })
	var before, after runtime.MemStats
	seen := 0
	for reads := 0; seen < n; reads++ {
		require.Less(t, reads, 2*n)
		runtime.ReadMemStats(&before)
		got, err := st.Fetch(t.Context(), relay.Fetch{Limit: 500, MaxBytes: budget})
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		var sum int64
		for _, e := range got.Events {
			sum += e.Size()
		}
		require.LessOrEqual(t, sum, int64(budget))
		seen += len(got.Events)
		s.settle(st, relay.StateSent, got.Events...)
	}
	require.Less(t, after.HeapInuse, uint64(200<<20))
}

// TestSettle_LostReply: a mark whose reply was lost is in the table once, and no claim was lost by it.
func TestSettle_LostReply(t *testing.T) {
	t.Parallel()
	for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows, relay.ClaimLanes} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
			gate := newProxy(t, s.url)
			st := s.open(func(o *relay.StoreOptions) { o.URL, o.Claim, o.Lanes = gate.url, claim, testLanes })
			if claim == relay.ClaimLanes {
				require.NoError(t, st.Own(t.Context(), ownedLanes(0, testLanes)))
			}
			s.write("a:1", "b:2", "c:3", "d:4")
			evs := s.fetch(st)
			require.Len(t, evs, 4)
			var outs []relay.Outcome
			for i, state := range []relay.State{relay.StateSent, relay.StateFailed, relay.StateDead, relay.StateNew} {
				outs = append(outs, relay.Outcome{Row: evs[i].Row, Claim: evs[i].Claim, From: evs[i].State, State: state,
					Attempt: state == relay.StateFailed || state == relay.StateDead, RetryAfter: time.Hour, Receipt: relay.Receipt{Topic: "t", Offset: 7}})
			}
			gate.swallowReplies()
			_, err := st.Settle(t.Context(), outs)
			require.Error(t, err)
			gate.heal()
			var lost []relay.RowID
			until(t, "a connection", func() bool {
				lost, err = st.Settle(t.Context(), outs)
				return err == nil
			})
			require.Empty(t, lost, "the marks are our own")
			rows, err := st.List(t.Context(), relay.Filter{})
			require.NoError(t, err)
			require.Equal(t, []relay.State{relay.StateSent, relay.StateFailed, relay.StateDead, relay.StateNew},
				[]relay.State{rows[0].State, rows[1].State, rows[2].State, rows[3].State})
			require.Equal(t, []int{0, 1, 1, 0}, []int{rows[0].RetryCount, rows[1].RetryCount, rows[2].RetryCount, rows[3].RetryCount})
		})
	}
}

// TestStore_LockedTable: a lock that a person holds ends in an error after the statement timeout, and reading
// goes on when it is gone.
func TestStore_LockedTable(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	st := s.open(func(o *relay.StoreOptions) { o.StatementTimeout = 300 * time.Millisecond })
	s.write("a")
	require.Len(t, s.fetch(st), 1)
	tx, err := s.conn().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE outbox_events IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	_, err = st.Fetch(t.Context(), relay.Fetch{Limit: 1, MaxBytes: 1})
	require.ErrorContains(t, err, "statement timeout")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []string{"a"}, names(s.fetch(st)))
}

// TestStore_ModeChanged: rows that relays with claims left behind are taken over by a relay without.
func TestStore_ModeChanged(t *testing.T) {
	t.Parallel()
	for _, ddl := range []string{ownDDL(), articleDDL} {
		s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ddl)
		table := func(o *relay.StoreOptions) {
			o.ClaimTimeout = time.Second
			if ddl == articleDDL {
				o.Table = articleTable()
			}
		}
		s.write("a:1", "b:2", "c:3")
		old := s.open(table, func(o *relay.StoreOptions) { o.Claim = relay.ClaimRows })
		evs := s.fetch(old)
		require.Len(t, evs, 3)
		s.settle(old, relay.StateSent, evs[1])
		require.NoError(t, old.Close())
		st := s.open(table)
		var got []relay.Event
		until(t, "the abandoned claims", func() bool {
			var busy []relay.RowID
			for _, e := range got {
				busy = append(busy, e.Row)
			}
			got = append(got, s.fetch(st, busy...)...)
			return len(got) == 2
		})
		require.Equal(t, []string{"a", "c"}, names(got))
		s.settle(st, relay.StateSent, got...)
		rows, err := st.List(t.Context(), relay.Filter{States: []relay.State{relay.StateSent}})
		require.NoError(t, err)
		require.Len(t, rows, 3)
	}
}
