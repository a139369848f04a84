package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestCase_C17_LongTransaction: a transaction that has drawn an id and stays open for hours, and another that
// only holds an old snapshot, keep the gap and the dead versions of rows alive. Polls after ten thousand
// events cost what the first ones did, and the late row still comes.
func TestCase_C17_LongTransaction(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	conn := s.conn()
	exec(t, conn, "ALTER TABLE outbox_events SET (autovacuum_enabled = off)")
	snapshot := s.conn()
	exec(t, snapshot, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, snapshot, "SELECT count(*) FROM outbox_events")
	writer := s.conn()
	exec(t, writer, "BEGIN")
	exec(t, writer, `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('late', 'order', 'late', 'T', '{}')`)

	st := s.open()
	const rounds, each = 100, 100
	var polls []time.Duration
	for round := range rounds {
		exec(t, conn, fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
			SELECT 'e-%d-' || g, 'order', 'k' || g, 'T', '{}' FROM generate_series(1, %d) g`, round, each))
		began := time.Now()
		got, err := st.Fetch(t.Context(), relay.Fetch{Limit: 1000, MaxBytes: 1 << 20})
		polls = append(polls, time.Since(began))
		require.NoError(t, err)
		require.Len(t, got.Events, each, "round %d", round)
		outs := make([]relay.Outcome, each)
		for i, e := range got.Events {
			outs[i] = relay.Outcome{Row: e.Row, From: e.State, State: relay.StateSent}
		}
		lost, err := st.Settle(t.Context(), outs)
		require.NoError(t, err)
		require.Empty(t, lost)
	}
	early, late := median(polls[:20]), median(polls[rounds-20:])
	t.Logf("a poll: %s at first, %s after %d events", early, late, rounds*each)
	require.Less(t, late, 4*early+10*time.Millisecond)
	exec(t, writer, "COMMIT")
	require.Equal(t, "late", s.fetch(st)[0].ID)
}
