package sqlite

import (
	"database/sql"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
	"github.com/postrider/postrider/schema"
)

// TestCase_C17_Lanes: what a relay with lanes reads, and what a take-over costs, does not depend on how many rows
// were sent, a key that is blocked below all of them included.
//
//	POSTRIDER_TEST_BIG=1
func TestCase_C17_Lanes(t *testing.T) {
	if os.Getenv("POSTRIDER_TEST_BIG") == "" {
		t.Skip("set POSTRIDER_TEST_BIG=1 to read beside a million sent rows (takes minutes)")
	}
	relaytest.CompareBesideSent(t, func() relaytest.BesideSent { return besideSent(t) })
}

func besideSent(t *testing.T) relaytest.BesideSent {
	path := t.TempDir() + "/app.db"
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	exec := func(query string, args ...any) {
		_, err := db.ExecContext(t.Context(), query, args...)
		require.NoError(t, err)
	}
	exec(schema.Print(outbox.SQLite))
	return relaytest.BesideSent{
		Lanes: 16,
		Open: func() relaytest.Store {
			s, err := Open(t.Context(), relay.StoreOptions{URL: "sqlite:" + path, Name: "big", Relay: "big", Table: ownTable(), Claim: relay.ClaimLanes, Lanes: 16})
			require.NoError(t, err)
			return s
		},
		Fill: func(sent int) {
			exec(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, status, next_retry_at) VALUES
				('dead', 'order', 'blocked', 'T', 'DEAD', ?), ('behind-1', 'order', 'blocked', 'T', 'NEW', NULL), ('behind-2', 'order', 'blocked', 'T', 'NEW', NULL)`, never)
			exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
				INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload, status)
				SELECT 'event-' || i, 'order', 'key-' || (i % 1000), 'OrderCreated', '{}', 'SENT' FROM n`, sent)
		},
		Write: func(prefix string, n int) {
			exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
				INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
				SELECT ? || i, 'order', 'key-' || i, 'OrderCreated', '{}' FROM n`, n, prefix)
		},
	}
}
