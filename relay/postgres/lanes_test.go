package postgres

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

const testLanes = 16

// openLanes opens a store that owns the lanes given, or all.
func (s *space) openLanes(table relay.Table, lanes ...relay.OwnLane) *Store {
	s.Helper()
	st := s.open(func(o *relay.StoreOptions) { o.Table, o.Claim, o.Lanes = table, relay.ClaimLanes, testLanes })
	if len(lanes) == 0 {
		lanes = ownedLanes(0, testLanes)
	}
	require.NoError(s, st.Own(s.Context(), lanes))
	return st
}

func ownedLanes(from, n int32) []relay.OwnLane {
	var out []relay.OwnLane
	for lane := from; lane < from+n; lane++ {
		out = append(out, relay.OwnLane{Lane: lane})
	}
	return out
}

func TestLanes_Refused(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	e := refused(t, s.options(func(o *relay.StoreOptions) { o.Claim = relay.ClaimLanes }))
	require.Equal(t, relay.SetupUsage, e.Kind)
	require.Equal(t, "relay.lanes", e.Thing)
	st := s.open()
	require.ErrorContains(t, st.Own(t.Context(), ownedLanes(0, 1)), "claim: single")
	require.Empty(t, st.Low())
}

// TestLanes_NoKey: rows without any key have the lane of their id.
func TestLanes_NoKey(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL()+"; ALTER TABLE outbox_events ALTER aggregate_id DROP NOT NULL")
	exec(t, s.conn(), "INSERT INTO outbox_events (event_id, aggregate_type, event_type) SELECT 'e' || g, 'order', 'T' FROM generate_series(1, 60) g")
	st := s.open(func(o *relay.StoreOptions) { o.Claim, o.Lanes = relay.ClaimLanes, testLanes })
	all := 0
	for lane := range int32(testLanes) {
		require.NoError(t, st.Own(t.Context(), ownedLanes(lane, 1)))
		evs := s.fetch(st)
		for _, e := range evs {
			require.Nil(t, e.Key)
			require.Equal(t, lane, relay.LaneOf(string(e.Row), testLanes))
		}
		all += len(evs)
		s.settle(st, relay.StateSent, evs...)
	}
	require.Equal(t, 60, all)
}

// TestLanes_Encodings: a lane is that of the key's UTF-8 bytes, whatever the database keeps.
func TestLanes_Encodings(t *testing.T) {
	t.Parallel()
	latin := []string{"", " ", "a ", "é", "É", "ü", "ß", "ÿ", "a\u00a0", "€uro"[3:], "x\\y", "naïve"}
	for encoding, keys := range map[string][]string{
		"UTF8": append(slices.Clone(latin), "世界", "\U0001f600"), "LATIN1": latin, "WIN1252": append(slices.Clone(latin), "€", "“"),
		"EUC_JP":    {"", "a ", "世界", "日本語", "ア"},
		"SQL_ASCII": append(slices.Clone(latin), "世界"), // the server does not know what it keeps
	} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			base := server(t, "POSTRIDER_TEST_POSTGRES")
			name := fmt.Sprintf("postrider_t%d_%d", os.Getpid(), schemas.Add(1))
			exec(t, connect(t, base), fmt.Sprintf("CREATE DATABASE %s ENCODING '%s' LOCALE 'C' TEMPLATE template0", name, encoding))
			atEnd(t, base, "DROP DATABASE "+name+" WITH (FORCE)")
			u, err := url.Parse(base)
			require.NoError(t, err)
			u.Path = "/" + name
			s := newSpace(t, u.String(), ownDDL())
			conn := s.conn()
			exec(t, conn, "SET client_encoding = 'UTF8'")
			for i, key := range keys {
				_, err := conn.Exec(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type) VALUES ($1, 'order', $2, 'T')`, fmt.Sprint(i), key)
				require.NoError(t, err)
			}
			st := s.open(func(o *relay.StoreOptions) { o.Claim, o.Lanes = relay.ClaimLanes, testLanes })
			var came []string
			for lane := range int32(testLanes) {
				require.NoError(t, st.Own(t.Context(), ownedLanes(lane, 1)))
				evs := s.fetch(st)
				for _, e := range evs {
					require.Equal(t, lane, relay.LaneOf(*e.Key, testLanes), "key %q", *e.Key)
					came = append(came, *e.Key)
				}
				s.settle(st, relay.StateSent, evs...)
			}
			require.ElementsMatch(t, keys, came)
		})
	}
}

// TestLanes_LowEnd: a lane that nobody had begins where a relay of the whole table had come, which is not told
// of the lanes' own progress.
func TestLanes_LowEnd(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	saved := func() (low int64) {
		require.NoError(t, s.conn().QueryRow(t.Context(), "SELECT coalesce(max(low_id), 0) FROM outbox_cursor").Scan(&low))
		return low
	}
	fill(t, s, 5_000)
	single := s.open()
	drain(t, single, 5_000, 1000)
	require.NoError(t, single.Close())
	require.EqualValues(t, 5_001, saved())

	fresh := s.openLanes(ownTable())
	require.Equal(t, "5001", fresh.Low(), "not from the beginning")
	exec(t, s.conn(), "DELETE FROM outbox_events WHERE id < 10")
	s.write("a:1", "b:2")
	s.settle(fresh, relay.StateSent, s.fetch(fresh)...)
	require.Equal(t, "5003", fresh.Low())
	require.NoError(t, fresh.Close())
	require.EqualValues(t, 5_001, saved(), "left alone")

	next := s.openLanes(ownTable(), relay.OwnLane{Lane: 1, Low: "5003"}, relay.OwnLane{Lane: 2, Low: "5002"})
	require.Equal(t, "5002", next.Low())
	require.NoError(t, next.Own(t.Context(), []relay.OwnLane{{Lane: 1, Low: "5003"}}))
	require.Equal(t, "5002", next.Low(), "losing a lane moves nothing")
	require.NoError(t, next.Own(t.Context(), []relay.OwnLane{{Lane: 1, Low: "5003"}, {Lane: 5, Low: "300"}}))
	require.Equal(t, "300", next.Low())

	exec(t, s.conn(), "TRUNCATE outbox_events RESTART IDENTITY")
	s.write("c:3")
	emptied := s.openLanes(ownTable(), relay.OwnLane{Lane: relay.LaneOf("3", testLanes), Low: "5003"})
	require.Equal(t, []string{"c"}, names(s.fetch(emptied)), "a position of the old table is not believed")
}

// TestLanes_TableEmptied: when ids begin anew, the low end that a relay of the whole table left is no
// beginning any more.
func TestLanes_TableEmptied(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	s.write("a", "b", "c")
	exec(t, s.conn(), "INSERT INTO outbox_cursor (name, low_id) VALUES ('"+s.open().keeper.name()+"', 3)")
	st := s.openLanes(ownTable())
	require.Equal(t, []string{"c"}, names(s.fetch(st)))
	until(t, "the keeper to know the sequence", func() bool { return st.keeper.seen.Load() > 0 })
	exec(t, s.conn(), "TRUNCATE outbox_events RESTART IDENTITY")
	s.write("d", "e")
	until(t, "the new rows", func() bool { return len(s.fetch(st)) == 2 })
	until(t, "the old low end to be forgotten", func() bool {
		low := int64(-1)
		require.NoError(t, s.conn().QueryRow(t.Context(), "SELECT max(low_id) FROM outbox_cursor").Scan(&low))
		return low == 0
	})
	s.write("f", "g")
	other := s.openLanes(ownTable())
	require.Equal(t, []string{"d", "e", "f", "g"}, names(s.fetch(other)))
}

// TestLanes_Restored: the lanes' low ends, which Kafka keeps, are ahead of a database that came from a backup or lost
// its last commits. What is new there is read all the same: at once where the ids begin anew, else by the sweep.
func TestLanes_Restored(t *testing.T) {
	t.Parallel()
	ahead := ownedLanes(0, testLanes)
	for i := range ahead {
		ahead[i].Low = "8"
	}
	t.Run("ids are behind", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
		s.write("a", "b", "c")
		require.Equal(t, []string{"a", "b", "c"}, names(s.fetch(s.openLanes(ownTable(), ahead...))))
	})
	t.Run("ids have caught up", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
		s.write("a", "b", "c", "d", "e", "f", "g", "h", "i")
		st := s.openLanes(ownTable(), ahead...)
		st.keeper.pause = 0
		evs := s.fetch(st)
		require.Equal(t, []string{"h", "i"}, names(evs))
		s.settle(st, relay.StateSent, evs...)
		var got []string
		until(t, "what is below the low end", func() bool {
			found := s.fetch(st)
			got = append(got, names(found)...)
			s.settle(st, relay.StateSent, found...)
			return len(got) >= 7
		})
		require.ElementsMatch(t, []string{"a", "b", "c", "d", "e", "f", "g"}, got)
		require.EqualValues(t, 7, st.SweepFound())
	})
}

// TestLanes_Sweep: the sweep looks at rows of its own lanes only, and what other relays have in hand is not
// taken for missed.
func TestLanes_Sweep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, ddl string
		table     relay.Table
	}{{"own", ownDDL(), ownTable()}, {"article", articleDDL, articleTable()}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), c.ddl)
			mine, other := relay.LaneOf("k", testLanes), relay.LaneOf("l", testLanes)
			st := s.openLanes(c.table, relay.OwnLane{Lane: mine}, relay.OwnLane{Lane: other})
			st.keeper.pause = 0
			s.write("a", "b:l", "c", "d:l")
			evs := s.fetch(st)
			require.Len(t, evs, 4)
			require.NoError(t, st.Own(t.Context(), []relay.OwnLane{{Lane: mine}}))
			s.settle(st, relay.StateSent, evs[0], evs[2])
			s.write("busy:k")
			busy := s.fetch(st)
			require.Equal(t, []string{"busy"}, names(busy))
			exec(t, s.conn(), "UPDATE outbox_events SET status = 'NEW' WHERE event_id = 'c'")
			var got []string
			until(t, "the row made new by hand", func() bool {
				got = append(got, names(s.fetch(st, busy[0].Row))...)
				return len(got) >= 1
			})
			require.Equal(t, []string{"c"}, got)
			require.EqualValues(t, 1, st.SweepFound())
		})
	}
}

// TestSweep_ForgottenGap: were a gap forgotten before the transaction had ended that fills it, by its age for
// example, the sweep finds the row and counts it.
func TestSweep_ForgottenGap(t *testing.T) {
	t.Parallel()
	for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimLanes} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
			st := s.open(func(o *relay.StoreOptions) { o.Claim, o.Lanes = claim, testLanes })
			if claim == relay.ClaimLanes {
				require.NoError(t, st.Own(t.Context(), ownedLanes(0, testLanes)))
			}
			st.keeper.pause = 0
			require.Empty(t, s.fetch(st))
			late := s.conn()
			exec(t, late, "BEGIN; INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type) VALUES ('late', 'order', 'k', 'T')")
			s.write("early:l")
			evs := s.fetch(st)
			require.Equal(t, []string{"early"}, names(evs))
			s.settle(st, relay.StateSent, evs...)
			st.engine.mu.Lock()
			require.NotEmpty(t, st.engine.tracker.gaps)
			st.engine.tracker.gaps = nil // the bug
			st.engine.mu.Unlock()
			exec(t, late, "COMMIT")
			require.Empty(t, s.fetch(st))
			require.Zero(t, st.SweepFound())
			var got []string
			until(t, "the row that was missed", func() bool {
				found := s.fetch(st)
				got = append(got, names(found)...)
				s.settle(st, relay.StateSent, found...)
				return len(got) > 0
			})
			require.Equal(t, []string{"late"}, got)
			require.EqualValues(t, 1, st.SweepFound())
		})
	}
}

// TestLanes_SweepOfOldLanes: what a sweep has found is nothing any more when the lanes have changed meanwhile.
func TestLanes_SweepOfOldLanes(t *testing.T) {
	t.Parallel()
	e := &engine{tracker: newTracker(100)}
	e.lanes = newLaneSet(testLanes, ownedLanes(0, 4))
	_, _, epoch := e.sweepView()
	fewer := newLaneSet(testLanes, ownedLanes(0, 3))
	e.ownLess(fewer)
	e.sweptUp([]record{{id: 7}}, epoch)
	require.Empty(t, e.tracker.ready)
	require.Zero(t, e.sweepFound())
	_, _, epoch = e.sweepView()
	e.sweptUp([]record{{id: 7}}, epoch)
	require.True(t, e.tracker.ready.has(7))
}

// TestLanes_OthersFillGaps: a late row of another relay's lane is no gap any more once it is there, whatever
// other transactions are open, sent or not.
func TestLanes_OthersFillGaps(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	st := s.openLanes(ownTable(), relay.OwnLane{Lane: relay.LaneOf("k", testLanes)})
	begin := func(id, key string) pgx.Tx {
		tx, err := s.conn().Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type) VALUES ($1, 'order', $2, 'T')", id, key)
		require.NoError(t, err)
		return tx
	}
	first, second := begin("one", "l"), begin("two", "l")
	s.write("three")
	s.settle(st, relay.StateSent, s.fetch(st)...)
	require.Empty(t, s.fetch(st))
	require.Equal(t, "1", st.Low())
	require.NoError(t, first.Commit(t.Context()))
	exec(t, s.conn(), "UPDATE outbox_events SET status = 'SENT' WHERE event_id = 'one'")
	require.Empty(t, s.fetch(st))
	require.Equal(t, "2", st.Low(), "the second one is still open")
	require.NoError(t, second.Commit(t.Context()))
	require.Empty(t, s.fetch(st))
	require.Equal(t, "4", st.Low())
}

// TestLanes_AllAreFree: with all lanes its own, or with another claim mode, a store sends the statements that
// know no lanes.
func TestLanes_AllAreFree(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	st := s.openLanes(ownTable())
	require.Nil(t, st.engine.owned().filter())
	_, ask := st.engine.plan(relay.Fetch{Limit: 100, MaxBytes: 1 << 20}, nil, time.Now())
	require.Nil(t, ask.lanes)
	require.Equal(t, ask.limit, ask.looks)
	require.NotContains(t, st.reader.texts(ask).plain+st.reader.texts(ask).lookup+st.reader.texts(ask).due, "sha256")
	require.NoError(t, st.Own(t.Context(), ownedLanes(0, testLanes-1)))
	_, ask = st.engine.plan(relay.Fetch{Limit: 100, MaxBytes: 1 << 20}, nil, time.Now())
	require.Len(t, ask.lanes, testLanes)
	require.Contains(t, st.reader.texts(ask).plain, "sha256")
}

// TestLanes_Attempts: what was in flight when a lane came is still known by its attempts, so that a verdict that
// is written twice counts once.
func TestLanes_Attempts(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	s.write("a:1")
	lane := relay.LaneOf("1", testLanes)
	st := s.openLanes(ownTable(), relay.OwnLane{Lane: lane})
	evs := s.fetch(st)
	s.settle(st, relay.StateFailed, evs...)
	again := s.fetch(st)
	require.Len(t, again, 1)
	require.NoError(t, st.Own(t.Context(), []relay.OwnLane{{Lane: lane}, {Lane: (lane + 1) % testLanes}}))
	require.Empty(t, s.fetch(st, again[0].Row))
	for range 2 {
		_, err := st.Settle(t.Context(), []relay.Outcome{{Row: again[0].Row, From: relay.StateFailed, State: relay.StateFailed, Attempt: true, RetryAfter: time.Hour}})
		require.NoError(t, err)
	}
	rows, err := st.List(t.Context(), relay.Filter{})
	require.NoError(t, err)
	require.Equal(t, 2, rows[0].RetryCount)
}

// TestLanes_Windows: a relay with few of the rows reads in windows that suit it, and none is missed.
func TestLanes_Windows(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	fill(t, s, 30_000)
	lane := relay.LaneOf("key-7", testLanes)
	st := s.openLanes(ownTable(), relay.OwnLane{Lane: lane})
	var rows []relay.RowID
	reads := 0
	for more := true; more; reads++ {
		got, err := st.Fetch(t.Context(), relay.Fetch{Limit: 500, MaxBytes: 8 << 20, Busy: rows})
		require.NoError(t, err)
		for _, e := range got.Events {
			rows = append(rows, e.Row)
		}
		more = got.More
	}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(rows))), len(rows))
	var want int
	for n := range 1000 {
		if relay.LaneOf(fmt.Sprintf("key-%d", n), testLanes) == lane {
			want += 30
		}
	}
	require.Len(t, rows, want)
	require.Less(t, reads, 20, "about one in sixteen rows is its own")
}
