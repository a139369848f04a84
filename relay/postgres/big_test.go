package postgres

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestCase_C17_TenMillionSent: what a poll costs does not depend on how many rows were sent. It fills
// tables of ten million rows, which takes minutes and 10 GB:
//
//	POSTRIDER_TEST_BIG=1
func TestCase_C17_TenMillionSent(t *testing.T) {
	if os.Getenv("POSTRIDER_TEST_BIG") == "" {
		t.Skip("set POSTRIDER_TEST_BIG=1 to poll beside ten million sent rows (takes minutes and 10 GB)")
	}
	url := server(t, "POSTRIDER_TEST_POSTGRES")
	for _, c := range []struct {
		name, ddl string
		table     relay.Table
	}{
		{"own", ownDDL(), ownTable()},
		{"article", articleDDL, articleTable()},
	} {
		t.Run(c.name, func(t *testing.T) {
			var few, many bigPace
			t.Run("10 thousand", func(t *testing.T) { few = pollBesideSent(t, url, c.ddl, c.table, 10_000) })
			t.Run("10 million", func(t *testing.T) { many = pollBesideSent(t, url, c.ddl, c.table, 10_000_000) })
			for _, p := range []struct {
				what      string
				few, many time.Duration
			}{
				{"idle poll", few.idle, many.idle}, {"poll of 100 events", few.busy, many.busy},
				{"marks of 100 events", few.settle, many.settle},
			} {
				t.Logf("%-36s %10s beside 10 thousand, %10s beside 10 million", p.what, p.few.Round(time.Microsecond), p.many.Round(time.Microsecond))
				require.Less(t, p.many, 3*p.few+25*time.Millisecond, p.what)
			}
			for _, p := range []struct {
				what             string
				few, many, bound time.Duration
			}{
				{"counts, a bounded read", few.counts, many.counts, time.Second},
				{"start of a relay that worked before", few.restart, many.restart, 2 * time.Second},
				{"first start, which reads the history", few.first, many.first, time.Minute},
			} {
				t.Logf("%-36s %10s beside 10 thousand, %10s beside 10 million", p.what, p.few.Round(time.Microsecond), p.many.Round(time.Microsecond))
				require.Less(t, p.many, p.bound, p.what)
			}
		})
	}
}

// bigPace is how long things take; medians but for the starts.
type bigPace struct{ first, restart, idle, busy, settle, counts time.Duration }

func pollBesideSent(t *testing.T, url, ddl string, table relay.Table, sent int) (p bigPace) {
	s := newSpace(t, url, ddl)
	conn := s.conn()
	exec(t, conn, fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload, status, sent_at)
		SELECT 'event-' || g, 'order', 'key-' || g %% 1000, 'OrderCreated', '{}', 'SENT', now() FROM generate_series(1, %d) g`, sent))
	open := func() (*Store, time.Duration) {
		began := time.Now()
		st, err := Open(t.Context(), s.options(func(o *relay.StoreOptions) { o.Table = table }))
		require.NoError(t, err)
		_, err = st.Acquire(t.Context(), nil)
		require.NoError(t, err)
		_, err = st.Doubts(t.Context(), 1000)
		require.NoError(t, err)
		require.Empty(t, s.fetch(st))
		return st, time.Since(began)
	}
	st, took := open()
	p.first = took
	until(t, "the place to start from is kept", func() bool { return cursorKept(t, conn, table, int64(sent)) })
	require.NoError(t, st.Close())
	st, p.restart = open()
	defer func() { require.NoError(t, st.Close()) }()

	var idle, busy, settle, counts []time.Duration
	timed := func(into *[]time.Duration, f func()) {
		began := time.Now()
		f()
		*into = append(*into, time.Since(began))
	}
	for round := range 20 {
		timed(&idle, func() { require.Empty(t, s.fetch(st)) })
		exec(t, conn, fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
			SELECT 'n-%d-' || g, 'order', 'key-' || g, 'OrderCreated', '{}' FROM generate_series(1, 100) g`, round))
		var evs []relay.Event
		timed(&busy, func() {
			got, err := st.Fetch(t.Context(), relay.Fetch{Limit: 1000, MaxBytes: 1 << 20})
			require.NoError(t, err)
			evs = got.Events
		})
		require.Len(t, evs, 100)
		outs := make([]relay.Outcome, len(evs))
		for i, e := range evs {
			outs[i] = relay.Outcome{Row: e.Row, From: e.State, State: relay.StateSent}
		}
		timed(&settle, func() {
			lost, err := st.Settle(t.Context(), outs)
			require.NoError(t, err)
			require.Empty(t, lost)
		})
		timed(&counts, func() {
			_, err := st.Counts(t.Context(), 10_000)
			require.NoError(t, err)
		})
	}
	p.idle, p.busy, p.settle, p.counts = median(idle), median(busy), median(settle), median(counts)
	return p
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// cursorKept tells whether a restart need not read the first rows of the product's own table. Other tables
// have no place for that: their index tells.
func cursorKept(t *testing.T, conn *pgx.Conn, table relay.Table, rows int64) bool {
	if !table.Own {
		return true
	}
	var low int64
	err := conn.QueryRow(t.Context(), "SELECT coalesce(max(low_id), 0) FROM outbox_cursor").Scan(&low)
	return err == nil && low >= rows
}
